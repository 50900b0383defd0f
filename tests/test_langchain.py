"""JinaOCRLoader and JinaOCRBlobParser in LangChain, against a real server: laziness, metadata, indexing, images."""

from __future__ import annotations

import asyncio
import inspect
import io
import itertools
import pickle
from functools import partial
from pathlib import Path

import fsspec
import numpy as np
import pytest
from langchain_core.document_loaders import Blob
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.vectorstores import InMemoryVectorStore

from jina_ocr_loaders import (
    CorruptDocumentError,
    JinaOCRBlobParser,
    JinaOCRLoader,
    JinaOCRReader,
    OCRSettings,
    PagesFailedError,
    UnsupportedSourceError,
)
from jina_ocr_loaders.arrays import NUMPY_ARRAY, png_of_array
from tests.data.marked_documents import marked_document
from tests.servers import hosted
from tests.servers.hosted import marked_image, marked_jpeg, marked_pdf, page_text
from tests.servers.never import Never

KEY = "jina_secret_key"


@pytest.fixture
def options(server):
    """What makes a loader use the test's server."""
    return {"engine": "hosted", "base_url": server.base_url, "api_key": KEY}


@pytest.fixture
def pdf(tmp_path):
    """A file of three pages."""
    path = tmp_path / "three.pdf"
    path.write_bytes(marked_document([1, 2, 3], title="A title"))
    return path


def npy(array):
    """A blob as LangChain's PDF parsers hand images over: a numpy file without a source."""
    file = io.BytesIO()
    np.save(file, array)
    return Blob.from_data(file.getvalue(), mime_type=NUMPY_ARRAY)


def test_a_path_gives_one_document_per_page(options, pdf):
    """Text, id and metadata under the names that LangChain's own PDF loaders use; ``page`` counts from 0."""
    documents = JinaOCRLoader(pdf, **options).load()
    assert [document.page_content for document in documents] == [page_text(n) for n in (1, 2, 3)]
    assert [document.id for document in documents] == [f"{pdf}#page={n}" for n in (1, 2, 3)]
    assert documents[1].metadata == {
        "source": str(pdf),
        "total_pages": 3,
        "page": 1,
        "page_number": 2,
        "page_label": "2",
        "status": "ok",
        "engine": "hosted",
        "producer": "the producer",
        "creator": "the creator",
        "creationdate": "2026-03-01T12:00:00+00:00",
        "title": "A title",
    }
    assert JinaOCRLoader(pdf, **options).load() == documents


@pytest.mark.parametrize("by", [str, Path, lambda path: path.read_bytes(), lambda path: io.BytesIO(path.read_bytes())])
def test_every_kind_of_source_is_taken(options, pdf, by):
    """A path as text or Path, bytes and a stream give the same texts; a loader can be used twice."""
    loader = JinaOCRLoader(by(pdf), **options)
    first = loader.load()
    assert [document.page_content for document in first] == [page_text(n) for n in (1, 2, 3)]
    assert loader.load() == first


def test_a_file_system_is_used(options):
    """With ``fs``, or as ``(fs, path)``, the path is looked for there."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/only/here.pdf", marked_pdf([5]))
    for loader in (
        JinaOCRLoader("/only/here.pdf", fs=memory, **options),
        JinaOCRLoader((memory, "/only/here.pdf"), **options),
    ):
        assert [document.page_content for document in loader.load()] == [page_text(5)]


def test_lazy_loading_is_lazy(options, pdf, server):
    """The first pages are there while the third is not read yet; dropping the iterator ends its request."""
    server.script_page(3, never := Never())
    documents = JinaOCRLoader(pdf, **options).lazy_load()
    assert [document.page_content for document in itertools.islice(documents, 2)] == [page_text(1), page_text(2)]
    assert never.asked.wait(60)
    documents.close()
    assert never.left.wait(60)


def test_async_loading_is_native(options, pdf, server):
    """``alazy_load`` yields on the caller's own loop, in order; leaving it early ends what is in flight."""
    server.script_page(3, never := Never())

    async def load():
        documents = JinaOCRLoader(pdf, **options).alazy_load()
        first = [await anext(documents), await anext(documents)]
        assert await asyncio.to_thread(never.asked.wait, 10)
        await documents.aclose()
        return first

    assert [document.metadata["page"] for document in asyncio.run(load())] == [0, 1]
    assert never.left.wait(60)


def test_indexing_twice_changes_nothing(options, pdf, server):
    """``index`` with source_id_key adds three pages, then skips them; a page whose text changed replaces one."""
    records = InMemoryRecordManager("test")
    records.create_schema()
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))

    def ingest():
        loader = JinaOCRLoader(pdf, **options)
        return index(loader, records, store, cleanup="incremental", source_id_key="source", key_encoder="sha256")

    assert ingest() == {"num_added": 3, "num_updated": 0, "num_skipped": 0, "num_deleted": 0}
    assert ingest() == {"num_added": 0, "num_updated": 0, "num_skipped": 3, "num_deleted": 0}
    server.script_page(2, hosted.ok("Another text."))
    assert ingest() == {"num_added": 1, "num_updated": 0, "num_skipped": 2, "num_deleted": 1}


def test_blank_pages(options):
    """A blank page gives no Document and does not shift the others; with ``include_empty`` it gives an empty one."""
    data = marked_document([1, None, 3])
    documents = JinaOCRLoader(data, **options).load()
    assert [(d.metadata["page"], d.page_content) for d in documents] == [(0, page_text(1)), (2, page_text(3))]
    documents = JinaOCRLoader(data, include_empty=True, **options).load()
    assert [(d.metadata["status"], d.page_content) for d in documents] == [
        ("ok", page_text(1)),
        ("empty", ""),
        ("ok", page_text(3)),
    ]


def test_failed_pages(options, server):
    """``raise`` gives the good pages and then raises, ``mark`` keeps the slot with a code, ``skip`` leaves it out."""
    data = marked_pdf(3)

    def load(on_error):
        server.script_page(2, hosted.status(422))
        return JinaOCRLoader(data, on_error=on_error, **options).lazy_load()

    documents = load("raise")
    assert [next(documents).metadata["page"] for _ in range(2)] == [0, 2]
    with pytest.raises(PagesFailedError):
        next(documents)
    marked = list(load("mark"))
    assert [document.page_content for document in marked] == [page_text(1), "", page_text(3)]
    assert [document.metadata.get("error") for document in marked] == [None, "request_rejected", None]
    assert [document.metadata["page"] for document in load("skip")] == [0, 2]


def test_single_mode(options, pdf, server):
    """One Document; what the page break cuts is joined, unless a delimiter is given; failed pages are named."""
    server.script_page(1, *[hosted.ok("It is a long sen-")] * 2)
    server.script_page(2, *[hosted.ok("tence.")] * 2)
    server.script_page(3, *[hosted.status(422)] * 2)
    (document,) = JinaOCRLoader(pdf, mode="single", on_error="mark", **options).load()
    assert document.page_content == "It is a long sentence."
    assert document.id == document.metadata["source"] == str(pdf)
    assert document.metadata["failed_pages"] == "3"
    assert "page" not in document.metadata
    (document,) = JinaOCRLoader(pdf, mode="single", pages="1-2", pages_delimiter="\n\f", **options).load()
    assert document.page_content == "It is a long sen-\n\ftence."


def test_options_have_the_same_names_everywhere():
    """What loader, parser and LlamaIndex's reader add to the options of JinaOCR is the same, with equal defaults."""

    def own(adapter):
        parameters = inspect.signature(adapter).parameters
        return {name: p.default for name, p in parameters.items() if name not in ("source", "fs", "options", "engine")}

    fields = JinaOCRReader.model_fields
    of_reader = {name: fields[name].default for name in fields if name not in (*OCRSettings.model_fields, "is_remote")}
    assert own(JinaOCRLoader) == own(JinaOCRBlobParser) == of_reader


def test_loader_and_parser_pickle(options, pdf, server):
    """Both can be sent to another process, with the key, and show neither key nor password."""
    server.key = KEY
    options |= {"password": "open sesame"}
    loader, parser = (
        pickle.loads(pickle.dumps(made)) for made in (JinaOCRLoader(pdf, **options), JinaOCRBlobParser(**options))
    )
    assert loader.load() == parser.parse(Blob.from_path(pdf))
    shown = repr(loader) + repr(parser) + str(vars(loader)) + str(vars(parser))
    assert KEY not in shown
    assert "sesame" not in shown


def test_blobs_by_path_and_by_data(options, pdf, server):
    """A blob's source is the Documents' source, whatever its suffix says; its metadata is kept."""
    parser = JinaOCRBlobParser(**options)
    by_path = parser.parse(Blob.from_path(pdf, metadata={"owner": "me"}))
    assert [document.page_content for document in by_path] == [page_text(n) for n in (1, 2, 3)]
    assert {(d.metadata["source"], d.metadata["owner"]) for d in by_path} == {(str(pdf), "me")}
    data = Blob.from_data(marked_jpeg(4), path="scan.pdf", metadata={"source": "https://user:pw@example.org/a?sig=1"})
    (document,) = parser.parse(data)
    assert document.page_content == page_text(4)
    assert document.metadata["source"] == "https://example.org/a"
    assert document.id == "https://example.org/a#page=1"
    (unnamed,) = parser.parse(Blob.from_data(marked_jpeg(4)))
    assert unnamed.metadata["source"].startswith("sha256:")


@pytest.mark.parametrize("channels", ["grey", "grey, 1", "bgr", "bgra", "bits"])
def test_images_of_pdf_parsers(options, channels):
    """As an ``images_parser`` it gets arrays in BGR order; each gives one Document with the image's text."""
    grey = np.asarray(marked_image(6))
    arrays = {
        "grey": grey,
        "grey, 1": grey[..., None],
        "bgr": np.stack([grey] * 3, axis=2),
        "bgra": np.dstack([np.stack([grey] * 3, axis=2), np.full_like(grey, 255)]),
        "bits": grey > 127,
    }
    (document,) = JinaOCRBlobParser(**options).lazy_parse(npy(arrays[channels]))
    assert document.page_content == page_text(6)


def test_colours_of_arrays_are_blue_green_red():
    """The first channel is blue: a red picture stays red."""
    from PIL import Image

    red = np.zeros((4, 5, 3), np.uint8)
    red[..., 2] = 255
    image = Image.open(io.BytesIO(png_of_array(npy(red).as_bytes())))
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (5, 4), (255, 0, 0))


@pytest.mark.parametrize("array", [np.zeros((2, 2), np.float32), np.zeros((2, 2, 5), np.uint8), np.zeros(4, np.uint8)])
def test_arrays_that_are_no_images_are_refused(array):
    """Their type and shape are in the message."""
    with pytest.raises(UnsupportedSourceError, match="is no image"):
        png_of_array(npy(array).as_bytes())


def test_an_array_file_never_runs_code():
    """A pickle inside a .npy file is not loaded."""
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(CorruptDocumentError):
        png_of_array(file.getvalue())


def test_an_image_with_nothing_on_it_gives_an_empty_document(options, server):
    """PDF parsers take the first Document of each image: a blank one gives an empty Document, without a request."""
    blank = np.full((200, 200, 3), 255, np.uint8)
    assert next(JinaOCRBlobParser(**options).lazy_parse(npy(blank))).page_content == ""
    assert not server.requests


@pytest.mark.parametrize("make", [partial(JinaOCRLoader, "a.pdf"), JinaOCRBlobParser, JinaOCRReader])
def test_a_mode_that_there_is_not(make):
    """It is refused when it is given, rather than taken for another."""
    with pytest.raises(ValueError, match=r"'page' or 'single'"):
        make(mode="pages")
