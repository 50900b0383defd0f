"""TIFFs: what Pillow reads wrongly without a word is set right here, or refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO, Any

from PIL import Image, ImagePalette, TiffImagePlugin
from PIL.TiffImagePlugin import (
    BITSPERSAMPLE,
    COLORMAP,
    COMPRESSION,
    IMAGEWIDTH,
    PHOTOMETRIC_INTERPRETATION,
    PLANAR_CONFIGURATION,
    SAMPLEFORMAT,
    SAMPLESPERPIXEL,
)

from jina_ocr_loaders.errors import PageRenderError, UnsupportedSourceError

SUBFILE_TYPE, REDUCED = 254, 1  # TIFF 6.0, NewSubfileType: bit 0 marks a smaller copy of another image of the file
WHITE_IS_ZERO, YCBCR, LAB = 0, 6, 8  # TIFF 6.0, PhotometricInterpretation
UNCOMPRESSED = 1  # TIFF 6.0, Compression
SEPARATE = 2  # TIFF 6.0, PlanarConfiguration: the channels one after the other
UNSIGNED, SIGNED = 1, 2  # TIFF 6.0, SampleFormat
FORMATS = {1: "unsigned", 2: "signed", 3: "floating-point"}
COLOURS = {0: "grey", 1: "grey", 2: "RGB", 3: "palette", 4: "mask", 5: "CMYK", 6: "YCbCr", 8: "CIELab"}
TO_PNG = "convert it to an 8-bit PNG first, for example with: magick FILE -depth 8 PNG24:FILE.png"


def frame_count(image: Any) -> int:
    """How many frames an open TIFF has, with those of a kind that Pillow does not know."""
    while True:
        with suppress(SyntaxError):  # such a frame: asked again, Pillow looks behind it
            return int(image.n_frames)


def is_reduced(image: Any, index: int) -> bool:
    """Whether a frame is a smaller copy of another."""
    with suppress(SyntaxError):  # Pillow does not know its kind, but has its tags
        image.seek(index)
    return bool(image.tag_v2.get(SUBFILE_TYPE, 0) & REDUCED)


def frame(image: Any, file: IO[bytes], index: int) -> Any:
    """One frame of an open TIFF, to be decoded rightly.

    Raises:
        PageRenderError: it is of a kind that is not read.
    """
    try:
        if image.tell() == index:
            image.seek(0)  # a frame that Pillow does not know it gives the second time, with the pixels of another
        image.seek(index)
    except SyntaxError:
        raise PageRenderError(_refusal(image.tag_v2), code="render_error") from None
    tags = image.tag_v2
    separate = tags.get(PLANAR_CONFIGURATION) == SEPARATE
    colours = tags.get(PHOTOMETRIC_INTERPRETATION)
    if separate and (image.mode in ("LA", "La", "PA") or colours == LAB):
        raise PageRenderError(_refusal(tags), code="render_error")
    if tags.get(COMPRESSION, UNCOMPRESSED) == UNCOMPRESSED and (separate or colours == YCBCR):
        image = _by_libtiff(file, index)
    if image.tile and image.tile[0].codec_name == "libtiff":
        image.tile = [tile._replace(args=(_native(tile.args[0]), *tile.args[1:])) for tile in image.tile]
    if image.mode in ("P", "PA") and max(tags[COLORMAP]) < 256:  # written with 8 bits instead of 16, as libtiff sees it
        image.palette = ImagePalette.raw("RGB;L", bytes(tags[COLORMAP]))
    return image


def _by_libtiff(file: IO[bytes], index: int) -> Any:
    """The frame without Pillow's own decoder, which takes separate channels for 8 bits, and YCbCr for unreduced."""
    TiffImagePlugin.READ_LIBTIFF = True
    try:
        image = Image.open(file, formats=["TIFF"])
        image.seek(index)
    finally:
        TiffImagePlugin.READ_LIBTIFF = False
    return image


def _native(raw_mode: str) -> str:
    """The raw mode in the byte order that libtiff gives; Pillow sees to it for some only."""
    return re.sub(r"^(I;16|I;32|F;32)B?([SF])$", r"\1N\2", raw_mode)


def as_floats(image: Any) -> Callable[[Image.Image], Image.Image] | None:
    """What makes true values of any part of a frame whose integers Pillow takes for signed, or for unsigned ones."""
    tags = getattr(image, "tag_v2", {})
    raw_mode = {(8, SIGNED): "F;8S", (32, UNSIGNED): "F;32N"}.get((_bits(tags), _format(tags)))
    if raw_mode is None:
        return None
    return lambda part: Image.frombytes("F", part.size, part.tobytes(), "raw", raw_mode)


def white_is_zero(image: Any) -> bool:
    """Whether the scale of greys is an inverted one."""
    return bool(getattr(image, "tag_v2", {}).get(PHOTOMETRIC_INTERPRETATION) == WHITE_IS_ZERO)


def refuse(file: IO[bytes]) -> None:
    """Say what a file is that Pillow does not open, if it is a TIFF all the same.

    Raises:
        UnsupportedSourceError: it is.
    """
    file.seek(0)
    head = file.read(8)
    if head[:4] in TiffImagePlugin.PREFIXES:
        if head[2] == 43:  # BigTIFF
            head += file.read(8)
        tags = TiffImagePlugin.ImageFileDirectory_v2(head)
        with suppress(Exception):  # damaged
            file.seek(tags.next)
            tags.load(file)
        if IMAGEWIDTH in tags and len(tags.get(BITSPERSAMPLE, (1,))) == tags.get(SAMPLESPERPIXEL, 1):
            raise UnsupportedSourceError(_refusal(tags))


def _refusal(tags: Mapping[int, Any]) -> str:
    number = tags.get(PHOTOMETRIC_INTERPRETATION, 0)
    colours = COLOURS.get(number, f"PhotometricInterpretation {number}")
    kind = FORMATS.get(_format(tags), "undefined")
    channels = tags.get(SAMPLESPERPIXEL, 1)
    separate = ", stored separately" if tags.get(PLANAR_CONFIGURATION) == SEPARATE else ""
    what = f"{colours}, {channels} channel{'s'[: channels - 1]} of {_bits(tags)}-bit {kind} values{separate}"
    if (number := tags.get(COMPRESSION, UNCOMPRESSED)) != UNCOMPRESSED:
        what += f", compression {TiffImagePlugin.COMPRESSION_INFO.get(number, number)}"
    return f"it is a TIFF of a kind that is not read ({what}): {TO_PNG}"


def _bits(tags: Mapping[int, Any]) -> Any:
    return tags.get(BITSPERSAMPLE, (1,))[0]


def _format(tags: Mapping[int, Any]) -> Any:
    return tags.get(SAMPLEFORMAT, (UNSIGNED,))[0]
