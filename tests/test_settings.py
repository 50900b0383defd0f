"""The options and their documentation."""

import re
from pathlib import Path

from jina_ocr_loaders import OCRSettings
from jina_ocr_loaders.settings import OCROptions

DOC = Path(__file__).parents[1] / "docs" / "configuration.md"


def test_keywords_and_settings_are_the_same_list():
    """What can be passed as a keyword is what settings hold, but for the engine."""
    assert set(OCROptions.__annotations__) | {"engine"} == set(OCRSettings.model_fields)


def test_every_option_is_documented_and_every_documented_one_exists():
    """docs/configuration.md lists all options and no others."""
    rows = [line.split("|")[1] for line in DOC.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    names = {name for row in rows for name in re.findall(r"`([a-z_]+)`", row)}
    assert names - {"jina_ocr_loaders"} == set(OCRSettings.model_fields)


def test_the_key_is_in_no_text_form():
    """repr, str, dump and JSON leave it out."""
    settings = OCRSettings(api_key="jina_secret", proxy="http://user:jina_secret@proxy")
    assert "jina_secret" not in repr(settings) + str(settings) + settings.model_dump_json() + repr(
        settings.model_dump()
    )
