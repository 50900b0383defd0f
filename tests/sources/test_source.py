"""Every kind of source: what it is called, what comes out when it is opened, and what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from moto.server import ThreadedMotoServer

from jina_ocr_loaders.errors import (
    CorruptDocumentError,
    DownloadError,
    JinaOCRError,
    MissingExtraError,
    ResourceLimitError,
    SourceError,
    SourceNotFoundError,
    UnsupportedSourceError,
)
from jina_ocr_loaders.sources import Content, FetchLimits, Source
from tests.servers.files import FileServer, endless, status

PDF = b"%PDF-1.7\n" + bytes(range(256)) * 40
SHA256 = hashlib.sha256(PDF).hexdigest()
LIMITS = FetchLimits(timeout=20, allow_private_networks=True)
S3_KEYS = ("a.pdf", "dir/文書 #1.pdf", "100%?.pdf")


@pytest.fixture
def pdf(tmp_path) -> Path:
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)
    return path


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory, monkeypatch) -> Iterator[Path]:
    """Where temporary files go in these tests: empty again after each of them, and none without a name is open."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield folder
    assert list(folder.glob("jina-ocr-*")) == []  # fsspec leaves some of its own
    if sys.platform == "linux":
        assert [file for file in open_files() if file.startswith(str(folder)) and file.endswith("(deleted)")] == []


def open_files() -> Iterator[str]:
    """The files that this process holds open, by Linux's names of them."""
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed since
            yield os.readlink(f"/proc/self/fd/{number}")


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    fs = fsspec.filesystem("memory")
    fs.pipe("/dir/a.pdf", PDF)
    yield fs
    fs.store.clear()


def opened(source: Source, limits: FetchLimits = LIMITS) -> tuple[Content, bytes, str]:
    """What a source gives: the content, its bytes, its hash."""

    async def run() -> tuple[Content, bytes, str]:
        async with source.open(limits) as content:
            return content, content.path.read_bytes(), await content.sha256()

    return asyncio.run(run())


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that closes the connection without a word."""


def failure(source: Source, limits: FetchLimits = LIMITS) -> JinaOCRError:
    with pytest.raises(JinaOCRError) as caught:
        opened(source, limits)
    return caught.value


class TestPaths:
    def test_a_path_is_read_where_it_is(self, pdf):
        """Path and str name the same document; no copy is made, and the file stays."""
        for given in (pdf, str(pdf)):
            source = Source.of(given)
            content, data, sha256 = opened(source)
            assert (source.id, source.name, source.path, source.url) == (str(pdf), str(pdf), str(pdf), None)
            assert (content.path, content.kind, content.size, data, sha256) == (pdf, "pdf", len(PDF), PDF, SHA256)
        assert pdf.exists()

    def test_a_relative_path_keeps_its_identity(self, pdf, monkeypatch):
        """Ids are paths as given: a corpus moved with its folder keeps its ids."""
        monkeypatch.chdir(pdf.parent)
        assert Source.of("./a.pdf").id == "./a.pdf"
        assert opened(Source.of("./a.pdf"))[1] == PDF

    @pytest.mark.parametrize(
        "name",
        [
            "文書 скан é.pdf",
            "empty#hash.pdf",
            "100% ?x=1&y.pdf",
            "a::b.pdf",
            "file:x.pdf",
            " .pdf",
            "line\nbreak.pdf",
            "no_suffix",
        ],
    )
    def test_names_that_other_tools_trip_over(self, tmp_path, monkeypatch, name):
        """Names in any script, unsafe in URLs, or looking like something else are only names."""
        (tmp_path / name).write_bytes(PDF)
        monkeypatch.chdir(tmp_path)
        assert opened(Source.of(name))[1] == PDF
        assert Source.of(tmp_path / name).id == str(tmp_path / name)
        assert opened(Source.of((tmp_path / name).as_uri()))[1] == PDF
        assert Source.of((tmp_path / name).as_uri()).id == str(tmp_path / name)

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse names that are not Unicode")
    def test_a_name_that_is_not_unicode(self, tmp_path):
        """A file name with a lone surrogate is opened; what is shown and kept can be encoded."""
        path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.pdf")
        with open(path, "wb") as file:
            file.write(PDF)
        source = Source.of(os.fsdecode(path))
        assert opened(source)[1] == PDF
        assert source.id == source.name == source.path == f"{tmp_path}/caf\\udce9.pdf"
        assert source.id.encode()
        assert "caf\\udce9" in str(failure(Source.of(os.fsdecode(path) + "x")))

    def test_a_file_url_is_its_path(self, pdf):
        """Percent signs are decoded; localhost is this machine, another host is not."""
        for url in (pdf.as_uri(), pdf.as_uri().replace("file://", "FILE://localhost"), f"file:{pdf}"):
            assert Source.of(url).id == str(pdf)
            assert opened(Source.of(url))[0].path == pdf
        with pytest.raises(UnsupportedSourceError, match=r"not of server\.example"):
            Source.of("file://server.example/a.pdf")

    def test_the_suffix_says_nothing(self, tmp_path):
        """A PNG named .pdf is an image, HEIC named .jpg is HEIC."""
        (tmp_path / "a.pdf").write_bytes(b"\x89PNG\r\n\x1a\n")
        (tmp_path / "a.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
        assert opened(Source.of(tmp_path / "a.pdf"))[0].kind == "image"
        assert opened(Source.of(tmp_path / "a.jpg"))[0].kind == "heif"

    def test_what_is_missing_is_named(self, tmp_path):
        """A missing file, a folder, an impossible name: a typed error each, with a stable code."""
        missing = failure(Source.of(tmp_path / "b.pdf"))
        assert isinstance(missing, FileNotFoundError)
        assert (type(missing), missing.code, str(missing)) == (
            SourceNotFoundError,
            "not_found",
            f"{tmp_path / 'b.pdf'}: no such file",
        )
        assert "folder" in str(failure(Source.of(tmp_path)))
        for name in ("a\0b", "x" * 5000):
            error = failure(Source.of(name))
            assert (type(error), error.code) == (SourceError, "not_readable")
        with pytest.raises(UnsupportedSourceError, match="empty"):
            Source.of("")

    def test_a_url_in_a_path_object_is_recognised(self):
        """Path("https://…") loses a slash: the error says what to pass instead."""
        assert "as str, not as Path" in str(failure(Source.of(Path("https://example.com/a.pdf"))))

    def test_a_file_that_goes_while_it_is_open(self, pdf):
        """Hashing it afterwards is a typed error."""

        async def run() -> None:
            async with Source.of(pdf).open() as content:
                pdf.unlink()
                with pytest.raises(SourceError, match="cannot be read any more"):
                    await content.sha256()

        asyncio.run(run())

    def test_an_empty_file_is_said_to_be_empty(self, tmp_path):
        """Not "unsupported": it would be if it had content."""
        (tmp_path / "a.pdf").touch()
        assert isinstance(failure(Source.of(tmp_path / "a.pdf")), CorruptDocumentError)

    def test_the_size_limit_holds(self, pdf):
        """A local file over the limit is refused with both sizes."""
        assert opened(Source.of(pdf), FetchLimits(max_bytes=len(PDF)))[0].size == len(PDF)
        error = failure(Source.of(pdf), FetchLimits(max_bytes=len(PDF) - 1))
        assert isinstance(error, ResourceLimitError)
        assert error.message == "10,249 bytes, more than max_bytes=10,248"

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
    def test_a_pipe_is_read_like_a_stream(self, tmp_path):
        """A named pipe, as shells make them for <(command), is read once into a temporary file."""
        os.mkfifo(tmp_path / "pipe")
        writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(PDF))
        writer.start()
        assert opened(Source.of(tmp_path / "pipe"))[1] == PDF
        writer.join()

    @pytest.mark.skipif(sys.platform != "linux", reason="uses a file of /proc that cannot be read")
    def test_a_file_that_cannot_be_read(self):
        """What the system says is told."""
        error = failure(Source.of("/proc/self/mem"))
        assert (type(error), error.code) == (SourceError, "not_readable")
        assert error.message == "cannot be read: Input/output error"

    @pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs devices")
    def test_a_device_without_end_is_cut(self):
        """It gives bytes for ever; the limit holds."""
        assert isinstance(failure(Source.of("/dev/zero"), FetchLimits(max_bytes=10_000_000)), ResourceLimitError)

    @pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
    def test_a_pipe_that_nobody_writes_to_is_left(self, tmp_path):
        """Even opening it blocks: the time limit holds."""
        os.mkfifo(tmp_path / "pipe")
        error = failure(Source.of(tmp_path / "pipe"), FetchLimits(timeout=0.2))
        assert isinstance(error, ResourceLimitError)
        assert "longer than 0.2 s" in str(error)
        os.close(os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK))  # lets the waiting thread go


class TestBytesAndStreams:
    @pytest.mark.parametrize("made", [bytes, bytearray, memoryview, lambda data: memoryview(data)[::1]])
    def test_bytes_of_every_type(self, made):
        """Identified by their content, whatever holds them; a copy protects from later changes."""
        source = Source.of(made(PDF))
        assert source.id == f"sha256:{SHA256}"
        content, data, sha256 = opened(source)
        assert (data, sha256, source.name, source.path, source.url) == (PDF, SHA256, "<bytes>", None, None)
        assert not content.path.exists()

    def test_a_bytearray_may_change_afterwards(self):
        """The source is what was given, not what becomes of it."""
        data = bytearray(PDF)
        source = Source.of(data)
        data[:] = b"changed"
        assert opened(source)[1] == PDF

    @pytest.mark.parametrize("position", [0, 5, len(PDF)])
    def test_a_stream_is_read_from_its_start_and_left_as_it_was(self, position):
        """Wherever it stands, after writing at its end, too; it can be read again, and is not closed."""
        stream = io.BytesIO(PDF)
        stream.seek(position)
        source = Source.of(stream)
        for _ in range(2):
            assert opened(source)[1] == PDF
            assert source.id == f"sha256:{SHA256}"
        assert stream.tell() == position

    def test_an_open_file_has_a_name(self, pdf):
        """Errors name the file; the identity is that of its content, as with every stream."""
        with pdf.open("rb") as stream:
            source = Source.of(stream)
            assert source.name == str(pdf)
            opened(source)
            assert source.id == f"sha256:{SHA256}"

    def test_a_stream_that_cannot_be_rewound(self):
        """A pipe is read once; a second time there is a clear error, not an empty document."""
        read, write = os.pipe()
        with open(read, "rb") as stream:
            threading.Thread(target=lambda: (os.write(write, PDF), os.close(write))).start()
            source = Source.of(stream)
            assert opened(source)[1] == PDF
            assert "has been read already" in str(failure(source))

    def test_the_id_of_a_stream_is_known_once_it_is_read(self):
        """Before, asking for it is an error that says so; one that is given counts at once."""
        with pytest.raises(UnsupportedSourceError, match="open the source first, or pass source_id="):
            _ = Source.of(io.BytesIO(PDF)).id
        assert Source.of(io.BytesIO(PDF), source_id="mine").id == "mine"

    def test_a_text_stream_is_refused(self, pdf):
        """The error names the mode that a file must be opened in, also where its bytes are no text."""
        pdf.write_bytes(PDF + b"\xe9\xff")
        for stream in (io.StringIO("text"), pdf.open(encoding="latin-1"), pdf.open(encoding="utf-8")):
            with stream:
                assert "open it in binary mode ('rb')" in str(failure(Source.of(stream)))

    def test_an_asynchronous_stream_is_refused(self):
        """Not awaited, it would give a coroutine."""

        class Upload:
            async def read(self, size: int = -1) -> bytes:
                return PDF

        with pytest.raises(UnsupportedSourceError, match="asynchronous"):
            Source.of(Upload())

    def test_what_a_stream_raises_becomes_ours(self):
        """Its own exception is the cause."""

        class Broken(io.RawIOBase):
            def read(self, size: int = -1) -> bytes:
                raise RuntimeError("tape torn")

        error = failure(Source.of(Broken()))
        assert (type(error), error.code, error.message) == (SourceError, "not_readable", "cannot be read: tape torn")
        assert isinstance(error.__cause__, RuntimeError)

    def test_a_closed_stream_is_a_typed_error(self):
        """It gives nothing, and the error says why."""
        stream = io.BytesIO(PDF)
        stream.close()
        assert "closed" in str(failure(Source.of(stream)))

    def test_a_stream_without_end_is_cut(self):
        """The limit counts what has been read."""

        class Endless(io.RawIOBase):
            def read(self, size: int = -1) -> bytes:
                return b"x" * size

        error = failure(Source.of(Endless()), FetchLimits(max_bytes=5_000_000))
        assert isinstance(error, ResourceLimitError)

    def test_a_stream_that_gives_nothing_does_not_keep_the_interpreter(self):
        """After the time limit the script ends, though the read still waits."""
        script = """
            import asyncio, os
            from jina_ocr_loaders.sources import FetchLimits, Source
            async def main():
                async with Source.of(open(os.pipe()[0], "rb")).open(FetchLimits(timeout=0.2)): pass
            try: asyncio.run(main())
            except Exception as error: print(type(error).__name__)
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60
        )
        assert done.stdout == "ResourceLimitError\n"

    @pytest.mark.skipif(sys.platform != "linux", reason="uses a limit on the size of files")
    def test_a_full_disk_is_a_typed_error(self):
        """Where the copy does not fit, the error names the way out; small last pieces count, too."""
        script = """
            import asyncio, resource
            from jina_ocr_loaders.sources import Source
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            async def main(size):
                async with Source.of(b"%PDF-" + bytes(size)).open(): pass
            for size in (2000, 20_000_000):
                try: asyncio.run(main(size))
                except Exception as error: print(type(error).__name__, "set TMPDIR" in str(error))
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60
        )
        assert done.stdout == "ResourceLimitError True\n" * 2, done.stderr

    @pytest.mark.parametrize("wrong", [None, 7, 1.5, ["a.pdf"], {}, ("a.pdf",), object(), Source])
    def test_anything_else_is_refused(self, wrong):
        """The error names what is taken, and what came."""
        with pytest.raises(UnsupportedSourceError, match="a source is a path, a URL, bytes"):
            Source.of(wrong)


class TestFileSystems:
    @pytest.mark.parametrize("path", ["/dir/a.pdf", PurePosixPath("/dir/a.pdf"), "memory://dir/a.pdf"])
    def test_a_path_in_a_file_system(self, memory, path):
        """By fs= and as a pair; the id is the path as given."""
        for source in (Source.of(path, fs=memory), Source.of((memory, path))):
            assert opened(source)[1:] == (PDF, SHA256)
            assert (source.id, source.path, source.name) == (str(path), str(path), str(path))

    def test_an_open_file_of_fsspec(self, memory, pdf):
        """What fsspec.open gives is opened, a local one in place; a file that is open already is a stream."""
        assert opened(Source.of(fsspec.open("memory://dir/a.pdf")))[1] == PDF
        assert opened(Source.of(fsspec.open(str(pdf))))[0].path == pdf
        with fsspec.open("memory://dir/a.pdf") as stream:
            source = Source.of(stream)
            assert opened(source)[1] == PDF
            assert source.id == f"sha256:{SHA256}"

    def test_the_local_file_system_is_read_in_place(self, pdf):
        """No copy is made of what is here already."""
        assert opened(Source.of(str(pdf), fs=LocalFileSystem()))[0].path == pdf
        assert opened(Source.of(pdf.as_uri(), fs=LocalFileSystem()))[0].path == pdf

    @pytest.mark.parametrize("url", ["memory://dir/a.pdf", "memory:///dir/a.pdf", "simplecache::memory://dir/a.pdf"])
    def test_a_url_of_fsspec(self, memory, url):
        """Plain and chained."""
        source = Source.of(url)
        assert opened(source)[1] == PDF
        assert (source.id, source.name, source.path, source.url) == (url, url, None, None)

    def test_a_file_in_an_archive(self, memory):
        """What fsspec can chain, it opens."""
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("in/b.pdf", PDF)
        memory.pipe("/x.zip", archive.getvalue())
        assert opened(Source.of("zip://in/b.pdf::memory://x.zip"))[1] == PDF

    def test_a_local_url_of_fsspec(self, pdf):
        """local:// is a file system like the others."""
        assert opened(Source.of(f"local://{pdf}"))[1] == PDF

    def test_an_http_file_system(self):
        """fs= is the developer's choice: loopback is not refused."""
        with FileServer() as server:
            url = server.add("/a.pdf", PDF)
            source = Source.of(url, fs=fsspec.filesystem("http", skip_instance_cache=True))
            assert opened(source, FetchLimits())[1] == PDF
            assert source.id == url

    def test_the_credentials_of_a_url_stay_out_of_errors(self):
        """What the file system says is shown without them."""
        with FileServer() as server:
            url = server.url("/none.pdf?sig=hunter2").replace("//", "//user:hunter2@")
            for source in (Source.of(url, fs=fsspec.filesystem("http")), Source.of(f"simplecache::{url}")):
                error = failure(source)
                assert isinstance(error, DownloadError | SourceNotFoundError)
                assert "hunter2" not in "".join(traceback.format_exception(error)) + repr(
                    (source, source.id, source.path)
                )

    def test_a_missing_file(self, memory):
        """Not found is told apart from not readable."""
        for source in (Source.of("/none.pdf", fs=memory), Source.of("memory://none.pdf")):
            error = failure(source)
            assert (type(error), error.code) == (SourceNotFoundError, "not_found")

    @pytest.mark.parametrize(
        ("handler", "kind", "said"),
        [
            (status(404), SourceNotFoundError, "no such file"),
            (status(403), DownloadError, "403"),
            (status(500), DownloadError, "500"),
            (hang_up, DownloadError, "disconnected"),
            (None, DownloadError, "Cannot connect"),
        ],
        ids=["404", "403", "500", "hung up", "nobody there"],
    )
    def test_what_the_http_file_system_takes_for_missing(self, handler, kind, said):
        """A file is only said to be missing where the server says so, not where there is no server to ask."""
        with FileServer() as server:
            url = server.add("/a.pdf", handler) if handler else "http://127.0.0.1:9/a.pdf"
            error = failure(Source.of(url, fs=fsspec.filesystem("http", skip_instance_cache=True)))
        assert type(error) is kind
        assert said in str(error)

    def test_the_size_limit_holds(self, memory):
        """What comes is counted."""
        assert isinstance(failure(Source.of("memory://dir/a.pdf"), FetchLimits(max_bytes=100)), ResourceLimitError)

    def test_an_unknown_protocol(self):
        """fsspec's list of what it knows is part of the error."""
        error = failure(Source.of("nope://bucket/a.pdf"))
        assert isinstance(error, UnsupportedSourceError)
        assert "nope" in str(error)

    def test_a_missing_driver(self):
        """A protocol whose package is missing names the extra, and what fsspec says."""
        error = failure(Source.of("gcs://bucket/a.pdf"))
        assert isinstance(error, MissingExtraError)
        assert "jina-ocr-loaders[remote]" in str(error)
        assert "gcsfs" in str(error)

    def test_without_fsspec(self, monkeypatch):
        """The extra is named where the package is not installed at all."""
        monkeypatch.setitem(sys.modules, "fsspec", None)
        error = failure(Source.of("s3://bucket/a.pdf"))
        assert isinstance(error, MissingExtraError)
        assert 'pip install "jina-ocr-loaders[remote]"' in str(error)

    @pytest.mark.parametrize("wrong", [PDF, io.BytesIO(PDF), 7])
    def test_a_file_system_takes_paths(self, memory, wrong):
        """Bytes with fs= are a mistake."""
        with pytest.raises(UnsupportedSourceError, match="with fs= a source is a path"):
            Source.of(wrong, fs=memory)

    def test_what_is_no_file_system(self):
        """A bucket's name as fs= is a mistake."""
        with pytest.raises(UnsupportedSourceError, match="a file system of fsspec, not str"):
            Source.of("a.pdf", fs="s3")


@pytest.fixture(scope="module")
def s3() -> Iterator[fsspec.AbstractFileSystem]:
    """moto's real server on loopback, and a bucket with odd keys in it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "hunter1")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fs = fsspec.filesystem("s3", skip_instance_cache=True)
        fs.mkdir("bucket")
        for key in S3_KEYS:
            fs.pipe(f"bucket/{key}", PDF)
        yield fs
    server.stop()


class TestS3:
    @pytest.mark.parametrize("key", S3_KEYS)
    def test_documents_in_s3(self, s3, key):
        """By URL, by fs= with and without the scheme; keys with any character."""
        for source in (
            Source.of(f"s3://bucket/{key}"),
            Source.of(PurePosixPath(f"bucket/{key}"), fs=s3),
            Source.of((s3, f"s3://bucket/{key}")),
        ):
            assert opened(source)[1:] == (PDF, SHA256)
            assert source.id.endswith(f"bucket/{key}")

    def test_errors_of_s3(self, s3):
        """Missing keys and buckets are not found, and the size limit holds."""
        assert failure(Source.of("s3://bucket/none.pdf")).code == "not_found"
        assert failure(Source.of("s3://none/a.pdf")).code == "not_found"
        assert isinstance(failure(Source.of("s3://bucket/a.pdf"), FetchLimits(max_bytes=99)), ResourceLimitError)


class TestIdentity:
    def test_a_url_is_itself_without_what_signs_it(self):
        """The id and the name of a signed link are those of the document; the whole link is kept for the fetch."""
        link = "https://user:pw@example.com/a.pdf?v=2&X-Amz-Signature=abc&X-Amz-Date=1#page=3"
        source = Source.of(link)
        assert source.id == source.name == "https://example.com/a.pdf?v=2"
        assert source.url == link
        assert repr(source) == "Source('https://example.com/a.pdf?v=2')"
        assert source.id == Source.of(link.replace("abc", "xyz")).id

    @pytest.mark.parametrize(
        "given",
        ["http://\udce9\n/", "https://127.0.0.1/\udce9\n.pdf", "nope://\udce9\n", "memory://\udce9\n", "\udce9\n"],
    )
    def test_what_is_shown_and_kept_can_be_encoded(self, given):
        """Lone surrogates and line breaks in a path or URL reach neither ids, names nor errors."""
        source = Source.of(given)
        error = failure(source)
        for text in (source.name, source.id.replace("\n", ""), str(error), repr(source)):
            assert text.encode()
            assert "\n" not in text

    def test_an_identity_and_a_name_of_ones_own(self, pdf):
        """Both may be given, for a source that is made already, too; one does not change the other."""
        source = Source.of(pdf, source_id="invoice-7")
        assert (source.id, source.name) == ("invoice-7", str(pdf))
        renamed = Source.of(source, name="Invoice\n7")
        assert (renamed.id, renamed.name, renamed.path) == ("invoice-7", "Invoice\\n7", str(pdf))
        assert Source.of(renamed) == renamed
        stream = io.BytesIO(PDF)
        assert len({renamed, Source.of(renamed), Source.of(PDF), Source.of(bytearray(PDF)), Source.of(stream)}) == 3

    def test_sources_pickle(self, pdf, memory):
        """All but streams go to other processes, and come back equal."""
        for given in (pdf, "https://u:p@example.com/a?sig=1", PDF, (memory, "/dir/a.pdf"), "s3://bucket/a.pdf"):
            source = Source.of(given, name="x")
            copy = pickle.loads(pickle.dumps(source))
            assert copy == source
            assert copy.id == source.id

    def test_no_source_shows_its_bytes_or_credentials(self, memory):
        """Neither do the parts that it holds, as debuggers and logs print them."""
        for given in (PDF, "https://u:hunter2@example.com/a?sig=hunter2", "ftp://u:hunter2@example.com/a"):
            source = Source.of(given)
            assert "hunter2" not in repr(source) + repr(vars(source))
            assert "PDF" not in repr(source) + repr(vars(source))


@pytest.fixture(params=["as it is", "closed to other processes"])
def process(request, monkeypatch) -> None:
    """This process, and one of which Linux says so: /proc/self belongs to another user."""
    if "closed" in request.param:
        monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)


@pytest.mark.usefixtures("process")
class TestCleanUp:
    def test_an_error_in_the_callers_block_leaves_nothing(self):
        """The temporary file goes whatever ends the block."""

        async def run() -> None:
            async with Source.of(PDF).open():
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            asyncio.run(run())

    def test_a_cancelled_download_leaves_nothing(self):
        """Cancelling passes through as it is; the connection and the temporary file are gone."""
        with FileServer() as server:

            async def run() -> None:
                loop, started = asyncio.get_running_loop(), asyncio.Event()

                async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    loop.call_soon_threadsafe(started.set)
                    await endless(PDF, pause=0.01)(reader, writer)

                async def read() -> None:
                    async with Source.of(server.add("/a.pdf", handler)).open(LIMITS):
                        raise AssertionError("it has no end")

                task = asyncio.create_task(read())
                await started.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task

            asyncio.run(run())

    def test_others_open_the_copy(self):
        """Another process reads it whole and from its start, as often as it likes."""
        show = "import pathlib, sys; sys.stdout.buffer.write(pathlib.Path(sys.argv[1]).read_bytes())"

        async def run() -> None:
            async with Source.of(io.BytesIO(PDF)).open() as content:
                command = [sys.executable, "-c", show, str(content.path)]
                for _ in range(2):
                    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=60)
                    assert done.stdout == PDF

        asyncio.run(run())

    def test_two_loops_and_two_threads(self, pdf):
        """A source belongs to no event loop: the same one opens in several, one after the other and at once."""
        sources = [Source.of(pdf), Source.of(PDF)]
        for source in sources:
            assert opened(source)[1] == opened(source)[1] == PDF
        results: list[bytes] = []
        threads = [threading.Thread(target=lambda s=s: results.append(opened(s)[1])) for s in sources * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [PDF] * 8

    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers can only be given a file with a name")
    @pytest.mark.parametrize("copied", [False, True], ids=["being copied", "in use"])
    def test_a_killed_process_leaves_nothing(self, tmp_path, copied):
        """Killed while the copy is made, and while it is read."""
        script = """
            import asyncio, sys
            from jina_ocr_loaders.sources import Source
            async def main():
                async with Source.of(sys.stdin.buffer).open() as content:
                    print(content.size, flush=True)
                    await asyncio.sleep(600)
            asyncio.run(main())
        """
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        with process:
            assert process.stdin
            assert process.stdout
            process.stdin.write(PDF + bytes(4 << 20))  # more than a pipe holds: most of it has been taken
            process.stdin.flush()
            if copied:
                process.stdin.close()
                assert int(process.stdout.readline()) == len(PDF) + (4 << 20)
            process.kill()
        assert list(tmp_path.iterdir()) == []

    def test_uvloop(self, pdf):
        """It works the same under another event loop."""
        uvloop = pytest.importorskip("uvloop", reason="uvloop has no build for Windows")

        async def run() -> None:
            for given in (pdf, PDF, io.BytesIO(PDF)):
                async with Source.of(given).open() as content:
                    assert content.path.read_bytes() == PDF

        uvloop.run(run())
