"""Small images, one function for each kind of fault or feature; each returns the bytes of a file.

The picture is the same in all of them: white, with a black block that fills its top left quarter.
"""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

from PIL import Image, ImageCms, ImageOps

SIZE = (320, 200)


def picture(size: tuple[int, int] = SIZE, mode: str = "RGB") -> Image.Image:
    """The picture, in a mode that Pillow converts to."""
    image = Image.new("L", size, 255)
    image.paste(0, (0, 0, size[0] // 2, size[1] // 2))
    return image.convert(mode)


def in_mode(mode: str, size: tuple[int, int] = SIZE) -> Image.Image:
    """The picture, in any mode that Pillow stores: in I;16 white is 65,535."""
    if mode == "I;16":
        return picture(size, "I").point(lambda value: value * 257).convert(mode)
    return picture(size, mode)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The file of an image."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def of_kind(kind: str) -> bytes:
    """The picture in a file format, by Pillow's name of it."""
    return saved(picture(), kind)


def of_mode(mode: str) -> bytes:
    """The picture in a file whose pixels have this mode."""
    grey = picture(mode="L")
    match mode:
        case "1" | "L" | "RGB" | "CMYK" | "P" | "LA" | "RGBA" | "YCbCr":
            if mode == "YCbCr":
                return saved(picture(), "JPEG", quality=95)
            return saved(grey.convert("RGB").convert(mode), "TIFF")
        case "CMYK JPEG":  # Adobe's inverted kind
            return saved(picture(mode="CMYK"), "JPEG", quality=95)
        case "P with transparency":
            palette = picture().convert("P")
            return saved(palette, "PNG", transparency=palette.getpixel((0, SIZE[1] - 1)))
        case "LAB":
            profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
            lab = ImageCms.profileToProfile(picture(), *profiles, outputMode="LAB")
            assert lab is not None
            return saved(lab, "TIFF")
        case "I;16":
            return saved(in_mode("I;16"), "TIFF")
        case "I;16B":
            return saved(grey.convert("I").point(lambda value: value * 257).convert("I;16B"), "TIFF")
        case "I":
            return saved(grey.convert("I").point(lambda value: value * 257), "TIFF")
        case "F":
            return saved(grey.convert("F").point(lambda value: value * (1 / 255) + 0), "TIFF")
    raise ValueError(mode)


def twelve_bits() -> bytes:
    """12-bit grey in 16-bit pixels: white is 4,095."""
    return saved(picture(mode="I").point(lambda value: value * 16 + 15).convert("I;16"), "TIFF")


def white_is_zero() -> bytes:
    """16-bit grey in which 0 is white (PhotometricInterpretation 0)."""
    data = saved(ImageOps.invert(picture(mode="L")).convert("I").point(lambda v: v * 257).convert("I;16"), "TIFF")
    return data.replace(struct.pack("<HHII", 262, 3, 1, 1), struct.pack("<HHII", 262, 3, 1, 0))


def transparent(kind: str = "PNG") -> bytes:
    """Black everywhere, transparent but for the block: black on white only when it is put on white."""
    image = Image.new("RGBA", SIZE, (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, SIZE[0] // 2, SIZE[1] // 2))
    return saved(image, kind)


def bmp_without_alpha() -> bytes:
    """A BMP whose header names an alpha channel, in which all is 0."""
    image = picture().transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    pixels = Image.merge("RGBA", (*image.split(), Image.new("L", SIZE))).tobytes("raw", "BGRA")
    masks = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    header = struct.pack("<IiiHHIIiiII", 124, *SIZE, 1, 32, 3, len(pixels), 0, 0, 0, 0) + masks + bytes(68)
    return b"BM" + struct.pack("<IHHI", 138 + len(pixels), 0, 0, 138) + header + pixels


def tiff_without_alpha() -> bytes:
    """A TIFF of RGB with a fourth channel of 0, of which it does not say what it is."""
    data = saved(Image.merge("RGBA", (*picture().split(), Image.new("L", SIZE))), "TIFF")
    extra = struct.pack("<HHIHH", 338, 3, 1, 2, 0)  # ExtraSamples: unassociated alpha
    assert extra in data
    return data.replace(extra, struct.pack("<HHIHH", 340, 3, 1, 2, 0))


def turned(orientation: int, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    """The picture stored so that only its EXIF or TIFF orientation (1 to 8) sets it right."""
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    image = in_mode(mode)
    if orientation in undo:
        image = image.transpose(undo[orientation])
    if kind == "TIFF":
        return saved(image, kind, tiffinfo={274: orientation})
    exif = Image.Exif()
    exif[274] = orientation
    return saved(image, kind, exif=exif)


def frames(kind: str, count: int = 3) -> bytes:
    """Several frames: the block is 1, 2, 3… tenths of the width."""
    images = []
    for number in range(1, count + 1):
        image = Image.new("RGB", SIZE, "white")
        image.paste("black", (0, 0, SIZE[0] * number // 10, SIZE[1]))
        images.append(image)
    options = {"lossless": True} if kind == "WEBP" else {}
    return saved(images[0], kind, save_all=True, append_images=images[1:], **options)


def with_thumbnail() -> bytes:
    """A TIFF whose second image is marked as a small copy of the first (NewSubfileType 1)."""
    small = picture((32, 20))
    small.encoderinfo = {"tiffinfo": {254: 1}}
    return saved(picture(), "TIFF", save_all=True, append_images=[small])


def camera_pair() -> bytes:
    """A multi-picture JPEG (MPO), as phones write it: the picture and a preview."""
    return saved(picture(), "MPO", save_all=True, append_images=[picture((32, 20))])


def tall(width: int = 400, height: int = 6000) -> bytes:
    """A screenshot of a long page: a black line every 40 pixels."""
    image = Image.new("L", (width, height), 255)
    for y in range(20, height, 40):
        image.paste(0, (20, y, width - 20, y + 12))
    return saved(image, "PNG")


def png_bomb(width: int = 60_000, height: int = 60_000) -> bytes:
    """A PNG of a few hundred bytes that says it has very many pixels."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(bytes(1000)))
        + _chunk(b"IEND", b"")
    )


def gif_bomb_behind() -> bytes:
    """A GIF whose first frame is good and whose second says it is 65,535 pixels on either side."""
    first = picture(mode="L")
    good = saved(first, "GIF", save_all=True, append_images=[ImageOps.invert(first)])
    size = good.rindex(b"\x2c\x00\x00\x00\x00" + struct.pack("<HH", *SIZE)) + 5  # in the second image descriptor
    return good[:size] + struct.pack("<HH", 65_535, 65_535) + good[size + 4 :]


def truncated(kind: str) -> bytes:
    """The first half of a good file."""
    data = saved(Image.effect_noise((200, 200), 80).convert("RGB"), kind)
    return data[: len(data) // 2]


def truncated_frames() -> bytes:
    """A TIFF of three frames without its last third."""
    data = saved(
        Image.effect_noise((100, 100), 80),
        "TIFF",
        save_all=True,
        append_images=[Image.effect_noise((100, 100), 80) for _ in range(2)],
    )
    return data[: len(data) * 2 // 3]


def bad_exif() -> bytes:
    """A good JPEG whose EXIF data are noise."""
    return saved(picture(), "JPEG", exif=b"Exif\x00\x00MM\x00*\xff\xff\xff\xff" + bytes(range(200)))


def hostile_tiff() -> bytes:
    """A TIFF that lacks its dimensions and whose strips lie outside of the file."""
    entries = [(258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 0xFFFFFF00), (279, 4, 1, 0xFFFFFFFF)]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\x00" + struct.pack("<I", 8) + directory + struct.pack("<I", 0)


def heic(orientation: int = 1) -> bytes:
    """The picture as HEIC, stored upright or so that its EXIF orientation 6 sets it right; needs pillow-heif."""
    import pillow_heif

    image = picture() if orientation == 1 else picture().transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[274] = orientation
    out = io.BytesIO()
    pillow_heif.from_pillow(image).save(out, quality=90, exif=exif.tobytes())
    return out.getvalue()


def false_frame_count(count: int) -> bytes:
    """A PNG of two frames that says it has many more."""
    data = frames("PNG", 2)
    at = data.index(b"acTL")
    return data[: at - 4] + _chunk(b"acTL", struct.pack(">II", count, 0)) + data[at + 16 :]


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
