"""Images: formats, modes, orientation, frames, sizes, and files that mean harm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from PIL import Image

from jina_ocr_loaders.engines.base import Render
from jina_ocr_loaders.errors import CorruptDocumentError, MissingExtraError, PageRenderError, ResourceLimitError
from jina_ocr_loaders.pages import Limits, Page, client
from tests.data import images, pngs
from tests.pages.opening import ink, open_bytes, quarters, read, run

FORMATS = ["PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP", "JPEG2000", "AVIF"]
MODES = ["1", "L", "LA", "P", "P with transparency", "RGB", "RGBA", "CMYK", "CMYK JPEG", "YCbCr", "LAB"]
DEEP = ["I;16", "I;16B", "I", "F"]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read(tmp_path, kind):
    """The picture comes out as it went in."""
    assert quarters(read(tmp_path, images.of_kind(kind), "image").image) == "X---"


@pytest.mark.parametrize("mode", [*MODES, *DEEP])
def test_every_mode_has_the_right_brightness(tmp_path, mode):
    """Black stays black and white stays white: nothing clipped, nothing inverted."""
    assert quarters(read(tmp_path, images.of_mode(mode), "image").image) == "X---"


@pytest.mark.parametrize("make", [images.twelve_bits, images.white_is_zero])
def test_deep_grey_is_rescaled(tmp_path, make):
    """12 bits in 16 come out bright, and an inverted scale the right way round."""
    assert quarters(read(tmp_path, make(), "image").image) == "X---"


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "TIFF", "GIF", "AVIF", "JPEG2000"])
def test_transparency_is_white(tmp_path, kind):
    """What shows through is paper, though the hidden pixels are black."""
    assert quarters(read(tmp_path, images.transparent(kind), "image").image) == "X---"


@pytest.mark.parametrize("make", [images.bmp_without_alpha, images.tiff_without_alpha])
def test_a_fourth_channel_that_is_not_filled_in(tmp_path, make):
    """Zeros where alpha might be: the picture, not a blank page."""
    assert quarters(read(tmp_path, make(), "image").image) == "X---"


@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize(
    ("bits", "colour_type"),
    [(2, pngs.GREY), (4, pngs.GREY), (8, pngs.GREY), (16, pngs.GREY), (8, pngs.RGB), (16, pngs.RGB)],
)
def test_a_transparent_value_of_every_depth(tmp_path, bits, colour_type, frames):
    """One value of a PNG stands for transparent: it is white, every other one as it is, whenever it is asked for."""
    stripes = pngs.stripes(bits, colour_type)
    top = (1 << bits) - 1

    async def work(transparent):
        data = pngs.png(bits, colour_type, transparent, frames)
        async with await open_bytes(tmp_path, data, "image") as document:
            assert document.page_count == frames
            return [await document.page(number) for number in (1, frames, 1)]

    for transparent in (stripes[0], stripes[6], stripes[-1]):
        for page in run(work(transparent)):
            pixels = page.strips[0].rgb()
            for number, stripe in enumerate(stripes):
                got = pixels.getpixel((int((number + 0.5) * pngs.STRIPE), pngs.HEIGHT // 2))
                seen = (top,) if stripe == transparent else stripe
                assert got == pytest.approx([255 * value / top for value in (seen * 3)[:3]], abs=14), (
                    transparent,
                    number,
                )


@pytest.mark.parametrize("kind", ["JPEG", "TIFF", "WEBP", "PNG", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_set_upright(tmp_path, kind, orientation):
    """All eight EXIF and TIFF orientations, the mirrored ones too."""
    image = read(tmp_path, images.turned(orientation, kind), "image").image
    assert image.width > image.height
    assert quarters(image) == "X---"


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("orientation", range(2, 9))
def test_every_orientation_of_every_mode_is_set_upright(tmp_path, mode, orientation):
    """TIFFs without compression: Pillow maps those of some modes into memory, and turns them wrongly then."""
    image = read(tmp_path, images.turned(orientation, "TIFF", mode), "image").image
    assert image.width > image.height
    assert quarters(image) == "X---"


@pytest.mark.parametrize("kind", ["TIFF", "GIF", "WEBP", "PNG", "AVIF"])
def test_every_frame_is_a_page(tmp_path, kind):
    """Three frames: three pages, in order, each with its own picture."""
    outcome = read(tmp_path, images.frames(kind), "image")
    assert [page.number for page in outcome.pages] == [1, 2, 3]
    assert [round(ink(page.strips[0]), 1) for page in outcome.pages] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("count", [10**6, 2**31 - 1])
def test_a_false_frame_count(tmp_path, count):
    """A PNG of some hundred bytes that says it has millions of frames: those that are there, no failed pages."""
    assert [page.number for page in read(tmp_path, images.false_frame_count(count), "image").pages] == [1, 2]


@pytest.mark.parametrize("make", [images.with_thumbnail, images.camera_pair])
def test_previews_are_no_pages(tmp_path, make):
    """A TIFF's reduced copy and a phone's preview beside the picture are left out."""
    assert quarters(read(tmp_path, make(), "image").image) == "X---"


def test_small_images_are_enlarged(tmp_path):
    """With both sides at or below 640 pixels the model would lose its tiles: 1,280, and the page says so."""
    for size in ((30, 20), (640, 400)):
        page = read(tmp_path, images.saved(images.picture(size), "PNG"), "image").page
        assert (page.strips[0].width, page.warnings) == (1280, ("enlarged",))
    page = read(tmp_path, images.saved(images.picture((641, 400)), "PNG"), "image").page
    assert (page.strips[0].width, page.warnings) == (641, ())


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_large_images_are_made_smaller(tmp_path, kind):
    """4,000 x 3,000 comes as 1,920 x 1,440; from a quarter of its size on it says that it is downscaled."""
    page = read(tmp_path, images.saved(images.picture((4000, 3000)), kind), "image").page
    assert (page.strips[0].width, page.strips[0].height, page.warnings) == (1920, 1440, ())
    assert quarters(page.strips[0]) == "X---"
    page = read(tmp_path, images.saved(images.picture((8000, 3000)), kind), "image").page
    assert (page.strips[0].width, page.warnings) == (1920, ("downscaled",))


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is held by Linux only")
@pytest.mark.parametrize("kind", ["JPEG", "MPO"])
def test_large_jpegs_are_decoded_small(tmp_path, kind):
    """48 million pixels, which take 192 MB: read within 150 MiB, because a quarter of them is never made."""
    preview = {"save_all": True, "append_images": [images.picture((32, 20))]} if kind == "MPO" else {}
    data = images.saved(images.picture((8000, 6000)), kind, **preview)
    image = read(tmp_path, data, "image", limits=Limits(memory=150 << 20)).image
    assert (image.width, quarters(image)) == (1920, "X---")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is held by Linux only")
@pytest.mark.parametrize(("mode", "mebibytes"), [("RGBA", 230), ("P", 150), ("I;16", 180)])
def test_large_images_are_converted_in_bands(tmp_path, mode, mebibytes):
    """24 million pixels in a mode that needs converting: no second image of that size is made."""
    data = images.saved(images.in_mode(mode, (8000, 3000)), "PNG", compress_level=1)
    image = read(tmp_path, data, "image", limits=Limits(memory=mebibytes << 20)).image
    assert (image.width, image.height, quarters(image)) == (1920, 720, "X---")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is held by Linux only")
def test_large_jpeg_2000_images_are_decoded_small(tmp_path):
    """24 million pixels, which OpenJPEG needs 384 MB for: read within 150 MiB."""
    data = images.saved(images.picture((8000, 3000)), "JPEG2000")
    image = read(tmp_path, data, "image", limits=Limits(memory=150 << 20)).image
    assert (image.width, quarters(image)) == (1920, "X---")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is held by Linux only")
@pytest.mark.parametrize("lossless", [False, True])
def test_large_webps_are_not_held_twice(tmp_path, lossless):
    """24 million pixels, 288 MB in libwebp: read within 340 MiB, again and again, as Pillow's 96 MB come after."""
    data = images.saved(images.picture((8000, 3000)), "WEBP", lossless=lossless, quality=0, method=0)
    client.end_idle()  # those that have kept memory of other documents
    for _ in range(3):
        image = read(tmp_path, data, "image", limits=Limits(memory=340 << 20)).image
        assert (image.width, quarters(image)) == (1920, "X---")


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is held by Linux only")
@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"exif": b"Exif\0\0"}], ids=["VP8", "VP8L", "VP8X"])
def test_webps_that_the_memory_cannot_hold_are_refused_unread(tmp_path, options):
    """12 bytes a pixel, 275 MiB, are needed beside the process's own: refused by the header, not called damaged."""
    data = images.saved(images.picture((8000, 3001)), "WEBP", quality=0, method=0, **options)
    client.end_idle()  # those that have seen larger images
    for memory in (250, 290):
        with pytest.raises(ResourceLimitError, match="8000 x 3001 pixels"):
            read(tmp_path, data, "image", limits=Limits(memory=memory << 20))
    (worker,) = client._idle
    status = Path(f"/proc/{worker.pid}/status").read_text()
    assert int(status.split("VmHWM:")[1].split()[0]) < 100_000  # kB, at its peak


@pytest.mark.parametrize("size", [(800, 401), (801, 403), (803, 399), (805, 397), (1604, 405)])
@pytest.mark.parametrize("levels", [1, 2, 6])
def test_jpeg_2000_images_of_every_size_and_depth(tmp_path, size, levels):
    """Sizes that Pillow halves otherwise than OpenJPEG, files with few levels or none: read all the same."""
    data = images.saved(images.picture(size), "JPEG2000", num_resolutions=levels)
    image = read(tmp_path, data, "image", render=Render(long_side=160)).image
    assert (image.width, image.height) == (160, pytest.approx(160 * size[1] / size[0], abs=1))
    assert quarters(image) == "X---"


@pytest.mark.parametrize("kind", ["JPEG", "JPEG2000", "PNG", "TIFF", "MPO"])
def test_a_page_comes_the_same_again(tmp_path, kind):
    """Asked for twice, a page has the same pixels and warnings, however it was decoded the first time."""

    async def work():
        async with await open_bytes(tmp_path, images.saved(images.picture((8000, 3000)), kind), "image") as document:
            return [await document.page(1) for _ in range(2)]

    first, second = run(work())
    assert first == second
    assert first.warnings == ("downscaled",)


def test_long_images_come_in_strips(tmp_path):
    """A screenshot of 400 x 6,000 keeps its pixels, in strips that overlap or meet between two lines."""
    page = read(tmp_path, images.tall(400, 6000), "image").page
    assert page.warnings == ("strips",)
    assert {strip.width for strip in page.strips} == {400}
    assert all(strip.height <= 1920 for strip in page.strips)
    assert 6000 <= sum(strip.height for strip in page.strips) < 6000 * 1.2


def test_sizes_are_known_without_decoding(tmp_path):
    """Enlarged, made smaller, as they are: what is announced for estimates is what comes, for each frame."""

    async def work(data):
        async with await open_bytes(tmp_path, data, "image") as document:
            numbers = range(1, document.page_count + 1)
            sizes = await document.sizes(numbers)
            pages = [await document.page(number) for number in numbers]
        return sizes, [tuple((strip.width, strip.height) for strip in page.strips) for page in pages]

    small, large = images.frames("TIFF"), images.saved(images.picture((4000, 3000)), "JPEG")
    for data in (small, large, images.saved(images.picture((1000, 800)), "PNG")):
        announced, drawn = run(work(data))
        assert announced == drawn


def test_blank_strips_are_left_out(tmp_path):
    """A long image with something at its top and its bottom only: the strips between have nothing to read."""
    image = Image.new("L", (400, 20_000), 255)
    image.paste(0, (50, 50, 350, 200))
    image.paste(0, (50, 19_800, 350, 19_950))
    page = read(tmp_path, images.saved(image, "PNG"), "image").page
    assert len(page.strips) == 2
    assert page.warnings == ("strips",)
    assert (page.width, page.height) == (400, 20_000)


def test_a_blank_image_is_blank(tmp_path):
    """One colour all over: nothing to read."""
    for colour in ("white", "black", "#ffeedd"):
        page = read(tmp_path, images.saved(Image.new("RGB", (800, 600), colour), "PNG"), "image").page
        assert page.blank
        assert (page.width, page.height) == (0, 0)


@pytest.mark.parametrize("kind", FORMATS)
def test_truncated_images_are_errors(tmp_path, kind):
    """Half a file never comes as a page: the document is refused or its page fails, and the message says what it is."""
    try:
        error = read(tmp_path, images.truncated(kind), "image").error
    except CorruptDocumentError as refused:
        error = refused
    else:
        assert isinstance(error, PageRenderError)
    assert str(error).startswith("sample")
    assert str(tmp_path) not in str(error)


def test_the_good_frames_of_a_damaged_file_are_read(tmp_path):
    """The third of three frames is cut off: two pages, and one that failed."""
    first, second, third = read(tmp_path, images.truncated_frames(), "image").pages
    assert isinstance(first, Page)
    assert isinstance(second, Page)
    assert isinstance(third, PageRenderError)


def test_damaged_exif_does_not_cost_the_picture(tmp_path):
    """Noise where the orientation should be: the picture as it is."""
    assert quarters(read(tmp_path, images.bad_exif(), "image").image) == "X---"


def test_hostile_tiff(tmp_path):
    """A TIFF without dimensions, whose data lie outside of it, is refused."""
    with pytest.raises(CorruptDocumentError):
        read(tmp_path, images.hostile_tiff(), "image")


@pytest.mark.parametrize("size", [(60_000, 60_000), (1, 100_000_000)])
def test_a_decompression_bomb_is_refused_unread(tmp_path, size):
    """Billions of pixels, or of rows, in a few bytes: refused, and the process that looked at it stayed small."""
    client.end_idle()  # those that have seen larger images
    with pytest.raises(ResourceLimitError, match="pixels"):
        read(tmp_path, images.png_bomb(*size), "image")
    if sys.platform == "linux":
        (worker,) = client._idle
        status = Path(f"/proc/{worker.pid}/status").read_text()
        assert int(status.split("VmHWM:")[1].split()[0]) < 200_000  # kB, at its peak


def test_a_bomb_behind_a_good_frame(tmp_path):
    """The first frame is read, the second is a failed page."""
    good, bomb = read(tmp_path, images.gif_bomb_behind(), "image").pages
    assert quarters(good.strips[0]) == "X---"
    assert isinstance(bomb, PageRenderError)
    assert bomb.code == "too_many_pixels"


def test_the_pixel_limit_is_ours(tmp_path):
    """A lower limit than Pillow's refuses what Pillow would take; nothing of Pillow is changed in this process."""
    before = Image.MAX_IMAGE_PIXELS
    with pytest.raises(ResourceLimitError, match="320 x 200"):
        read(tmp_path, images.of_kind("PNG"), "image", limits=Limits(pixels=1000))
    assert before == Image.MAX_IMAGE_PIXELS


def test_what_is_no_image(tmp_path):
    """Text, and formats that would run programs (EPS), are refused without Pillow's message and path."""
    for data in (b"hello", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n"):
        with pytest.raises(CorruptDocumentError, match="not an image"):
            read(tmp_path, data, "image")


def test_heic(tmp_path):
    """HEIC is read through the extra."""
    pytest.importorskip("pillow_heif", reason="the heif extra is not installed")
    assert quarters(read(tmp_path, images.heic(), "heif").image) == "X---"
    assert quarters(read(tmp_path, images.heic(orientation=6), "heif").image) == "X---"
    with pytest.raises(CorruptDocumentError):
        read(tmp_path, images.heic()[:200], "heif")


def test_heic_without_the_extra(tmp_path, monkeypatch):
    """Without it the error names it, and is an ImportError too, which SimpleDirectoryReader lets through."""
    (tmp_path / "pillow_heif.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(tmp_path)
    client.end_idle()
    with pytest.raises(MissingExtraError, match=r"jina-ocr-loaders\[heif\]") as error:
        read(tmp_path, b"\x00\x00\x00\x18ftypheic", "heif")
    assert isinstance(error.value, ImportError)
    client.end_idle()
