"""Files that break readers, through JinaOCR against the hosted server: what comes of them, and what others lose."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from PIL import Image

from jina_ocr_loaders import CorruptDocumentError, JinaOCRError, ResourceLimitError
from jina_ocr_loaders.pages import Limits, client, document
from jina_ocr_loaders.results import DocumentResult
from tests.data import images, odd_files, pdfs
from tests.servers import hosted
from tests.servers.hosted import Exchange, marked_pdf, page_text

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel bounds memory on Linux only")
posix = pytest.mark.skipif(sys.platform == "win32", reason="signals")

KINDS = {
    # name: the file, and what comes of its pages, or the error that refuses it; the password is "secret"
    "ordinary pages": (pdfs.plain(3), "ok,ok,ok"),
    "rotated text": (pdfs.turned_text(90), "ok"),
    "crop box": (pdfs.cropped(), "ok"),
    "user unit": (pdfs.large_unit(), "ok"),
    "3 x 3 points": (pdfs.sized(3, 3), "ok"),
    "14,400 points": (pdfs.sized(14_400, 14_400), "ok"),
    "boxes that do not meet": (pdfs.without_size(), "ok"),
    "0 x 0 points": (odd_files.without_area(), "ok"),
    "stamp": (pdfs.stamped(), "ok"),
    "form": (pdfs.form(), "ok"),
    "form on page two": (odd_files.form_on_page_two(), "empty,ok"),
    "xfa": (pdfs.xfa(), "xfa_placeholder"),
    "jbig2 that cannot be decoded": (pdfs.undecodable_image(), "blank_render"),
    "jpeg that cannot be decoded": (pdfs.broken_jpeg(), "blank_render"),
    "jbig2 that turns white": (pdfs.image_that_turns_white(), "blank_render"),
    "clipped text": (pdfs.lost_text(), "blank_render"),
    "blank in three ways": (pdfs.blank(), "empty,empty,empty"),
    "scan of an empty sheet": (pdfs.blank_sheet(), "empty"),
    "invisible text": (pdfs.invisible_text(), "empty"),
    "missing page": (pdfs.missing_page(), "ok,render_error"),
    "circular page tree": (odd_files.circular_pages(), "ok,render_error"),
    "false page count": (odd_files.false_count(65_536), "ok"),
    "false page count, largest": (odd_files.false_count(2**31 - 1), "ok"),
    "owner's password": (pdfs.encrypted("", owner="boss"), "ok"),
    "password": (pdfs.encrypted("secret"), "ok"),
    "another password": (pdfs.encrypted("another"), "WrongPasswordError"),
    "unknown encryption": (pdfs.unknown_encryption(), "UnsupportedEncryptionError"),
    "newer encryption": (pdfs.newer_encryption("secret"), "UnsupportedEncryptionError"),
    "truncated": (pdfs.truncated(), "CorruptDocumentError"),
    "noise": (pdfs.garbage(), "CorruptDocumentError"),
    "no pages": (pdfs.without_pages(), "CorruptDocumentError"),
    "empty file": (b"", "CorruptDocumentError"),
    "three frames": (images.frames("TIFF"), "ok,ok,ok"),
    "false frame count": (images.false_frame_count(10**6), "ok,ok"),
    "damaged behind two frames": (images.truncated_frames(), "ok,ok,render_error"),
    "phone's preview": (images.camera_pair(), "ok"),
    "damaged exif": (images.bad_exif(), "ok"),
    "one colour": (images.saved(Image.new("RGB", (800, 600), "white"), "PNG"), "empty"),
    "bomb": (images.png_bomb(), "ResourceLimitError"),
    "bomb of rows": (images.png_bomb(1, 100_000_000), "ResourceLimitError"),
    "bomb behind a frame": (images.gif_bomb_behind(), "ok,too_many_pixels"),
    "hostile tiff": (images.hostile_tiff(), "CorruptDocumentError"),
    "damaged heic": (images.heic()[:-100], "CorruptDocumentError"),
    "half a jpeg 2000": (images.truncated("JPEG2000"), "render_error"),
    "web page": (b"<!DOCTYPE html><html><body>Not found</body></html>", "UnsupportedSourceError"),
}

PICTURES = {
    "scan turned by 90": odd_files.rotated_scan(90),
    "scan turned by 180": odd_files.rotated_scan(180),
    "scan turned by 270": odd_files.rotated_scan(270),
    "cmyk": odd_files.cmyk_scan(),
    "cmyk jpeg": odd_files.cmyk_jpeg(),
    "jpeg 2000": odd_files.jpeg_2000(),
    "fax": odd_files.fax(),
    "big tiff": odd_files.big_tiff(),
    "16-bit png": odd_files.deep_png(),
    "rgba frames": odd_files.compressed_frames(),
    "turned grey tiff": images.turned(6, "TIFF", "L"),
}


@pytest.fixture
def alone() -> Iterator[None]:
    """The test starts without workers, and those of documents that are lost are gone with them."""
    client.end_idle()
    yield
    client.end_idle()
    assert not workers()


def workers(path: str | None = None) -> list[psutil.Process]:
    """The worker processes, or those that hold a file open."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            while not (command := child.cmdline()):
                time.sleep(0.001)  # it is being started: the kernel has its command in a moment
            is_worker = "jina_ocr_loaders.pages.worker" in command
            if is_worker and (path is None or path in [file.path for file in child.open_files()]):
                found.append(child)
    return found


def limited(monkeypatch: pytest.MonkeyPatch, **limits: float) -> None:
    """Give documents tighter limits."""
    monkeypatch.setattr(document, "Limits", functools.partial(Limits, **limits))


def outcome(read: Callable[[], DocumentResult]) -> str:
    """The status of each page, or its error's code where it failed; or the class of the error that was raised."""
    try:
        pages = read().pages
    except JinaOCRError as error:
        shown = str(error)
        return type(error).__name__ if shown.startswith("<bytes>: ") and shown.isprintable() else repr(shown)
    return ",".join(page.error.code if page.error else str(page.status) for page in pages)


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_file(make_ocr, server, name):
    """The pages' statuses, with codes for the failed ones, or the error; one call for each page that can be read."""
    data, expected = KINDS[name]
    server.otherwise = hosted.ok("fixed text")
    ocr = make_ocr(on_error="mark")
    got = outcome(lambda: ocr.read(data, password="secret"))
    assert got == expected
    assert len(server.requests) == got.split(",").count("ok")


@pytest.mark.parametrize("name", PICTURES)
def test_each_kind_of_picture(make_ocr, server, name):
    """It arrives upright, black on white: the top left quarter is black, the others are white."""
    make_ocr().read(PICTURES[name])
    for request in server.requests:
        image = Image.open(io.BytesIO(request.image)).convert("L")
        assert image.width > image.height
        places = [(x * image.width // 4, y * image.height // 4) for y in (1, 3) for x in (1, 3)]
        assert [image.getpixel(place) < 128 for place in places] == [True, False, False, False]
    assert server.requests


def test_a_killed_worker_costs_its_own_document_only(alone, make_ocr, server, tmp_path):
    """Killed in the middle of 50 pages while another document is read: an error there, all 50 pages here."""
    victim, other = tmp_path / "victim.pdf", tmp_path / "other.pdf"
    victim.write_bytes(marked_pdf(range(1, 51)))
    other.write_bytes(marked_pdf(range(101, 151)))
    killed = threading.Event()

    async def hold(exchange: Exchange) -> None:
        await asyncio.to_thread(killed.wait)
        await hosted.ok()(exchange)

    server.script_page(110, hold)  # so the other document is in flight when it happens
    ocr = make_ocr(concurrency=4)

    async def read() -> tuple[list[str], BaseException | None, list[str]]:
        reading = asyncio.create_task(ocr.aread(other))
        texts: list[str] = []
        error = None
        try:
            async for page in ocr.apages(victim):
                texts.append(page.markdown)
                if len(texts) == 5:
                    for worker in workers(str(victim)):
                        worker.kill()
                    assert not reading.done()
        except JinaOCRError as lost:
            error = lost
        killed.set()
        return texts, error, [page.markdown for page in (await reading).pages]

    texts, error, others = asyncio.run(read())
    assert 5 <= len(texts) < 50
    assert texts == [page_text(number) for number in range(1, len(texts) + 1)]
    assert isinstance(error, CorruptDocumentError)
    assert error.code == "worker_lost"
    assert "victim.pdf" in str(error)
    assert others == [page_text(number) for number in range(101, 151)]
    assert ocr.read(marked_pdf([7])).markdown == page_text(7)


@posix
def test_a_hung_worker_costs_its_own_document_only(alone, make_ocr, server, tmp_path, monkeypatch):
    """Stopped in the middle of 50 pages: the time limit ends that document, and the other one has all its pages."""
    limited(monkeypatch, seconds=5)
    victim, other = tmp_path / "victim.pdf", tmp_path / "other.pdf"
    victim.write_bytes(marked_pdf(range(1, 51)))
    other.write_bytes(marked_pdf(range(101, 151)))
    ocr = make_ocr(concurrency=4)

    async def read_victim() -> None:
        async for page in ocr.apages(victim):
            if page.number == 5:
                for worker in workers(str(victim)):
                    worker.suspend()
                limited(monkeypatch)  # the other one has time
                readings.append(asyncio.create_task(ocr.aread(other)))

    async def read() -> list[str]:
        with pytest.raises(ResourceLimitError, match=r"victim\.pdf.* took longer than 5 s"):
            await read_victim()
        return [page.markdown for page in (await readings[0]).pages]

    readings: list[asyncio.Task[DocumentResult]] = []
    assert asyncio.run(read()) == [page_text(number) for number in range(101, 151)]


def test_a_page_that_would_take_years(alone, make_ocr, monkeypatch):
    """A shading that is painted for hours: given up at the time limit; the next document has a fresh worker."""
    limited(monkeypatch, seconds=1)
    ocr = make_ocr()
    with pytest.raises(ResourceLimitError, match="longer than 1 s"):
        ocr.read(pdfs.slow())
    monkeypatch.undo()
    assert ocr.read(marked_pdf([7])).markdown == page_text(7)


@linux
@pytest.mark.parametrize(
    "data",
    [pdfs.bloating(200), pdfs.endless(), odd_files.self_drawing()],
    ids=["unpacks", "forms in forms", "draws itself"],
)
def test_a_page_that_takes_too_much_memory(alone, make_ocr, monkeypatch, data):
    """A kilobyte that takes all memory there is: stopped at the limit; the next document has a fresh worker."""
    limited(monkeypatch, memory=150 << 20)
    ocr = make_ocr()
    with pytest.raises(JinaOCRError, match="memory"):
        ocr.read(data)
    assert ocr.read(marked_pdf([7])).markdown == page_text(7)


@pytest.mark.parametrize("mode", ["raise", "mark", "skip"])
def test_a_lost_document_is_an_error_in_every_mode(make_ocr, monkeypatch, mode):
    """on_error is about pages: a document that is lost raises whatever it says."""
    limited(monkeypatch, seconds=1)
    with pytest.raises(ResourceLimitError):
        make_ocr(on_error=mode).read(pdfs.slow())


def test_many_bad_documents_at_once(make_ocr):
    """Every kind at the same time, from one object in eight threads: each comes out as it does alone."""
    ocr = make_ocr(on_error="mark")
    with ThreadPoolExecutor(8) as threads:
        read = functools.partial(ocr.read, password="secret")
        got = threads.map(lambda data: outcome(lambda: read(data)), [data for data, _ in KINDS.values()])
        assert dict(zip(KINDS, got, strict=True)) == {name: expected for name, (_, expected) in KINDS.items()}
