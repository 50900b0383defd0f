"""TIFFs of every kind of sample: each comes out right, or is refused with words that help."""

from __future__ import annotations

import struct

import pytest

from jina_ocr_loaders.errors import PageRenderError, SourceError, UnsupportedSourceError
from jina_ocr_loaders.pages import Limits, Page, PageImage
from jina_ocr_loaders.pages.images import Images
from tests.data import images, tiffs
from tests.pages.opening import ink, open_bytes, read, run

BOTH, LITTLE = "<>", "<"
READ = {
    # kind of sample: what is read of it, in which byte orders
    "u1": {"grey": BOTH, "inverted": BOTH, "palette": BOTH, "palette of 8 bits": BOTH},
    "u2": {"grey": BOTH, "inverted": BOTH, "palette": BOTH, "palette of 8 bits": BOTH},
    "u4": {"grey": BOTH, "inverted": BOTH, "palette": BOTH, "palette of 8 bits": BOTH},
    "u8": dict.fromkeys(tiffs.COLOURS.keys() - {"grey, unspecified", "grey, premultiplied"}, BOTH),  # Pillow 13 does
    "u12": {"grey": LITTLE},
    "u16": {
        "grey": BOTH,
        "inverted": LITTLE,
        "RGB": BOTH,
        "RGB, unspecified": BOTH,
        "RGB, premultiplied": BOTH,
        "RGB, alpha": BOTH,
        "CMYK": BOTH,
    },
    "u32": {"grey": LITTLE},
    "s8": {"grey": BOTH},
    "s16": {"grey": BOTH},
    "s32": {"grey": BOTH},
    "f32": {"grey": BOTH, "inverted": BOTH},
}
REFUSED = ("it is a TIFF of a kind that is not read", "decoder error")  # the latter by Pillow before 13
NOT_SEPARATE = {"CIELab", *(name for name in tiffs.COLOURS if "grey, " in name or "unspecified" in name)}


@pytest.mark.parametrize("kind", tiffs.KINDS)
def test_every_kind_of_sample(tmp_path, kind):
    """Bits, number format, colours, extra channel, layout, byte order, compression: right, or refused by its name."""
    wrong = []
    for name, order, separate, deflate in variants(kind):
        path = tmp_path / "sample.tif"
        path.write_bytes(tiffs.tiff(kind, name, order=order, separate=separate, deflate=deflate))
        known = order in READ.get(kind, {}).get(name, "") and not (separate and name in NOT_SEPARATE)
        outcome = seen(path, kind, name)
        if outcome != "right" and (known or not outcome.startswith(REFUSED)):
            wrong.append((name, order, separate, deflate, outcome))
    assert not wrong


def variants(kind):
    """Every combination that a TIFF can hold: a palette is of 16 bits at most, halved chroma is never separate."""
    for name in tiffs.COLOURS:
        if not name.startswith("palette") or kind in ("u1", "u2", "u4", "u8", "u16"):
            for order in BOTH:
                for separate in (False,) if "halved" in name else (False, True):
                    for deflate in (False, True):
                        yield name, order, separate, deflate


def seen(path, kind, name):
    """ "right", or the message of the error, or what is wrong."""
    try:
        document = Images(str(path), "image", {"long_side": 1920, "quality": 95}, Limits())
        (strip,) = document.page(1).strips
    except SourceError as error:
        return error.message
    except OSError as error:  # of the worker it comes as a PageRenderError
        return str(error)
    document.close()
    image = PageImage(1, data=strip.jpeg).rgb()
    if image.size != (tiffs.STRIPES * tiffs.STRIPE, tiffs.HEIGHT):
        return f"{image.size}"
    for below in (False, True):
        for stripe in range(tiffs.STRIPES):
            place = int((stripe + 0.5) * tiffs.STRIPE), tiffs.HEIGHT * (3 if below else 1) // 4
            got = [value / 255 for value in image.getpixel(place)]
            wanted = tiffs.colour(kind, name, stripe, below=below)
            if got != pytest.approx(wanted, abs=0.06):
                return f"stripe {stripe}, {below}: {got}, not {wanted}"
    return "right"


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("deflate", [False, True])
def test_values_that_are_no_numbers(tmp_path, value, deflate):
    """One stripe of them, not the first: the page fails, and says why and what to do."""
    error = read(tmp_path, tiffs.tiff("f32", "grey", deflate=deflate, special=value), "image").error
    assert isinstance(error, PageRenderError)
    assert "no finite numbers" in error.message
    assert "convert it to an 8-bit PNG" in error.message


@pytest.mark.parametrize(
    ("kind", "name", "words"),
    [
        ("f64", "grey", "grey, 1 channel of 64-bit floating-point values"),
        ("s16", "RGB", "RGB, 3 channels of 16-bit signed values"),
        ("u4", "CMYK", "CMYK, 4 channels of 4-bit unsigned values"),
    ],
)
def test_what_is_not_read_is_named(tmp_path, kind, name, words):
    """The message says what the file is and how to convert it, in either byte order."""
    for order in BOTH:
        with pytest.raises(UnsupportedSourceError) as error:
            read(tmp_path, tiffs.tiff(kind, name, order=order), "image")
        assert words in error.value.message
        assert "magick FILE" in error.value.message


def test_a_compression_that_is_not_read_is_named(tmp_path):
    """By its number, where Pillow has no name for it: 50002 is JPEG XL."""
    data = tiffs.tiff("u8", "grey", deflate=True).replace(
        struct.pack("<HHIH", 259, 3, 1, 8), struct.pack("<HHIH", 259, 3, 1, 50002)
    )
    with pytest.raises(UnsupportedSourceError, match="8-bit unsigned values, compression 50002"):
        read(tmp_path, data, "image")


def test_big_tiff_that_is_not_read_is_named(tmp_path):
    """Its header is longer."""
    data = images.saved(images.picture(), "TIFF", big_tiff=True)
    entry = struct.pack("<HHQ", 262, 3, 1)
    with pytest.raises(UnsupportedSourceError, match="mask, 3 channels of 8-bit unsigned values"):
        read(tmp_path, data.replace(entry + b"\2", entry + b"\4"), "image")


def test_a_frame_that_is_not_read(tmp_path):
    """The second of three frames: it fails whenever it is asked for, the others are read and keep their numbers."""
    data = images.frames("TIFF")
    entry = struct.pack("<HHI", 262, 3, 1)
    second = data.index(entry, data.index(entry) + 1)
    data = data[: second + 8] + struct.pack("<H", 4) + data[second + 10 :]  # a mask, no picture

    async def work():
        async with await open_bytes(tmp_path, data, "image") as document:
            sizes = await document.sizes([1, 2, 3])
            pages = []
            for number in (1, 2, 2, 3, 2, 1):
                try:
                    pages.append(await document.page(number))
                except PageRenderError as error:
                    pages.append(error)
            return sizes, pages

    sizes, pages = run(work())
    assert [bool(size) for size in sizes] == [True, False, True]
    inks = [round(ink(page.strips[0]), 1) if isinstance(page, Page) else page.message[:54] for page in pages]
    refused = "it is a TIFF of a kind that is not read (mask, 3 chann"
    assert inks == [0.1, refused, refused, 0.3, refused, 0.1]
