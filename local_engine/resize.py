"""A page of pixels cut into the model's views, on the page's device: Pillow's resizing to the last level.

On a GPU two Triton kernels a view do it, one across and one down; elsewhere PyTorch's operations. Both compute in whole
numbers, so they agree in every pixel.
"""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from vllm.triton_utils import tl, triton

from local_engine.preprocess import TILE, VIEW

PRECISION = 32 - 8 - 2  # bits of a resizing weight: Pillow's PRECISION_BITS
GREY = 127  # padding of the global view: int(0.5 * 255), the model's own processor
BLOCK = 256  # pixels that a program of a kernel makes


def cut_views(page: Tensor, grid: tuple[int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cut a page into the model's views, on the page's device.

    Parameters:
        page: `[H, W, 3]`, uint8.
        grid: Tiles across and down; (1, 1) means the global view alone.
        dtype: Of the towers.

    Returns:
        The local tiles `[n, 3, 640, 640]` (n may be 0) and the padded global view `[1, 3, 1024, 1024]`, both from -1 to
        1.
    """
    height, width = page.shape[:2]
    across, down = grid
    values = _values(dtype, page.device)
    if across * down > 1:
        tiles = _lay_out(page, (across * TILE, down * TILE), grid, TILE, values)
    else:
        tiles = values.new_empty((0, 3, TILE, TILE))
    # As PIL.ImageOps.pad: the longer side fills the view, the other is rounded and centred.
    longer = max(width, height)
    inside = max(round(width / longer * VIEW), 1), max(round(height / longer * VIEW), 1)
    return tiles, _lay_out(page, inside, (1, 1), VIEW, values)


def resize(page: Tensor, width: int, height: int) -> Tensor:
    """Resize as Pillow does: across, then down, rounded to whole levels after each.

    Pillow 13 does some tall images the other way round; levels then differ from these where both overshoot.

    Parameters:
        page: `[H, W, 3]`, uint8.

    Returns:
        `[height, width, 3]`, int32: Pillow's pixels.
    """
    pixels = page.int()
    for dim, new in ((1, width), (0, height)):
        index, weights = _taps(pixels.shape[dim], new, page.device)
        total = torch.full((), 1 << (PRECISION - 1), dtype=torch.int32, device=page.device)
        for sources, weight in zip(index, weights, strict=True):
            total = total + pixels.index_select(dim, sources) * weight.view((-1, 1) if dim else (-1, 1, 1))
        pixels = (total >> PRECISION).clamp_(0, 255)
    return pixels


def _lay_out(page: Tensor, size: tuple[int, int], grid: tuple[int, int], side: int, values: Tensor) -> Tensor:
    """Resize a page, centre it on grey, and cut that into a grid of squares, row by row: `[n, 3, side, side]`."""
    if page.is_cuda:
        return _lay_out_on_gpu(page, size, grid, side, values)
    (width, height), (across, down), (left, top) = size, grid, _corner(size, grid, side)
    canvas = values[GREY].repeat(3, down * side, across * side)
    canvas[:, top : top + height, left : left + width] = values[resize(page, width, height)].permute(2, 0, 1)
    return canvas.view(3, down, side, across, side).permute(1, 3, 0, 2, 4).reshape(-1, 3, side, side)


def _corner(size: tuple[int, int], grid: tuple[int, int], side: int) -> tuple[int, int]:
    """Left and top of a picture in the middle of a grid of squares: as PIL.ImageOps.pad."""
    (width, height), (across, down) = size, grid
    return round((across * side - width) * 0.5), round((down * side - height) * 0.5)


@lru_cache(maxsize=8)
def _values(dtype: torch.dtype, device: torch.device) -> Tensor:
    """What the towers get for each of the 256 levels, `[256]`: from -1 to 1."""
    # Made on the CPU: GPUs divide a level differently.
    return (torch.arange(256, dtype=torch.float32) / 127.5 - 1).to(device, dtype)


@lru_cache(maxsize=128)
def _taps(size: int, new: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """What each of `new` pixels is made of: indices into `size` pixels and their weights, both `[taps, new]`.

    Pillow's own arithmetic (libImaging/Resample.c): bicubic with a = -0.5, widened when pixels get fewer, normalised,
    and rounded to 22 bits. Of an unchanged length each pixel is itself.
    """
    scale = size / new
    reach = 2 * max(scale, 1.0)
    centre = (np.arange(new) + 0.5) * scale
    first = np.maximum(np.trunc(centre - reach + 0.5), 0)
    last = np.minimum(np.trunc(centre + reach + 0.5), size)
    index = first + np.arange(int(np.max(last - first)))[:, None]
    x = np.abs((index - centre + 0.5) / max(scale, 1.0))
    weights = np.where(x < 1, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2, -0.5 * (((x - 5) * x + 8) * x - 4), 0))
    weights = np.where(index < last, weights, 0)
    weights = weights / weights.sum(axis=0) * (1 << PRECISION)
    rounded = np.trunc(weights + np.copysign(0.5, weights)).astype(np.int32)
    index = np.minimum(index, size - 1).astype(np.int32)
    # Small enough to be copied without waiting for the device.
    return tuple(torch.from_numpy(part).to(device, non_blocking=True) for part in (index, rounded))


def _lay_out_on_gpu(page: Tensor, size: tuple[int, int], grid: tuple[int, int], side: int, values: Tensor) -> Tensor:
    (old_height, old_width), (width, height), (across, down) = page.shape[:2], size, grid
    wide = page.new_empty((3, old_height, width))
    index, weights = _taps(old_width, width, page.device)
    _across_kernel[old_height, triton.cdiv(width, BLOCK)](
        page.contiguous(), wide, index, weights, old_height, old_width, width, len(index), PRECISION, BLOCK
    )
    out = values[GREY].repeat(across * down, 3, side, side)
    index, weights = _taps(old_height, height, page.device)
    _down_kernel[3 * height, triton.cdiv(width, BLOCK)](
        wide, out, values, index, weights, old_height, width, height, len(index),
        *_corner(size, grid, side), across, side, PRECISION, BLOCK,
    )  # fmt: skip
    return out


# Lengths are not specialised: each page of a new size would compile the kernels anew.
@triton.jit(do_not_specialize=["height", "old_width", "width", "taps"])  # type: ignore[untyped-decorator]
def _across_kernel(page, wide, index, weights, height, old_width, width, taps, bits: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    """One row's pixels, `[H, W, 3]` uint8, to `[3, H, width]` uint8."""
    row = tl.program_id(0)
    x = tl.program_id(1) * block + tl.arange(0, block)
    inside = x < width
    red = tl.full((block,), 1 << (bits - 1), tl.int32)
    green, blue = red, red
    for tap in range(taps):
        source = page + (row * old_width + tl.load(index + tap * width + x, inside, 0)) * 3
        weight = tl.load(weights + tap * width + x, inside, 0)
        red += tl.load(source, inside, 0).to(tl.int32) * weight
        green += tl.load(source + 1, inside, 0).to(tl.int32) * weight
        blue += tl.load(source + 2, inside, 0).to(tl.int32) * weight
    target = wide + row * width + x
    plane = height * width
    tl.store(target, tl.minimum(tl.maximum(red >> bits, 0), 255).to(tl.uint8), inside)
    tl.store(target + plane, tl.minimum(tl.maximum(green >> bits, 0), 255).to(tl.uint8), inside)
    tl.store(target + 2 * plane, tl.minimum(tl.maximum(blue >> bits, 0), 255).to(tl.uint8), inside)


@triton.jit(  # type: ignore[untyped-decorator]
    do_not_specialize=["old_height", "width", "height", "taps", "left", "top", "across"]
)
def _down_kernel(  # type: ignore[no-untyped-def]
    wide, out, values, index, weights, old_height, width, height, taps, left, top, across,
    side: tl.constexpr, bits: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """One line of one colour, `[3, H, width]` uint8, to its place in `[n, 3, side, side]`, as the towers' values."""
    colour, row = tl.program_id(0) // height, tl.program_id(0) % height
    x = tl.program_id(1) * block + tl.arange(0, block)
    inside = x < width
    total = tl.full((block,), 1 << (bits - 1), tl.int32)
    for tap in range(taps):
        source = wide + (colour * old_height + tl.load(index + tap * height + row)) * width + x
        total += tl.load(source, inside, 0).to(tl.int32) * tl.load(weights + tap * height + row)
    level = tl.minimum(tl.maximum(total >> bits, 0), 255)
    y, x = row + top, x + left
    square = (y // side) * across + x // side
    target = out + ((square * 3 + colour) * side + y % side) * side + x % side
    tl.store(target, tl.load(values + level), inside)
