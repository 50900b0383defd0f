"""The image side of jina-ocr-v1 on the device.

Stock vLLM turns a page into 42 MB of fp32 pixels on the CPU, sends them to the engine process and encodes one page at a
time, waiting for the GPU several times a page. Here the page itself (uint8, 4 to 8 MB) goes to the engine process;
resizing, padding, tiling and normalising happen on the device, the tiles of all pages of a step go through the towers
together, and nothing in between waits for the device: every shape is known from the page's size.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import BatchFeature
from vllm.config import VllmConfig
from vllm.model_executor.models.deepencoder import RelPosAttention, get_rel_pos
from vllm.model_executor.models.deepseek_ocr import DeepseekOCRDummyInputsBuilder
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.transformers_utils.processors.deepseek_ocr import DeepseekOCRProcessor

from local_engine.plugin import VISION_GRAPHS
from local_engine.preprocess import MAX_TILES, TILE, VIEW, image_token_count, tile_grid
from local_engine.processor import JinaOCRMultiModalProcessor, JinaOCRProcessingInfo
from local_engine.resize import cut_views
from local_engine.target import JinaOCRForCausalLM

BATCHES = {TILE: (6, 2), VIEW: (1,)}  # images of a side that a CUDA graph encodes: those of an upright page, of a slide
# Best first: on an H200 cuDNN's kernel takes less than half of FlashAttention 2's time (docs/performance.md).
ATTENTION_KERNELS = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]


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
        rel_h = torch.einsum("bnhwc,hkc->bnhwk", grid, _in_eights(get_rel_pos(height, height, self.rel_pos_h)))
        rel_w = torch.einsum("bnhwc,wkc->bnhwk", grid, _in_eights(get_rel_pos(width, width, self.rel_pos_w)))
        # The product is scaled, the bias is not; 1 / scale is a power of two for heads of 64: exact in bf16.
        query = torch.cat((query, rel_h.flatten(2, 3) / self.scale, rel_w.flatten(2, 3) / self.scale), dim=-1)
        key = torch.cat((key, _one_hot(height, width, key).expand(batch, self.num_heads, -1, -1)), dim=-1)
        size = value.shape[-1]
        value = F.pad(value, (0, key.shape[-1] - size))  # most fused kernels want one width for all three
        with sdpa_kernel(ATTENTION_KERNELS, set_priority=True):
            out = F.scaled_dot_product_attention(query, key, value, scale=self.scale)[..., :size]
        return self.proj(out.transpose(1, 2).reshape(batch, height, width, -1))


def _one_hot(height: int, width: int, like: Tensor) -> Tensor:
    """Row and column of every key of a grid, `[height * width, height + width]`, both widths rounded up to eights."""
    rows = torch.eye(height, dtype=like.dtype, device=like.device).repeat_interleave(width, dim=0)
    columns = torch.eye(width, dtype=like.dtype, device=like.device).repeat(height, 1)
    return torch.cat((_in_eights(rows), _in_eights(columns)), dim=-1)


def _in_eights(table: Tensor) -> Tensor:
    """Zeros appended to dimension 1 up to a multiple of eight, without which cuDNN does not take a head."""
    return F.pad(table, (0, 0) * (table.dim() - 2) + (0, -table.shape[1] % 8))


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
            self.compile_towers()
            self._encode = GraphedEncoder(self._features)
        # Everything about pages happens on this stream, wherever it is asked for: graphs and tables have one owner.
        self.vision_stream = torch.cuda.Stream() if self.image_newline.is_cuda else None

    def compile_towers(self) -> None:
        """Have the blocks of both towers compiled when they are first used, for each number and size of images anew."""
        for block in (*self.sam_model.blocks, *self.vision_model.transformer.layers):
            block.compile(dynamic=False)

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
        cut = [cut_views(page, grid, self.image_newline.dtype) for page, grid in zip(pages, grids, strict=True)]
        wholes = self._encode(torch.cat([view for _, view in cut]))
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
