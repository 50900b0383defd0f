"""The prompt and the image tiles of jina-ocr-v1, as the model was trained on them. Imports neither torch nor vLLM."""

from functools import lru_cache
from typing import Any

from PIL import Image

DEFAULT_OCR_PROMPT = (  # model card, "Prompt"
    "Transcribe the provided document image into a clean Markdown format, preserving the natural reading order."
)

IMAGE_TOKEN = "<image>"
BEFORE_IMAGE = "<|User|>:\n"
AFTER_IMAGE = "\n{prompt}\n<|Assistant|>:\n"

# DeepEncoder (processor_config.json: base_size, image_size, patch_size, downsample_ratio)
VIEW = 1024  # pixels; side of the global view
TILE = 640  # pixels; side of a local tile
CELL = 16 * 4  # pixels; side of what one token stands for
MIN_TILES = 2
MAX_TILES = 9  # the model's own processor; vLLM's stops at 6


def prompt_token_ids(tokenizer: Any, prompt: str = DEFAULT_OCR_PROMPT) -> list[int]:
    """Token ids of a page's prompt, with one `<image>` that vLLM replaces by as many as the image needs.

    There is no BOS, and the text before and after the image is tokenised apart. (The checkpoint's own chat template is
    double-escaped: it writes a backslash and an n for a line end.)

    Raises:
        ValueError: the prompt itself contains `<image>`.
    """
    if IMAGE_TOKEN in prompt:
        raise ValueError(f"the prompt must not contain {IMAGE_TOKEN}: the page image is put in for it")
    before = tokenizer.encode(BEFORE_IMAGE, add_special_tokens=False)
    after = tokenizer.encode(AFTER_IMAGE.format(prompt=prompt), add_special_tokens=False)
    return [*before, tokenizer.convert_tokens_to_ids(IMAGE_TOKEN), *after]


def engine_prompt(tokenizer: Any, image: Image.Image, prompt: str = DEFAULT_OCR_PROMPT) -> dict[str, Any]:
    """One page as `LLM.generate` and `AsyncLLM.generate` take it."""
    return {
        "prompt_token_ids": prompt_token_ids(tokenizer, prompt),
        "multi_modal_data": {"image": image if image.mode == "RGB" else image.convert("RGB")},
    }


def tile_grid(width: int, height: int, max_tiles: int = MAX_TILES) -> tuple[int, int]:
    """Columns and rows of the 640 px tiles that a page is stretched to; (1, 1) where the global view alone is used.

    The grid is the one nearest in aspect. Of several, a larger one is taken if the page has more than half its pixels.

    Parameters:
        width, height: of the page, pixels.
        max_tiles: 9 in the model's own processor, 6 in vLLM's; 1 leaves the global view alone.
    """
    if width <= TILE and height <= TILE:
        return 1, 1
    aspect = width / height
    best, best_distance = (1, 1), float("inf")
    for grid in _grids(max_tiles):
        distance = abs(aspect - grid[0] / grid[1])
        roomy = width * height > 0.5 * TILE * TILE * grid[0] * grid[1]
        if distance < best_distance or (distance == best_distance and roomy):
            best, best_distance = grid, distance
    return best


def image_token_count(width: int, height: int, max_tiles: int = MAX_TILES) -> int:
    """Tokens of a page image: local tiles and global view, with a token at the end of each row, and a separator."""
    return grid_token_count(*tile_grid(width, height, max_tiles))


def grid_token_count(columns: int, rows: int) -> int:
    """Tokens of an image in a grid of so many tiles; (1, 1) is the global view alone."""
    view, tile = VIEW // CELL, TILE // CELL
    tiles = rows * tile * (columns * tile + 1) if columns * rows > 1 else 0
    return tiles + view * (view + 1) + 1


def largest_image(max_tiles: int = MAX_TILES) -> tuple[int, int]:
    """Width and height, in pixels, of an image that costs as many tokens as any can."""
    columns, rows = max(_grids(max_tiles), key=lambda grid: grid_token_count(*grid), default=(1, 1))
    return columns * TILE, rows * TILE


@lru_cache
def _grids(max_tiles: int) -> list[tuple[int, int]]:
    # Grids of the same size stay in a set's order, as in the model's own processor: it decides between equally near.
    sides = ((n, i, j) for n in range(MIN_TILES, max_tiles + 1) for i in range(1, n + 1) for j in range(1, n + 1))
    grids = {(i, j) for _, i, j in sides if MIN_TILES <= i * j <= max_tiles}
    return sorted(grids, key=lambda grid: grid[0] * grid[1])
