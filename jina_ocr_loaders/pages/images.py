"""Images as pages: every frame one page, upright, on white, eight bits."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from PIL import Image, ImageCms, ImageOps, UnidentifiedImageError

from jina_ocr_loaders.errors import CorruptDocumentError, MissingExtraError, PageRenderError, ResourceLimitError
from jina_ocr_loaders.pages import jpeg2000, tiff, webp
from jina_ocr_loaders.pages.drawing import ENLARGED, SMALL, Drawing, draw_strips, strip_scale, strip_sizes
from jina_ocr_loaders.pages.limits import Limits

FORMATS = ("AVIF", "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "PNG", "TIFF", "WEBP")  # none that runs programs
COARSE = 1 / 4  # an image made smaller than this has lost small print
GAP = 2.0  # an image is reduced by averaging to no less than this many times its final size (Pillow's reducing_gap)
BYTES_PER_FRAME = 20  # of a file at least: the headers alone of a frame of GIF, the shortest
MAX_SIDE = 1_000_000  # pixels; each row takes memory of its own, however short it is
BAND = 1 << 22  # pixels that are converted at a time
COPIED = {"AVIF": 7, "WEBP": 12}  # bytes a pixel that Pillow needs at least where decoders copy; others need 4 at most
OWN_MEMORY = 64 << 20  # bytes that the process has besides: 27 to 44 MiB seen on Python 3.11 to 3.14

Frame = Callable[[], Image.Image]
"""Gives one frame of a file; raises ResourceLimitError before it decodes one that is too large."""


class Images:
    """An open image file.

    Parameters:
        path: of the file.
        kind: "image" or "heif".
        render: the fields of engines.base.Render.
        limits: its ``pixels`` bounds each frame, before it is decoded.

    Raises:
        CorruptDocumentError: it is damaged, or not an image.
        ResourceLimitError: it has too many pixels.
        MissingExtraError: it is HEIC, and pillow-heif is not installed.
    """

    def __init__(self, path: str, kind: str, render: dict[str, Any], limits: Limits) -> None:
        self.metadata: dict[str, str] = {}
        self._render = render
        self._frames, self.close = (_open_heif if kind == "heif" else _open)(path, limits)
        self.page_count = len(self._frames)

    def page(self, number: int) -> Drawing:
        """Draw one frame, 1-based.

        Raises:
            PageRenderError: it has too many pixels.
        """
        try:
            frame = self._frames[number - 1]()
        except ResourceLimitError as error:  # this frame's, not the document's
            raise PageRenderError(error.message, code="too_many_pixels") from None
        scale, warnings = self._scale(*frame.size)
        long_side = max(1, round(max(frame.size) * scale))  # of what is delivered, all strips together
        image = _on_paper(_decoded(frame, scale), long_side)
        drawn = draw_strips(image.size, self._render["long_side"], self._render["quality"], image.crop)
        if not drawn:
            return Drawing(str(number))
        return Drawing(str(number), image.size, [strip for _, strip in drawn], warnings)

    def size(self, number: int) -> list[tuple[int, int]]:
        """The pixels that one frame's strips would have."""
        frame = self._frames[number - 1]()
        scale, _ = self._scale(*frame.size)
        size = max(1, round(frame.width * scale)), max(1, round(frame.height * scale))
        return strip_sizes(size, self._render["long_side"])

    def _scale(self, width: int, height: int) -> tuple[float, list[str]]:
        """How much larger or smaller an image of some pixels is delivered, and the warnings."""
        long_side = self._render["long_side"]
        scale = strip_scale(width, height, long_side, natural=1.0)
        warnings = ["strips"] if scale else []
        if scale is None and max(width, height) <= SMALL:
            scale = min(ENLARGED, long_side) / max(width, height)
            warnings.append("enlarged")
        scale = scale or min(1.0, long_side / max(width, height))
        if scale < COARSE:
            warnings.append("downscaled")
        return scale, warnings


def _decoded(frame: Image.Image, scale: float) -> Image.Image:
    """The frame with its pixels, upright; at a half, a quarter, … where the format can and that is enough."""
    if frame.format in ("JPEG", "MPO"):
        frame.draft(None, (math.ceil(frame.width * scale), math.ceil(frame.height * scale)))
    elif frame.format == "JPEG2000":
        frame = jpeg2000.decoded(frame, scale)
    elif frame.format == "PNG":
        _scale_transparency(frame)
    elif frame.format in ("AVIF", "WEBP") and getattr(frame, "n_frames", 1) == 1:
        _drop_decoder(frame)
    return upright(frame)


def _drop_decoder(image: Any) -> None:
    """Let a decoder that has given its only frame go before Pillow copies that: a quarter less memory."""

    def prepare() -> None:
        image._decoder = None
        del image.load_prepare  # this function, which would keep the image alive
        image.load_prepare()

    image.load_prepare = prepare


def _scale_transparency(image: Any) -> None:
    """Give the transparent value of a PNG in 8 bits: Pillow keeps it in the bits of the file."""
    raw_mode = image.tile[0].args if image.tile else None
    if "transparency" not in image.info or image.info.get("scaled"):  # frames share it
        return
    value = image.info["transparency"]
    if raw_mode in ("L;2", "L;4"):
        image.info.update(transparency=value * (85 if raw_mode == "L;2" else 17), scaled=True)
    elif raw_mode == "RGB;16B":
        image.info.update(transparency=tuple(part >> 8 for part in value), scaled=True)


def upright(image: Image.Image) -> Image.Image:
    """Turn the image as its EXIF data says (Pillow turns TIFF by itself)."""
    image.load()  # some formats have their EXIF data behind the pixels
    try:
        orientation = image.getexif().get(0x0112, 1)  # EXIF 2.3, Orientation
    except Exception:  # damaged EXIF data is no reason to lose the image
        return image
    return ImageOps.exif_transpose(image) if orientation in range(2, 9) else image


def _on_paper(frame: Image.Image, long_side: int) -> Image.Image:
    """The frame as L or RGB on white, its longer side of so many pixels."""
    scale = long_side / max(frame.size)
    factor = max(1, int(1 / scale / GAP))
    image = eight_bits_on_white(frame, factor)
    size = max(1, round(frame.width * scale)), max(1, round(frame.height * scale))
    if image.size == size:
        return image
    box = (0, 0, frame.width / factor, frame.height / factor)  # whole pixels may reach a little further
    return image.resize(size, Image.Resampling.LANCZOS, box)


def eight_bits_on_white(image: Image.Image, factor: int = 1) -> Image.Image:
    """The image as L or RGB, as it looks on white paper, and a whole number of times smaller.

    It is worked through in bands, so that a very large image takes little more memory than its own pixels.
    """
    convert = _conversion(image)
    if convert is None and factor == 1:
        return image
    paper = None
    for top, band in _bands(image, factor):
        part = (convert(band) if convert else band).reduce(factor)
        if paper is None:
            paper = Image.new(part.mode, (part.width, math.ceil(image.height / factor)))
        paper.paste(part, (0, top // factor))
    assert paper is not None
    return paper


def _bands(image: Image.Image, factor: int = 1) -> Iterator[tuple[int, Image.Image]]:
    """The image from top to bottom in bands of some rows, a multiple of the factor, each with its first row."""
    rows = max(1, BAND // (image.width * factor)) * factor
    for top in range(0, image.height, rows):
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


def _conversion(image: Image.Image) -> Callable[[Image.Image], Image.Image] | None:
    """What makes L or RGB on white of any part of the image; None if it is that already."""
    if image.mode.startswith("I") or image.mode == "F" or tiff.as_floats(image):
        return _deep_grey(image)
    if image.format in ("BMP", "TIFF") and image.mode == "RGBA" and image.getextrema()[-1] == (0, 0):
        return lambda part: part.convert("RGB")  # a fourth channel that nobody has filled in (Chrome sees BMPs so)
    if image.has_transparency_data:
        return _on_white
    if image.mode == "LAB":
        return _rgb_of_lab
    if image.mode in ("L", "RGB"):
        return None
    mode = "L" if image.mode == "1" else "RGB"
    return lambda part: part.convert(mode)


def _on_white(image: Image.Image) -> Image.Image:
    image = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    paper = Image.new("RGB", image.size, "white")
    paper.paste(image, mask=image.getchannel("A"))
    return paper


def _rgb_of_lab(image: Image.Image) -> Image.Image:
    profiles = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    converted = ImageCms.profileToProfile(image, *profiles, outputMode="RGB")
    assert converted is not None
    return converted


def _deep_grey(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Rescale deep grey values: white is the largest value of the fewest bits that hold the brightest pixel.

    So 12 bits in 16, as scanners deliver them, come out as bright as they were. Floats up to 1 have white at 1.
    """
    as_floats = tiff.as_floats(image) or (lambda part: part.convert("F"))
    low, high = math.inf, -math.inf
    for _, band in _bands(image):
        values: Any = as_floats(band)
        mean = values.reduce(values.size).getpixel((0, 0))
        if not math.isfinite(mean):  # extrema overlook what is no number
            raise PageRenderError(f"it holds values that are no finite numbers: {tiff.TO_PNG}", code="render_error")
        lowest, highest = values.getextrema()
        low, high = min(low, lowest), max(high, highest)
    black = min(low, 0.0)
    largest = max(math.ceil(high * (1 - 2**-24)), 1)  # the 24 bits of a float may have rounded it up
    white = 1.0 if image.mode == "F" and high <= 1 else float((1 << largest.bit_length()) - 1)
    scale = 255 / (white - black)
    if tiff.white_is_zero(image):
        black, scale = white, -scale
    shift = 0.5 - black * scale

    def grey(part: Image.Image) -> Image.Image:
        return as_floats(part).point(lambda value: value * scale + shift).convert("L")

    transparent = image.info.get("transparency")
    if transparent is None:
        return grey
    is_paper = [255 if value == transparent else 0 for value in range(1 << 16)]

    def grey_on_white(part: Image.Image) -> Image.Image:
        shown = grey(part)
        shown.paste(255, mask=part.convert("I").point(is_paper, "L"))
        return shown

    return grey_on_white


def _open(path: str, limits: Limits) -> tuple[list[Frame], Callable[[], None]]:
    # From a path Pillow maps some TIFFs into memory, and garbles those that it must turn.
    file = open(path, "rb")  # noqa: SIM115
    if canvas := webp.size(file.read(webp.HEAD_BYTES)):
        _check(canvas, _most_pixels("WEBP", limits))
    try:
        image = Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        tiff.refuse(file)
        raise CorruptDocumentError("it is not an image that can be opened: damaged, or of an unknown kind") from None
    except Image.DecompressionBombError:
        raise ResourceLimitError(f"it has more than the {limits.pixels:,} pixels that are read") from None
    most_pixels = _most_pixels(image.format, limits)

    def frame(image: Image.Image, index: int) -> Image.Image:
        try:
            if image.format == "TIFF":
                image = tiff.frame(image, file, index)
            else:
                image.seek(index)
        except Image.DecompressionBombError:
            raise ResourceLimitError(f"it has more than the {most_pixels:,} pixels that are read") from None
        _check(image.size, most_pixels)
        return image

    indices = _frame_indices(image, os.path.getsize(path))
    if len(indices) == 1:
        _check(image.size, most_pixels)
        # anew, so that its pixels go with its page
        return [lambda: frame(Image.open(file, formats=FORMATS), 0)], file.close
    return [lambda index=index: frame(image, index) for index in indices], file.close  # type: ignore[misc]


def _frame_indices(image: Image.Image, size: int) -> list[int]:
    """The frames that are pages: not the previews that cameras and viewers put beside a picture.

    Parameters:
        size: of the file in bytes. Where it cannot hold as many frames as it says, those that are there count.
    """
    if image.format == "MPO":
        return [0]
    count = 0
    try:
        count = tiff.frame_count(image) if image.format == "TIFF" else getattr(image, "n_frames", 1)
        if count > size // BYTES_PER_FRAME:
            return list(range(_last_frame(image, size // BYTES_PER_FRAME) + 1))
        if image.format != "TIFF":
            return list(range(count))
        return [i for i in range(count) if i == 0 or not tiff.is_reduced(image, i)]
    except Exception:  # damaged behind some frame: those before it are good, the next one fails when it is drawn
        return list(range(max(count, image.tell() + 1)))


def _last_frame(image: Image.Image, most: int) -> int:
    """The index of the last frame that can be reached."""
    with suppress(Exception):
        for index in range(1, most):
            image.seek(index)
    return image.tell()


def _open_heif(path: str, limits: Limits) -> tuple[list[Frame], Callable[[], None]]:
    try:
        import pillow_heif
    except ImportError:
        message = 'it is a HEIC image, and reading those needs: pip install "jina-ocr-loaders[heif]"'
        raise MissingExtraError(message) from None
    file = pillow_heif.open_heif(path, convert_hdr_to_8bit=True)

    def frame(index: int) -> Image.Image:
        _check(file[index].size, limits.pixels)
        image: Image.Image = file[index].to_pillow()
        return image

    if len(file) == 1:
        _check(file[0].size, limits.pixels)
    return [lambda index=index: frame(index) for index in range(len(file))], lambda: None  # type: ignore[misc]


def _most_pixels(file_format: str | None, limits: Limits) -> int:
    """The limit on pixels: lower where the kernel would end it after most of the work, for want of memory."""
    if sys.platform == "linux" and file_format in COPIED:
        return min(limits.pixels, max(0, limits.memory - OWN_MEMORY) // COPIED[file_format])
    return limits.pixels


def _check(size: tuple[int, int], most_pixels: int) -> None:
    if size[0] * size[1] > most_pixels:
        raise ResourceLimitError(f"it has {size[0]} x {size[1]} pixels, more than the {most_pixels:,} that are read")
    if max(size) > MAX_SIDE:
        raise ResourceLimitError(f"it has {size[0]} x {size[1]} pixels, and no side of more than {MAX_SIDE:,} is read")
