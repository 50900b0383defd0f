"""JinaOCRReader in LlamaIndex, against a real server: signature, ids, metadata, directories, pipelines, pickles."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import multiprocessing
import pickle
from pathlib import Path

import fsspec
import pytest
from llama_index.core import MockEmbedding, SimpleDirectoryReader
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.readers.base import ReaderConfig
from llama_index.core.schema import MetadataMode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.tools.ondemand_loader_tool import OnDemandLoaderTool
from llama_index.core.vector_stores import SimpleVectorStore
from pydantic import ValidationError

from jina_ocr_loaders import JinaOCRReader, OCRSettings, PagesFailedError
from tests.data.marked_documents import marked_document
from tests.servers import hosted
from tests.servers.hosted import marked_pdf, page_text
from tests.servers.never import Never

KEY = "jina_secret_key"


@pytest.fixture
def reader(server):
    """A reader on the test's server."""
    return JinaOCRReader("hosted", base_url=server.base_url, api_key=KEY)


@pytest.fixture
def pdf(tmp_path):
    """A file of three pages."""
    path = tmp_path / "three pages.pdf"
    path.write_bytes(marked_document([1, 2, 3], title="T" * 3000, author="Ann"))
    return path


def options_of(server, **more):
    """Keyword arguments of a reader on this server."""
    return {"engine": "hosted", "base_url": server.base_url, "api_key": KEY, **more}


def test_a_path_gives_one_document_per_page(reader, pdf):
    """Text, id and metadata of each page, from nothing but a path."""
    documents = reader.load_data(pdf)
    assert [document.text for document in documents] == [page_text(n) for n in (1, 2, 3)]
    assert [document.id_ for document in documents] == [f"{pdf}#page={n}" for n in (1, 2, 3)]
    assert documents[1].metadata == {
        "file_name": "three pages.pdf",
        "file_path": str(pdf),
        "source": str(pdf),
        "total_pages": 3,
        "page_number": 2,
        "page_label": "2",
        "status": "ok",
        "engine": "hosted",
        "producer": "the producer",
        "creator": "the creator",
        "creationdate": documents[0].metadata["creationdate"],
        "title": "T" * 3000,
        "author": "Ann",
    }
    assert documents[0].metadata["creationdate"].startswith("2026-03-01T12:00:00")


@pytest.mark.parametrize("by", [str, Path, lambda path: path.read_bytes(), lambda path: io.BytesIO(path.read_bytes())])
def test_every_kind_of_source_is_taken(reader, pdf, by):
    """A path as text or Path, bytes and a stream give the same texts, and ids that do not depend on the object."""
    first, second = reader.load_data(by(pdf)), reader.load_data(by(pdf))
    assert [document.text for document in first] == [page_text(n) for n in (1, 2, 3)]
    assert first == second


def test_arguments_by_position_and_by_keyword(reader, pdf):
    """``load_data(file_path, extra_info, fs)`` may be called either way; each Document has metadata of its own."""
    extra = {"owner": "me", "file_name": "given.pdf"}
    by_position = reader.load_data(pdf, extra, None)
    assert by_position == reader.load_data(file_path=pdf, extra_info=extra, fs=None)
    assert [document.metadata["owner"] for document in by_position] == ["me"] * 3
    assert {document.metadata["file_name"] for document in by_position} == {"given.pdf"}
    by_position[0].metadata["owner"] = "you"
    assert by_position[1].metadata["owner"] == extra["owner"] == "me"


def test_a_file_system_is_used(reader):
    """With ``fs`` the path is looked for there, not on the disk."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/only/here.pdf", marked_pdf(2))
    documents = reader.load_data("/only/here.pdf", fs=memory)
    assert [document.text for document in documents] == [page_text(1), page_text(2)]
    assert documents[0].metadata["file_path"] == documents[0].metadata["source"] == "/only/here.pdf"


def test_lazy_loading_is_lazy(reader, pdf, server):
    """The first page is there while the third is not read yet; dropping the iterator ends its request."""
    server.script_page(3, never := Never())
    documents = reader.lazy_load_data(pdf)
    assert [document.text for document in itertools.islice(documents, 2)] == [page_text(1), page_text(2)]
    assert never.asked.wait(60)
    documents.close()
    assert never.left.wait(60)


def test_async_loading_is_native(reader, pdf):
    """The async calls give the same Documents, and so do the sync ones within a running loop."""

    async def load():
        lazy = await reader.alazy_load_data(pdf, extra_info={})
        return await reader.aload_data(pdf), list(lazy), reader.load_data(pdf)

    whole, lazy, within_a_loop = asyncio.run(load())
    assert whole == lazy == within_a_loop == reader.load_data(pdf)


def test_the_reader_keeps_its_own_limit(server, tmp_path):
    """Twenty files at once, as SimpleDirectoryReader gathers them: never more pages in flight than ``concurrency``."""
    for n in range(20):
        (tmp_path / f"{n:02}.pdf").write_bytes(marked_pdf([2 * n + 1, 2 * n + 2]))
    server.otherwise = hosted.ok(delay=0.01)
    reader = JinaOCRReader(**options_of(server, concurrency=3))
    directory = SimpleDirectoryReader(tmp_path, file_extractor={".pdf": reader}, raise_on_error=True)
    documents = asyncio.run(directory.aload_data())
    assert [document.text for document in documents] == [page_text(n) for n in range(1, 41)]
    assert server.peak <= 3


@pytest.mark.parametrize("num_workers", [None, 2])
def test_a_directory(reader, tmp_path, num_workers):
    """SimpleDirectoryReader reads by the reader alone or in two processes, which get the key by pickle."""
    for n in (1, 2):
        (tmp_path / f"{n}.pdf").write_bytes(marked_document([n, None, n + 2]))
    directory = SimpleDirectoryReader(tmp_path, file_extractor={".pdf": reader}, raise_on_error=True)
    documents = directory.load_data(num_workers=num_workers)
    assert [document.text for document in documents] == [page_text(n) for n in (1, 3, 2, 4)]
    assert [document.id_ for document in documents] == [
        f"{tmp_path}/{n}.pdf#page={page}" for n in (1, 2) for page in (1, 3)
    ]
    assert {document.metadata["file_type"] for document in documents} == {"application/pdf"}


def test_a_directory_in_memory(reader):
    """A file system of fsspec, given to SimpleDirectoryReader, reaches the reader with its PurePosixPath."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/folder/a.pdf", marked_pdf([7]))
    directory = SimpleDirectoryReader("/folder", fs=memory, file_extractor={".pdf": reader}, raise_on_error=True)
    assert [document.text for document in directory.load_data()] == [page_text(7)]


def test_file_name_as_id(reader, pdf):
    """``filename_as_id`` numbers by position, which is the page's where none is blank."""
    directory = SimpleDirectoryReader(input_files=[pdf], file_extractor={".pdf": reader}, filename_as_id=True)
    assert [document.id_ for document in directory.load_data()] == [f"{pdf}_part_{n}" for n in range(3)]


def test_ingesting_twice_changes_nothing(server, pdf):
    """A second run over the same file finds nothing new, with a reader of its own; a changed page is one new node."""
    store, docstore = SimpleVectorStore(), SimpleDocumentStore()

    def ingest():
        pipeline = IngestionPipeline(
            transformations=[SentenceSplitter(), MockEmbedding(embed_dim=4)],
            vector_store=store,
            docstore=docstore,
            docstore_strategy=DocstoreStrategy.UPSERTS,
        )
        return [node.ref_doc_id for node in pipeline.run(documents=JinaOCRReader(**options_of(server)).load_data(pdf))]

    assert ingest() == [f"{pdf}#page={n}" for n in (1, 2, 3)]
    assert ingest() == []
    server.script_page(2, hosted.ok("Another text."))
    assert ingest() == [f"{pdf}#page=2"]
    assert len(store.data.embedding_dict) == 3


def test_a_pipeline_with_readers(reader, pdf):
    """An IngestionPipeline takes the reader with its arguments, and describes both without the key."""
    config = ReaderConfig(reader=reader, reader_kwargs={"file_path": str(pdf)})
    nodes = IngestionPipeline(readers=[config], transformations=[SentenceSplitter()]).run()
    assert [node.ref_doc_id for node in nodes] == [f"{pdf}#page={n}" for n in (1, 2, 3)]
    assert KEY not in str(config.to_dict())


def test_bulky_metadata_is_no_obstacle(reader, pdf):
    """A title of 3,000 characters reaches neither embeddings nor models, so that a splitter with small chunks works."""
    documents = reader.load_data(pdf)
    assert SentenceSplitter(chunk_size=128, chunk_overlap=0).get_nodes_from_documents(documents)
    for mode in (MetadataMode.EMBED, MetadataMode.LLM):
        assert documents[0].get_metadata_str(mode=mode) == "file_name: three pages.pdf\npage_label: 1"


def test_the_key_is_in_the_pickle_and_nowhere_else(reader, server, pdf):
    """repr, str, dict, JSON and Documents do not show it; a copy by pickle reads with it, one by JSON has none."""
    server.key = KEY
    documents = reader.load_data(pdf)
    shown = [repr(reader), str(reader), str(reader.to_dict()), reader.to_json(), str([d.to_dict() for d in documents])]
    assert not [text for text in shown if KEY in text]
    assert pickle.loads(pickle.dumps(reader)).load_data(pdf) == documents
    copy = JinaOCRReader.from_json(reader.to_json())
    assert copy.api_key is None
    assert copy.base_url == server.base_url


def test_it_serialises_with_any_option(tmp_path):
    """Paths, an engine object and callbacks do not stop ``to_json``; LlamaIndex gets the class name."""

    class Engine:
        name = "my engine"

    reader = JinaOCRReader(
        Engine(),
        base_url="https://user:pw@host/v1",
        cache=tmp_path,
        pages=[1, 2],
        password="pw-of-file",
        on_page=print,
        engine_options={"a": 1},
        mode="single",
    )
    data = json.loads(reader.to_json())
    assert data["class_name"] == "JinaOCRReader"
    assert (data["engine"], data["cache"], data["pages"], data["mode"]) == (
        "my engine",
        str(tmp_path),
        [1, 2],
        "single",
    )
    assert data["base_url"] == "https://host/v1"
    assert "pw" not in reader.to_json()


def test_options_are_those_of_jina_ocr():
    """Every option of OCRSettings is one of the reader's, and an unknown one is refused."""
    assert set(OCRSettings.model_fields) < set(JinaOCRReader.model_fields)
    with pytest.raises(ValidationError, match="nonsense"):
        JinaOCRReader(nonsense=1)


def test_blank_pages(server):
    """A blank page gives no Document, and does not shift the others; with ``include_empty`` it gives an empty one."""
    data = marked_document([1, None, 3])
    documents = JinaOCRReader(**options_of(server)).load_data(data)
    assert [(d.metadata["page_number"], d.text) for d in documents] == [(1, page_text(1)), (3, page_text(3))]
    documents = JinaOCRReader(**options_of(server, include_empty=True)).load_data(data)
    assert [(d.metadata["status"], d.text) for d in documents] == [
        ("ok", page_text(1)),
        ("empty", ""),
        ("ok", page_text(3)),
    ]
    assert sorted(server.pages()) == [1, 1, 3, 3]


def test_failed_pages(server):
    """``raise`` raises with the others' results, ``mark`` keeps the slot with a code and no text, ``skip`` drops it."""
    data = marked_pdf(3)

    def load(on_error):
        server.script_page(2, hosted.status(422))
        return JinaOCRReader(**options_of(server, on_error=on_error)).load_data(data)

    with pytest.raises(PagesFailedError) as caught:
        load("raise")
    assert [page.markdown for page in caught.value.result] == [page_text(1), "", page_text(3)]
    marked = load("mark")
    assert [document.text for document in marked] == [page_text(1), "", page_text(3)]
    assert [document.metadata.get("error") for document in marked] == [None, "request_rejected", None]
    assert [document.metadata["page_number"] for document in load("skip")] == [1, 3]


def test_selected_pages_of_an_encrypted_file(server):
    """``pages`` and ``password`` are options of the reader."""
    data = marked_document([1, 2, 3], password="open sesame")
    reader = JinaOCRReader(**options_of(server, pages="2-", password="open sesame"))
    assert [document.text for document in reader.load_data(data)] == [page_text(2), page_text(3)]


def test_single_mode(server, pdf):
    """One Document for the file, its id the source's; what page breaks cut is joined, unless a delimiter is given."""
    server.script_page(1, *[hosted.ok("It is a long sen-")] * 2)
    server.script_page(2, *[hosted.ok("tence over two")] * 2)
    server.script_page(3, *[hosted.ok("pages and a third.")] * 2)
    (document,) = JinaOCRReader(**options_of(server, mode="single")).load_data(pdf)
    assert document.text == "It is a long sentence over two pages and a third."
    assert document.id_ == str(pdf)
    assert document.metadata["total_pages"] == 3
    assert "page_number" not in document.metadata
    (document,) = JinaOCRReader(**options_of(server, mode="single", pages_delimiter="\n\f")).load_data(pdf)
    assert document.text == "It is a long sen-\n\ftence over two\n\fpages and a third."


def test_an_on_demand_tool_has_a_schema(reader):
    """OnDemandLoaderTool makes a JSON schema out of ``load_data``, in which the file is a required string."""
    tool = OnDemandLoaderTool.from_defaults(reader, name="load", description="Load a file.")
    schema = tool.metadata.get_parameters_dict()
    assert schema["properties"]["file_path"]["anyOf"][0] == {"type": "string"}
    assert schema["required"] == ["file_path"]


def test_progress_is_shown_on_request(server, pdf, capsys):
    """``show_progress`` draws a bar on standard error, and nothing on standard output."""
    JinaOCRReader(**options_of(server, show_progress=True)).load_data(pdf)
    shown = capsys.readouterr()
    assert "3/3" in shown.err
    assert not shown.out


def read_in_a_copy(pickled, queue):
    """In another process: what reading with the copy raises."""
    try:
        pickle.loads(pickled).load_data(marked_pdf(1))
    except Exception as error:
        queue.put(f"{type(error).__name__}: {error}")


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_workers_do_not_each_load_the_model(engine):
    """A copy in a pool's process refuses to load a model of its own, and says what to do instead."""
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    process = spawn.Process(target=read_in_a_copy, args=(pickle.dumps(JinaOCRReader(engine)), queue))
    process.start()
    said = queue.get(timeout=240)
    process.join()
    assert said.startswith("EngineNotReadyError: engine")
    assert "base_url=" in said
