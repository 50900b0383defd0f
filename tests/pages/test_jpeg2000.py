"""JPEG 2000 of few bits and with palettes: white is white, and each colour the one that is meant."""

from __future__ import annotations

import pytest

from jina_ocr_loaders.engines.base import Render
from jina_ocr_loaders.errors import PageRenderError
from tests.data import jpegs2000
from tests.pages.opening import read


def seen(tmp_path, data, **options) -> list[tuple[int, ...]]:
    """The colours of the stripes."""
    image = read(tmp_path, data, "image", **options).image.rgb()
    return [
        image.getpixel((int((number + 0.5) * image.width / jpegs2000.STRIPES), image.height // 2))
        for number in range(jpegs2000.STRIPES)
    ]


@pytest.mark.parametrize("mode", ["L", "LA", "RGB"])
@pytest.mark.parametrize("bits", range(1, 9))
def test_few_bits_reach_from_black_to_white(tmp_path, bits, mode):
    """The largest value is white, and as alpha opaque; the others lie between as they do in the file."""
    wanted = [value * 255 / ((1 << bits) - 1) for value in jpegs2000.stripes(bits)]
    for got, value in zip(seen(tmp_path, jpegs2000.jpeg_2000(bits, mode)), wanted, strict=True):
        assert got == pytest.approx((value,) * 3, abs=10)


@pytest.mark.parametrize("kind", ["distinct", "twice", "grey", "with alpha"])
@pytest.mark.parametrize("bits", range(1, 9))
def test_palettes(tmp_path, bits, kind):
    """Indices of all lengths; colours that are the same, greys, and colours that white shows through."""
    size = 1 << bits
    ramp = [index * 255 // (size - 1) for index in range(size)]
    palette = {
        "distinct": [(value, 255 - value, 90) for value in ramp],
        "twice": [(255, 255, 255)] * (size // 2) + [(200, 0, 0)] * (size // 2),
        "grey": [(value,) for value in ramp],
        "with alpha": [(0, 0, 255, value) for value in ramp],
    }[kind]
    wanted = [palette[value] for value in jpegs2000.stripes(bits)]
    if kind == "grey":
        wanted = [colour * 3 for colour in wanted]
    if kind == "with alpha":
        wanted = [(255 - alpha, 255 - alpha, 255) for *_, alpha in wanted]
    for got, colour in zip(seen(tmp_path, jpegs2000.jpeg_2000(bits, palette=palette)), wanted, strict=True):
        assert got == pytest.approx(colour, abs=14)


def test_indices_are_never_averaged(tmp_path):
    """A large picture with a palette is decoded whole, since the mean of two indices is another colour."""
    palette = [(255, 255, 255), *[(0, 0, 0)] * 254, (255, 255, 255)]
    data = jpegs2000.jpeg_2000(8, palette=palette, factor=4)
    whole = seen(tmp_path, data, render=Render(long_side=200))
    assert whole == [(pytest.approx(255, abs=14),) * 3] + [(pytest.approx(0, abs=14),) * 3] * 14 + [whole[0]]


def test_a_palette_that_is_not_read(tmp_path):
    """Two channels: nobody knows which. The page fails and says what to do."""
    error = read(tmp_path, jpegs2000.jpeg_2000(8, palette=[(1, 2), (3, 4)]), "image").error
    assert isinstance(error, PageRenderError)
    assert "palette" in error.message
    assert "convert it to PNG" in error.message
