"""The image side of jina-ocr-v1 on the device.

Stock vLLM turns a page into 42 MB of fp32 pixels on the CPU, sends them to the engine process and encodes one page at a
time, waiting for the GPU several times a page. Here the page itself (uint8, 4 to 8 MB) goes to the engine process;
resizing, padding, tiling and normalising happen on the device, the tiles of all pages of a step go through the towers
together, and nothing in between waits for the device: every shape is known from the page's size.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image
from torch import Tensor
from transformers import BatchFeature
from vllm.config import VllmConfig
from vllm.model_executor.models.deepencoder import RelPosAttention, get_rel_pos
from vllm.model_executor.models.deepseek_ocr import DeepseekOCRDummyInputsBuilder
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.transformers_utils.processors.deepseek_ocr import DeepseekOCRProcessor

from local_engine.preprocess import MAX_TILES, TILE, VIEW, image_token_count, tile_grid
from local_engine.processor import JinaOCRMultiModalProcessor, JinaOCRProcessingInfo
from local_engine.target import JinaOCRForCausalLM

PRECISION = 32 - 8 - 2  # bits of a resizing weight: Pillow's PRECISION_BITS
VISION_GRAPHS = "vision_graphs"  # in vLLM's additional_config: False for towers neither compiled nor in CUDA graphs
GREY = 127  # padding of the global view: int(0.5 * 255), the model's own processor
BATCHES = {TILE: (6, 2), VIEW: (1,)}  # images of a side that a CUDA graph encodes: those of an upright page, of a slide


@lru_cache(maxsize=128)
def _taps(size: int, new: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """What each of `new` pixels is made of: indices into `size` pixels and their weights, both `[taps, new]`.

    Pillow's own arithmetic (libImaging/Resample.c): bicubic with a = -0.5, widened when pixels get fewer, normalised,
    and rounded to 22 bits.
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


def resize(page: Tensor, width: int, height: int) -> Tensor:
    """Resize as Pillow does: across, then down, rounded to whole levels after each.

    Pillow 13 does some tall images the other way round; levels then differ from these where both overshoot.

    Parameters:
        page: `[3, H, W]`, int32, 0 to 255.

    Returns:
        `[3, height, width]`, int32: Pillow's pixels.
    """
    for dim, new in ((2, width), (1, height)):
        if page.shape[dim] != new:
            index, weights = _taps(page.shape[dim], new, page.device)
            shape = (-1, 1) if dim == 1 else (-1,)
            total = torch.full((), 1 << (PRECISION - 1), dtype=torch.int32, device=page.device)
            for pixels, weight in zip(index, weights, strict=True):
                total = total + page.index_select(dim, pixels) * weight.view(shape)
            page = (total >> PRECISION).clamp_(0, 255)
    return page


def views(page: Tensor, grid: tuple[int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cut a page into the model's views, on the page's device.

    Parameters:
        page: `[H, W, 3]`, uint8.
        grid: Tiles across and down; (1, 1) means the global view alone.
        dtype: Of the towers.

    Returns:
        The local tiles `[n, 3, 640, 640]` (n may be 0) and the padded global view `[3, 1024, 1024]`, both from -1 to 1.
    """
    pixels = page.permute(2, 0, 1).int()
    height, width = page.shape[:2]
    across, down = grid
    if across * down > 1:
        stretched = resize(pixels, across * TILE, down * TILE)
        tiles = stretched.view(3, down, TILE, across, TILE).permute(1, 3, 0, 2, 4).reshape(-1, 3, TILE, TILE)
    else:
        tiles = pixels.new_empty((0, 3, TILE, TILE))
    # As PIL.ImageOps.pad: the longer side fills the view, the other is rounded and centred.
    longer = max(width, height)
    inner_w, inner_h = max(round(width / longer * VIEW), 1), max(round(height / longer * VIEW), 1)
    view = pixels.new_full((3, VIEW, VIEW), GREY)
    left, top = round((VIEW - inner_w) * 0.5), round((VIEW - inner_h) * 0.5)
    view[:, top : top + inner_h, left : left + inner_w] = resize(pixels, inner_w, inner_h)
    return (tiles / 127.5 - 1).to(dtype), (view / 127.5 - 1).to(dtype)


class FoldedRelPosAttention(RelPosAttention):
    """SAM's attention with the relative positions folded into queries and keys.

    The position bias of query i and key j is `rel_h[i, row(j)] + rel_w[i, column(j)]`: a dot product of the query's own
    bias vectors with two one-hot vectors of the key. Appended to query and key it needs no bias of N x N (800 MB a page
    and layer), so that the plain fused attention kernels can be used.
    """

    def forward(self, x: Tensor) -> Tensor:
        batch, height, width, _ = x.shape
        qkv = self.qkv(x).view(batch, height * width, 3, self.num_heads, -1)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        grid = query.reshape(batch, self.num_heads, height, width, -1)
        rel_h = torch.einsum("bnhwc,hkc->bnhwk", grid, get_rel_pos(height, height, self.rel_pos_h)).flatten(2, 3)
        rel_w = torch.einsum("bnhwc,wkc->bnhwk", grid, get_rel_pos(width, width, self.rel_pos_w)).flatten(2, 3)
        # The product is scaled, the bias is not; 1 / scale is a power of two for heads of 64: exact in bf16.
        query = torch.cat((query, rel_h / self.scale, rel_w / self.scale), dim=-1)
        key = torch.cat((key, _one_hot(height, width, key).expand(batch, self.num_heads, -1, -1)), dim=-1)
        size = value.shape[-1]
        value = F.pad(value, (0, key.shape[-1] - size))  # the fused kernels want one width for all three
        out = F.scaled_dot_product_attention(query, key, value, scale=self.scale)[..., :size]
        return self.proj(out.transpose(1, 2).reshape(batch, height, width, -1))


def _one_hot(height: int, width: int, like: Tensor) -> Tensor:
    """Row and column of every key of a grid, `[height * width, height + width]`."""
    rows = torch.eye(height, dtype=like.dtype, device=like.device).repeat_interleave(width, dim=0)
    columns = torch.eye(width, dtype=like.dtype, device=like.device).repeat(height, 1)
    return torch.cat((rows, columns), dim=-1)


class GraphedEncoder:
    """Runs an encoder of images as CUDA graphs, in the batch sizes of `BATCHES`.

    The towers are some 1,500 small kernels for a page: launching them takes the host 44 ms, running them the GPU 16 ms.
    All graphs of a side are captured when it is first used. They are captured on a stream of their own: a graph keeps
    the cuBLAS workspace of its capture stream, and PyTorch's usual one is that of vLLM's graphs, which run meanwhile.
    """

    def __init__(self, encode: Callable[[Tensor], Tensor]) -> None:
        self._encode = encode
        self._graphs: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()

    def __call__(self, images: Tensor) -> Tensor:
        """Encode `[n, 3, side, side]`, any n above 0; the last batch is padded."""
        side = images.shape[-1]
        done = []
        for size in split_batches(len(images), BATCHES[side]):
            if (side, size) not in self._graphs:
                self._capture(side, images)
            graph, buffer, encoded = self._graphs[side, size]
            batch, images = images[:size], images[size:]
            buffer[: len(batch)] = batch
            graph.replay()
            done.append(encoded[: len(batch)].clone())
        return torch.cat(done)

    def _capture(self, side: int, like: Tensor) -> None:
        for size in BATCHES[side]:
            buffer = like.new_zeros((size, 3, side, side))
            # Once outside, so that what compiles or picks a kernel does so; thread-local, for vLLM copies its outputs
            # in a thread of their own.
            self._encode(buffer)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                encoded = self._encode(buffer)
            self._graphs[side, size] = (graph, buffer, encoded)


def split_batches(count: int, sizes: Sequence[int]) -> list[int]:
    """Sizes, from those given (largest first), that together hold `count` images with as little padding as possible."""
    split = []
    while count > 0:
        split.append(next((size for size in sizes if size <= count), sizes[-1]))
        count -= split[-1]
    return split


class PageProcessor(DeepseekOCRProcessor):
    """Hands the page on as it is, with its grid; only its tokens are counted here."""

    def __call__(self, *, prompt: str, images: Sequence[Image.Image] = (), **_: object) -> BatchFeature:
        first, *rest = prompt.split(self.image_token)
        ids = self.encode(first)
        for image, text in zip(images, rest, strict=True):
            ids += [self.image_token_id] * image_token_count(*image.size, self.max_crops) + self.encode(text, bos=False)
        return BatchFeature(
            {
                "input_ids": torch.tensor([ids]),
                # One copy of the page: Pillow's memory cannot be written to, and belongs to the image.
                "page": [torch.from_numpy(np.array(image.convert("RGB"))) for image in images],
                "grid": torch.tensor([tile_grid(*image.size, self.max_crops) for image in images]),
            }
        )


class PageProcessingInfo(JinaOCRProcessingInfo):
    """As for pixels, with the processor that makes none."""

    def get_hf_processor(self, **kwargs: object) -> PageProcessor:
        merged = {"max_crops": MAX_TILES, **self.ctx.get_merged_mm_kwargs(kwargs)}
        return self.ctx.get_hf_processor(PageProcessor, **merged)


class PageMultiModalProcessor(JinaOCRMultiModalProcessor):
    """As for pixels, with the fields of `PageProcessor`."""

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        return {
            "page": MultiModalFieldConfig.batched("image"),
            "grid": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
        }


@MULTIMODAL_REGISTRY.register_processor(
    PageMultiModalProcessor, info=PageProcessingInfo, dummy_inputs=DeepseekOCRDummyInputsBuilder
)
class JinaOCRFastForCausalLM(JinaOCRForCausalLM):
    """The target with its image side on the device: `embed_multimodal` takes pages (uint8) instead of pixels."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        for block in self.sam_model.blocks:
            block.attn.__class__ = FoldedRelPosAttention
        self._encode: Callable[[Tensor], Tensor] = self._features
        wanted = vllm_config.additional_config.get(VISION_GRAPHS, not vllm_config.model_config.enforce_eager)
        if self.image_newline.is_cuda and wanted:
            for block in (*self.sam_model.blocks, *self.vision_model.transformer.layers):
                block.compile(dynamic=False)
            self._encode = GraphedEncoder(self._features)
        # Everything about pages happens on this stream, wherever it is asked for: graphs and tables have one owner.
        self.vision_stream = torch.cuda.Stream() if self.image_newline.is_cuda else None

    def embed_multimodal(self, **kwargs: Any) -> list[Tensor] | None:
        if kwargs.get("page") is None:
            return None
        pages, grids = list(kwargs["page"]), [tuple(grid) for grid in kwargs["grid"].tolist()]
        if self.vision_stream is None:
            return self.encode_pages(pages, grids)
        asked = torch.cuda.current_stream()
        self.vision_stream.wait_stream(asked)
        with torch.cuda.stream(self.vision_stream):
            embeddings = self.encode_pages(pages, grids)
        asked.wait_stream(self.vision_stream)
        for page in pages:
            page.record_stream(self.vision_stream)
        for embedding in embeddings:
            embedding.record_stream(asked)
        return embeddings

    def encode_pages(self, pages: Sequence[Tensor], grids: Sequence[tuple[int, int]]) -> list[Tensor]:
        """Encode pages of any sizes together.

        Parameters:
            pages: uint8, `[H, W, 3]`, on the model's device.
            grids: columns and rows of each page's tiles, as from `tile_grid`.

        Returns:
            Per page `[tokens, hidden]`: local tiles row by row, global view, separator.
        """
        cut = [views(page, grid, self.image_newline.dtype) for page, grid in zip(pages, grids, strict=True)]
        wholes = self._encode(torch.stack([view for _, view in cut]))
        tiles = torch.cat([tiles for tiles, _ in cut])
        parts = self._encode(tiles).split([len(tiles) for tiles, _ in cut]) if len(tiles) else [tiles] * len(pages)
        return [
            torch.cat(
                [
                    *([self._lines(part, grid)] if len(part) else []),
                    self._lines(whole[None], (1, 1)),
                    self.view_seperator[None],
                ]
            )
            for whole, part, grid in zip(wholes, parts, grids, strict=True)
        ]

    def _features(self, pixels: Tensor) -> Tensor:
        """Both towers and the projector: `[n, 3, side, side]` to `[n, tokens, hidden]`."""
        fine = self.sam_model(pixels)
        coarse = self.vision_model(pixels, fine)
        return self.projector(torch.cat((coarse[:, 1:], fine.flatten(2).transpose(1, 2)), dim=-1))

    def _lines(self, tiles: Tensor, grid: tuple[int, int]) -> Tensor:
        """Lay tiles out as one picture and end each of its lines with the newline embedding."""
        columns, rows = grid
        side, width = int(tiles.shape[1] ** 0.5), tiles.shape[2]
        lines = tiles.view(rows, columns, side, side, width).transpose(1, 2).reshape(rows * side, columns * side, width)
        return torch.cat((lines, self.image_newline.expand(len(lines), 1, width)), dim=1).flatten(0, 1)
