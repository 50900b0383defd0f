"""URLs as they are shown and kept."""

from __future__ import annotations

import pytest

from jina_ocr_loaders.urls import printable, public_form, redact, scheme_of, storable


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://example.com/a.pdf", "https://example.com/a.pdf"),
        ("https://example.com/a%20b.pdf?v=2&v=1&empty=&flag", "https://example.com/a%20b.pdf?v=2&v=1&empty=&flag"),
        ("https://example.com/a.pdf#page=2", "https://example.com/a.pdf"),
        ("https://user:pass@example.com:8443/a.pdf", "https://example.com:8443/a.pdf"),
        ("https://user:p@ss@example.com/a.pdf", "https://example.com/a.pdf"),
        ("https://ghp_token@example.com/a@b.pdf", "https://example.com/a@b.pdf"),
        ("https://user:pass@[2606:4700::1]/a.pdf", "https://[2606:4700::1]/a.pdf"),
        ("HTTPS://Example.com/A.pdf", "HTTPS://Example.com/A.pdf"),
        # Amazon, both signatures
        (
            "https://b.s3.amazonaws.com/k.pdf?versionId=7&X-Amz-Algorithm=AWS4&X-Amz-Credential=AK%2F2&X-Amz-Date=2"
            "&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=ab",
            "https://b.s3.amazonaws.com/k.pdf?versionId=7",
        ),
        (
            "https://b.s3.amazonaws.com/k.pdf?AWSAccessKeyId=A&Expires=1&Signature=x%3D",
            "https://b.s3.amazonaws.com/k.pdf",
        ),
        # Google, CloudFront
        ("https://storage.googleapis.com/b/k?X-Goog-Signature=ab&X-Goog-Date=1", "https://storage.googleapis.com/b/k"),
        ("https://x.cloudfront.net/k.pdf?Policy=a&Signature=b&Key-Pair-Id=c", "https://x.cloudfront.net/k.pdf"),
        # Azure: the whole of a shared access signature; the same names mean something else without one
        (
            "https://a.blob.core.windows.net/c/k.pdf?snapshot=1&sv=2024&st=1&se=2&sr=b&sp=r&sig=x%2B",
            "https://a.blob.core.windows.net/c/k.pdf?snapshot=1",
        ),
        ("https://example.com/?st=CA&sp=1", "https://example.com/?st=CA&sp=1"),
        ("https://example.com/a?token=abc&page=3&access_token=x&api_key=y", "https://example.com/a?page=3"),
        ("https://example.com/a?key=doc1&tokens=3&policy=5", "https://example.com/a?key=doc1&tokens=3&policy=5"),
        ("https://example.com/a?x%2Damz-signature=1&q=%F0", "https://example.com/a?q=%F0"),
        # fsspec: # and @ are part of keys; some have part of the address before the @
        ("s3://bucket/dir/a#1 @home.pdf", "s3://bucket/dir/a#1 @home.pdf"),
        ("ftp://user:pass@example.com/a.pdf", "ftp://example.com/a.pdf"),
        ("abfs://container@account.dfs.core.windows.net/a.pdf", "abfs://container@account.dfs.core.windows.net/a.pdf"),
        ("github://org:repo@main/a.pdf", "github://org:repo@main/a.pdf"),
        ("zip://in/a.pdf::https://u:p@example.com/x.zip?sig=1", "zip://in/a.pdf::https://example.com/x.zip"),
        ("simplecache::sftp://u:p@host/a.pdf", "simplecache::sftp://host/a.pdf"),
        ("a::b.pdf", "a::b.pdf"),
    ],
)
def test_credentials_signatures_and_fragments_are_left_out(url, public):
    """Everything else stays byte for byte, so that the identity is the same however the link is signed."""
    assert public_form(url) == public
    assert public_form(public) == public


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        ("https://example.com", "https"),
        ("S3://b/k", "s3"),
        ("simplecache::s3://b/k", "simplecache"),
        ("C:\\a.pdf", None),
        ("C:/a.pdf", None),
        ("C://a.pdf", None),
        ("a::b.pdf", None),
        ("/dir/http://x", None),
        ("a b://c", None),
        ("a.pdf", None),
        ("", None),
    ],
)
def test_what_is_a_url(text, scheme):
    """Drive letters, colons in names and URLs further on in a path do not make one."""
    assert scheme_of(text) == scheme


def test_credentials_are_taken_out_of_other_peoples_messages():
    """A message that quotes the URL, or parts of it, decoded or not, is shown without them."""
    url = "https://me:p%40ss-word@example.com/a.pdf?sig=s3cr%2Bet&page=1"
    message = f"cannot open {url}: bad password p@ss-word, signature s3cr+et / s3cr%2Bet on page=1"
    safe = redact(message, url)
    assert safe == "cannot open https://example.com/a.pdf?page=1: bad password ***, signature *** / *** on page=1"


def test_texts_become_printable_and_storable():
    """Lone surrogates and control characters are escaped where people read; surrogates only in ids."""
    name = "caf\udce9\n\x1b[31m 日本.pdf"
    assert printable(name) == "caf\\udce9\\n\\x1b[31m 日本.pdf"
    assert storable(name) == "caf\\udce9\n\x1b[31m 日本.pdf"
    assert storable(name).encode()
