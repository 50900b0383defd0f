"""What a model may open, and what it is told when it may not."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from jina_ocr_loaders.access import AccessPolicy
from jina_ocr_loaders.errors import ForbiddenURLError, JinaOCRError, SourceError
from jina_ocr_loaders.sources import Source

PDF = b"%PDF-1.7\n"
SECRET = PDF + b"secret"


@pytest.fixture
def root(tmp_path):
    """A folder with a document, beside a secret one."""
    root = tmp_path / "root"
    (root / "dir").mkdir(parents=True)
    (root / "a.pdf").write_bytes(PDF)
    (root / "dir" / "b.pdf").write_bytes(PDF)
    (tmp_path / "root-secret").mkdir()
    (tmp_path / "root-secret" / "s.pdf").write_bytes(SECRET)
    (tmp_path / "s.pdf").write_bytes(SECRET)
    return root


def opened(source: Source) -> bytes:
    async def run() -> bytes:
        async with source.open() as content:
            return content.path.read_bytes()

    return asyncio.run(run())


def refused(policy: AccessPolicy, source: str) -> str:
    with pytest.raises(ForbiddenURLError) as caught:
        policy.check(source)
    assert caught.value.message.startswith("not allowed")
    return caught.value.message


@pytest.mark.parametrize("kind", [str, Path, lambda root: [root], lambda root: {str(root)}])
def test_one_folder_or_several(root, kind):
    """A path alone is one folder: not each letter of it, of which "/" would be the whole disk."""
    policy = AccessPolicy(allowed_roots=kind(root))
    assert opened(policy.check("a.pdf")) == PDF
    for outside in (root.parent / "s.pdf", "/etc/hostname"):
        refused(policy, str(outside))


def test_one_protocol_or_several():
    """A name alone is one protocol, of which no part is another."""
    assert AccessPolicy(fsspec_protocols="gcs").check("gcs://bucket/a.pdf")
    refused(AccessPolicy(fsspec_protocols="gcs"), "gc://bucket/a.pdf")


@pytest.mark.parametrize(
    "url",
    ["https://example.com/a.pdf", "http://93.184.216.34/", "HTTPS://[2606:4700::1]:8443/a.pdf?sig=x", "http://1.1/"],
)
def test_public_addresses_may_be_opened(url):
    """http(s) is all that may be opened where the developer says nothing; names are checked when they are fetched."""
    assert AccessPolicy().check(url).url == url


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1/", "http://2130706433/", "http://0x7f.1/", "http://[::1]/", "http://[::ffff:10.0.0.1]/"),
        *("http://169.254.169.254/latest/meta-data/", "http://user:pw@10.0.0.1/", "http://[64:ff9b::7f00:1]/a"),
        *("http://[::1/", "http://127.0.0.1:x/", "https://"),
    ],
)
def test_private_addresses_are_refused_at_once(url):
    """Those that the URL spells out need no look-up; what is no URL is refused, too."""
    refused(AccessPolicy(), url)


def test_a_name_that_leads_to_a_private_address_is_refused_when_fetched():
    """The policy looks no names up: the download does, and refuses in the same words."""
    source = AccessPolicy().check("http://localhost:9/a.pdf")
    with pytest.raises(ForbiddenURLError, match="not allowed: localhost leads to a loopback address"):
        opened(source)


def test_private_addresses_can_be_allowed():
    """The developer's choice."""
    assert AccessPolicy(allow_private_networks=True).check("http://127.0.0.1/a.pdf").url


@pytest.mark.parametrize(
    "url",
    [
        *(
            "s3://bucket/a.pdf",
            "memory://a",
            "ftp://example.com/a",
            "github://o:r@main/a.pdf",
            "data://x",
            "local:///etc/passwd",
        ),
        *("simplecache::http://169.254.169.254/", "zip://a.pdf::https://example.com/x.zip", "local://x::s3://b/k"),
        *("simplecache::file:///etc/passwd", "FILECACHE::S3://bucket/a"),
    ],
)
def test_urls_of_fsspec_are_off(url):
    """They would use the developer's credentials; chained ones can reach anything."""
    refused(AccessPolicy(allowed_roots=["/"]), url)


def test_a_protocol_of_fsspec_can_be_allowed_but_never_chained_nor_local():
    """Allowing s3 allows no more than s3."""
    policy = AccessPolicy(fsspec_protocols={"s3", "local", "simplecache", "zip"})
    assert policy.check("s3://bucket/a.pdf").id == "s3://bucket/a.pdf"
    for url in ("local:///etc/passwd", "simplecache::s3://bucket/a.pdf", "zip://a::s3://bucket/x.zip", "memory://a"):
        refused(policy, url)


class TestFiles:
    def test_no_file_may_be_opened_by_default(self, root, monkeypatch):
        """Neither by path nor by URL, whether it exists or not."""
        monkeypatch.chdir(root)
        for path in (
            "a.pdf",
            str(root / "a.pdf"),
            (root / "a.pdf").as_uri(),
            "none.pdf",
            "~/a.pdf",
            "file:/etc/passwd",
        ):
            assert "no local files" in refused(AccessPolicy(), path)

    def test_files_under_a_root_may(self, root, monkeypatch):
        """Absolute, relative to the root, as URL; ids and names are as they were asked for."""
        monkeypatch.chdir(root.parent)
        policy = AccessPolicy(allowed_roots=["root"])
        for path in ("a.pdf", "dir/b.pdf", "dir/../a.pdf", str(root / "a.pdf"), (root / "a.pdf").as_uri()):
            source = policy.check(path)
            assert opened(source) == PDF
            assert source.id == source.name == (path if "://" not in path else str(root / "a.pdf"))

    def test_the_first_root_that_has_the_file_counts(self, root):
        """A relative path is looked for in each."""
        policy = AccessPolicy(allowed_roots=[root, root / "dir"])
        assert opened(policy.check("b.pdf")) == PDF

    def test_a_missing_file_under_a_root_is_missing(self, root):
        """It is no secret there."""
        with pytest.raises(SourceError) as caught:
            opened(AccessPolicy(allowed_roots=[root]).check("none.pdf"))
        assert caught.value.code == "not_found"

    def test_nothing_outside_may_be_opened(self, root):
        """Neither above, beside, nor with the same beginning; existing and missing files look the same."""
        policy = AccessPolicy(allowed_roots=[root])
        outside = root.parent / "s.pdf"
        paths = ["../s.pdf", "dir/../../s.pdf", str(outside), outside.as_uri(), "../none.pdf", f"{root}-secret/s.pdf"]
        paths += [f"file://{root}/%2e%2e/s.pdf", f"{root}/./../s.pdf", "/etc/passwd", "/", ".."]
        assert len({refused(policy, path) for path in paths}) == 1

    @pytest.mark.skipif(sys.platform == "win32", reason="links need privileges on Windows")
    def test_links_are_followed_before_the_check(self, root):
        """A link out of the root is refused, also one to a folder; one within it is opened, at its target."""
        (root / "out.pdf").symlink_to(root.parent / "s.pdf")
        (root / "out").symlink_to(root.parent)
        (root / "in.pdf").symlink_to(root / "a.pdf")
        (root / "circle").symlink_to(root / "circle")
        policy = AccessPolicy(allowed_roots=[root])
        for path in ("out.pdf", "out/s.pdf", str(root / "out.pdf")):
            refused(policy, path)
        source = policy.check("in.pdf")
        (root / "in.pdf").unlink()
        (root / "in.pdf").symlink_to(root.parent / "s.pdf")
        assert opened(source) == PDF
        with pytest.raises(JinaOCRError):
            opened(policy.check("circle"))

    @pytest.mark.skipif(sys.platform == "win32", reason="links need privileges on Windows")
    @pytest.mark.parametrize("swapped", ["dir/b.pdf", "dir"])
    def test_a_link_that_takes_the_place_of_what_was_checked_is_not_followed(self, root, swapped):
        """Whoever can write in the root gains nothing by swapping a file, or a folder on the way, before it opens."""
        (root.parent / "b.pdf").write_bytes(SECRET)
        source = AccessPolicy(allowed_roots=[root]).check("dir/b.pdf")
        (root / swapped).rename(root / "aside")
        (root / swapped).symlink_to(root.parent / "b.pdf" if swapped == "dir/b.pdf" else root.parent)
        with pytest.raises(SourceError, match="cannot be read"):
            opened(source)

    def test_a_folder_is_no_document(self, root):
        """Neither the root itself nor one in it."""
        for path in (".", "dir", str(root)):
            with pytest.raises(SourceError, match="cannot be read"):
                opened(AccessPolicy(allowed_roots=[root]).check(path))

    @pytest.mark.skipif(sys.platform == "win32", reason="links need privileges on Windows")
    def test_a_root_may_be_a_link(self, root):
        """It is the folder that it leads to."""
        (root.parent / "link").symlink_to(root)
        policy = AccessPolicy(allowed_roots=[root.parent / "link"])
        assert opened(policy.check("a.pdf")) == PDF
        assert opened(policy.check(str(root / "a.pdf"))) == PDF

    def test_what_is_endless_is_refused_in_a_few_words(self, root):
        """The model that gave it does not get it back."""
        for source in ("x" * 100_000, "https://example.com/" + "x" * 100_000):
            assert len(refused(AccessPolicy(allowed_roots=[root]), source)) < 100

    def test_impossible_paths_are_refused(self, root):
        """Null characters and names that are too long are no way out, and raise nothing foreign."""
        policy = AccessPolicy(allowed_roots=[root])
        refused(policy, "a\0b")
        for path in ("x" * 5000, "../" * 2000 + "etc/passwd", "http:a.pdf", "C:\\a.pdf", "javascript:alert(1)", "a://"):
            with pytest.raises(JinaOCRError):
                opened(policy.check(path))

    @pytest.mark.skipif(os.name != "nt", reason="only Windows has paths to other machines")
    def test_other_machines_are_not_contacted(self, root):
        """Resolving \\\\host\\share would log in to it."""
        refused(AccessPolicy(allowed_roots=[root]), r"\\host.invalid\share\a.pdf")


def test_what_is_no_path_is_a_typed_error():
    """An empty one, a file of another machine."""
    for source in ("", "file://server.example/a.pdf"):
        with pytest.raises(SourceError):
            AccessPolicy(allowed_roots=["/"]).check(source)
