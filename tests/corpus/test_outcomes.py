"""Every file of the corpus comes out as its MANIFEST.tsv says, through all three entrances.

The folder is no part of the repository: without it these tests are skipped.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import psutil
import pytest
from PIL import Image

from jina_ocr_loaders import JinaOCRError, JinaOCRLoader, JinaOCRReader
from tests.corpus.manifest import CORPUS, LINES, PRESENT, Line
from tests.servers import hosted
from tests.servers.hosted import HostedServer

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not PRESENT, reason="../shared/corpus is not here"),
]

EACH = pytest.mark.parametrize("line", LINES, ids=lambda line: line.path)


@pytest.fixture
def fixed(server: HostedServer) -> HostedServer:
    """The server says the same of every page: what counts is what reaches it."""
    server.otherwise = hosted.ok("fixed text")
    return server


def outcome(read: Callable[[], list[str]]) -> list[str] | str:
    """What reading gave: the list of page statuses, or the name of the error that refused the document."""
    try:
        return read()
    except JinaOCRError as error:
        return name_of(error)


def name_of(error: JinaOCRError) -> str:
    """The class of an error that can be shown."""
    assert error.message
    assert error.source
    assert len(str(error)) < 1000
    return type(error).__name__


def check(line: Line, got: list[str] | str, images: list[bytes]) -> None:
    """Compare with the manifest; each page that went out is one call, a strip of a long page is one more."""
    if line.statuses is None:
        outcomes = set(got) if isinstance(got, list) else {got}
        assert outcomes
        assert outcomes <= line.errors
    else:
        assert isinstance(got, list), got
        assert len(got) == line.pages
        assert all(status in allowed for status, allowed in zip(got, line.statuses, strict=True)), got
        assert len(images) >= got.count("ok")
    if line.calls is not None:
        assert len(images) == line.calls


def check_images(images: list[bytes], *, of_pdf: bool) -> None:
    """What was sent is a JPEG of the right size with something on it."""
    for data in images:
        image = Image.open(io.BytesIO(data))
        assert image.format == "JPEG"
        assert 640 < max(image.size) <= 1920
        if of_pdf and image.width != 640:  # the width of a strip
            assert max(image.size) == 1920
        low, high = image.convert("L").getextrema()
        assert low < high, "a page of one colour reached the engine"


@EACH
def test_the_core_gives_what_the_manifest_says(make_ocr, fixed, line):
    """Statuses, error class and number of calls, by path; without the password, or with a wrong one, its error."""
    ocr = make_ocr(on_error="mark", concurrency=8)
    got = outcome(lambda: [str(page.status) for page in ocr.read(line.file, password=line.password)])
    images = [request.image for request in fixed.requests]
    check(line, got, images)
    check_images(images, of_pdf=line.path.endswith(".pdf"))
    if line.password:
        fixed.clear()
        assert outcome(lambda: ocr.read(line.file)) == "PasswordRequiredError"
        assert outcome(lambda: ocr.read(line.file, password=line.password + "x")) == "WrongPasswordError"
        assert not fixed.requests


@EACH
def test_the_llama_index_reader_gives_the_same(fixed, line):
    """One Document a page, with its status in the metadata."""
    reader = JinaOCRReader(
        engine="hosted", base_url=fixed.base_url, on_error="mark", password=line.password, include_empty=True
    )
    got = outcome(lambda: [document.metadata["status"] for document in reader.load_data(line.file)])
    check(line, got, [request.image for request in fixed.requests])


@EACH
def test_the_langchain_loader_gives_the_same(fixed, line):
    """One Document a page, likewise."""
    loader = JinaOCRLoader(
        line.file,
        engine="hosted",
        base_url=fixed.base_url,
        on_error="mark",
        password=line.password,
        include_empty=True,
    )
    got = outcome(lambda: [document.metadata["status"] for document in loader.lazy_load()])
    check(line, got, [request.image for request in fixed.requests])


def test_memory_stays_flat(make_ocr, fixed):
    """Pages 101 to 300 of 619 take no more memory than the first hundred did, in this process and its workers."""
    ocr = make_ocr(concurrency=8)
    taken: dict[int, int] = {}
    for page in ocr.pages(CORPUS / "unstructured/example-docs/pdf/DA-619p.pdf", pages="1-300"):
        fixed.clear()  # the server is of this process and keeps what it gets
        if page.number in (100, 300):
            this = psutil.Process()
            taken[page.number] = sum(process.memory_info().rss for process in [this, *this.children()])
    assert taken[300] - taken[100] < 30e6
