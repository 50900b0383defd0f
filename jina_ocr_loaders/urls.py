"""URLs as they may be shown and kept: without credentials, the same tomorrow as today."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote, unquote_plus

# Parameters that sign a link or carry a credential; compared in lower case.
SIGNATURES = re.compile(
    r"x-amz-.*|x-goog-.*|x-oss-.*|x-cos-.*|sig|se|signature|expires|token"
    r"|(access|auth|id|refresh|security)[-_]?token|(api|access|secret)[-_]?key|client[-_]?secret|password"
)
# Parameters that belong to a signature, and mean something else without one: Azure's SAS ("sig"), then the older
# signatures of S3, Google and CloudFront ("Signature").
BESIDE_SIG = {
    *("sv", "st", "sr", "sp", "spr", "sip", "si", "ss", "srt", "sdd", "ses", "saoid", "suoid", "scid"),
    *("skoid", "sktid", "skt", "ske", "sks", "skv"),
}
BESIDE_SIGNATURE = {"awsaccesskeyid", "googleaccessid", "ossaccesskeyid", "key-pair-id", "policy"}

# File systems of fsspec whose URLs have part of the address before the "@": a container, a repository.
ADDRESS_BEFORE_AT = {"abfs", "abfss", "wasb", "wasbs", "az", "adl", "github", "git"}

URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//|:(?=.*://))", re.DOTALL)


def scheme_of(text: str) -> str | None:
    """The scheme of a URL in lower case (of a chained fsspec URL, the outermost), or None if this is none.

    ``C:\\a.pdf`` and ``a::b.pdf`` are none.
    """
    match = URL.match(text)
    return match[1].lower() if match else None


def public_form(url: str) -> str:
    """The URL as it is shown, and as it names the document.

    Userinfo and the parameters that sign a link are left out, and the fragment of an http(s) URL (elsewhere ``#`` is
    part of a key). Everything else stays as it is, byte for byte.
    """
    return "::".join(_public_link(link) for link in url.split("::"))


def shown(url: str) -> str:
    """The public form of a URL, fit for people to read."""
    return printable(public_form(url))


def redact(text: str, url: str) -> str:
    """Take the credentials of a URL out of a text, such as another library's error message, and make it printable."""
    for link in url.split("::"):
        if scheme_of(link) and public_form(link) != link:
            text = text.replace(link, public_form(link))
            for secret in sorted(_secrets(link), key=len, reverse=True):
                text = text.replace(secret, "***")
    return printable(text)


def printable(text: str) -> str:
    """The text with control characters and lone surrogates escaped, fit for a terminal, a log and UTF-8."""
    return "".join(ascii(c)[1:-1] if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)


def storable(text: str) -> str:
    """The text with lone surrogates escaped: nothing that keeps ids can encode them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _public_link(link: str) -> str:
    scheme = scheme_of(link)
    if scheme is None:
        return link
    head, userinfo, rest, query = _parts(link)
    if userinfo and scheme in ADDRESS_BEFORE_AT:
        rest = f"{userinfo}@{rest}"
    query = "&".join(field for field, secret in _fields(query) if not secret)
    return f"{head}{rest}?{query}" if query else f"{head}{rest}"


def _secrets(link: str) -> set[str]:
    """What must not be shown of a URL: userinfo, password, values of signing parameters; as written and decoded."""
    _, userinfo, _, query = _parts(link)
    values = [field.partition("=")[2] for field, secret in _fields(query) if secret]
    found = {userinfo, userinfo.partition(":")[2], *values}
    return {form for secret in found for form in (secret, unquote(secret), unquote_plus(secret)) if len(form) > 2}


def _parts(link: str) -> tuple[str, str, str, str]:
    """Scheme with its slashes, userinfo, host and path, query; the fragment of an http(s) URL is dropped."""
    head, slashes, rest = link.partition("://")
    if head.lower() in ("http", "https"):
        rest = rest.partition("#")[0]
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    userinfo, _, host = authority.rpartition("@")
    return head + slashes, userinfo, host + slash + path, query


def _fields(query: str) -> list[tuple[str, bool]]:
    """The fields of a query, and of each whether it signs the link."""
    fields = [(unquote_plus(field.partition("=")[0]).lower(), field) for field in query.split("&")]
    names = {name for name, _ in fields}
    beside = (BESIDE_SIG if "sig" in names else set()) | (BESIDE_SIGNATURE if "signature" in names else set())
    return [(field, name in beside or SIGNATURES.fullmatch(name) is not None) for name, field in fields]
