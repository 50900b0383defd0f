"""Prompt and tiles, worked out by hand."""

import pytest
from PIL import Image

from local_engine import preprocess
from local_engine.preprocess import image_token_count, largest_image, tile_grid

from .conftest import read, start_llm

# Width, height; grid and tokens with up to nine tiles; grid and tokens with up to six. A grid of c x r tiles costs
# 10 r (10 c + 1) tokens, the global view 16 * 17, the separator 1.
SIZES = [
    (300, 200, (1, 1), 273, (1, 1), 273),
    (640, 640, (1, 1), 273, (1, 1), 273),
    (641, 640, (2, 2), 693, (2, 2), 693),  # one pixel too wide for the global view alone
    (1000, 1414, (2, 3), 903, (2, 3), 903),  # upright A4
    (1358, 1920, (2, 3), 903, (2, 3), 903),
    (1484, 1920, (2, 3), 903, (2, 3), 903),  # upright Letter, 8.5 x 11
    (1920, 1358, (3, 2), 893, (3, 2), 893),
    (1300, 1300, (2, 2), 693, (2, 2), 693),  # 1,690,000 pixels are fewer than half of nine tiles, 1,843,200
    (1920, 1920, (3, 3), 1203, (2, 2), 693),
    (1280, 720, (2, 1), 483, (2, 1), 483),  # 1.78 lies nearer to 2 than to 1.5
    (1920, 1080, (4, 2), 1093, (2, 1), 483),  # the same aspect, and more pixels than half of eight tiles, 1,638,400
    (600, 5760, (1, 9), 1263, (1, 6), 933),  # a strip
    (3000, 400, (7, 1), 983, (6, 1), 883),  # 7.5 lies between 7 and 8, and there are too few pixels for 8
    (3600, 480, (8, 1), 1083, (6, 1), 883),  # here there are enough
]


@pytest.mark.parametrize(("width", "height", "nine", "tokens_of_nine", "six", "tokens_of_six"), SIZES)
def test_grid_and_tokens_are_those_worked_out_by_hand(width, height, nine, tokens_of_nine, six, tokens_of_six):
    """A page is stretched to the grid nearest in aspect, and costs what grid, global view and separator cost."""
    assert (tile_grid(width, height), image_token_count(width, height)) == (nine, tokens_of_nine)
    assert (tile_grid(width, height, 6), image_token_count(width, height, 6)) == (six, tokens_of_six)


@pytest.mark.parametrize("max_tiles", [1, 2, 6, 9])
def test_no_page_costs_more_than_the_largest(max_tiles):
    """vLLM plans memory for `largest_image`: no other size costs more, and it is itself possible."""
    sizes = [(width, height) for width in range(40, 6000, 237) for height in range(40, 6000, 211)]
    largest = largest_image(max_tiles)
    costs = [image_token_count(*size, max_tiles) for size in [*sizes, largest]]
    assert max(costs) == costs[-1]


def test_a_prompt_with_an_image_token_in_it_is_refused():
    """`<image>` in the text would ask for a second page."""
    with pytest.raises(ValueError, match="<image>"):
        preprocess.prompt_token_ids(None, "Read <image> twice.")


@pytest.mark.engine
@pytest.mark.parametrize("max_tiles", [6, 9])
def test_the_grid_is_that_of_the_models_own_processor(max_tiles):
    """On thousands of sizes, ties included, the grid is the one that vLLM's copy of the model's processor cuts."""
    from vllm.transformers_utils.processors.deepseek_ocr import count_tiles

    sizes = [(w, h) for w in range(100, 4000, 97) for h in range(100, 4000, 89)]
    ties = [(round(1000 * a), 1000 * s) for s in (1, 2, 3) for a in (s * 0.625, s * 1.75, s * 2.5, s * 0.75, s * 1.25)]
    for width, height in (*sizes, *ties):
        if max(width, height) > preprocess.TILE:
            assert tile_grid(width, height, max_tiles) == tuple(count_tiles(width, height, max_num=max_tiles)), (
                width,
                height,
            )


@pytest.fixture(scope="module")
def nine_tiles(snapshots):
    with start_llm(snapshots(kind="cycle").path) as llm:
        yield llm


def expected_prompt(llm, image_tokens, prompt=preprocess.DEFAULT_OCR_PROMPT):
    """The layout by hand: `<|User|>`, colon, line end, image, line end, the prompt byte by byte, and so on."""
    vocabulary = llm.get_tokenizer().get_vocab()
    line_end, colon = vocabulary["Ċ"], vocabulary[":"]  # of the byte-level alphabet; a space is Ġ
    text = [vocabulary["Ġ" if letter == " " else letter] for letter in prompt]
    user, assistant, image = (vocabulary[token] for token in ("<|User|>", "<|Assistant|>", "<image>"))
    return [user, colon, line_end, *[image] * image_tokens, line_end, *text, line_end, assistant, colon, line_end]


@pytest.mark.engine
def test_vllm_is_given_the_layout_by_hand(nine_tiles, page):
    """Each size makes `LLM.chat` give the token ids worked out by hand: no BOS, real line ends, up to nine tiles."""
    outputs = read(nine_tiles, [page(width, height) for width, height, *_ in SIZES], max_tokens=1)
    for output, (_, _, _, tokens, _, _) in zip(outputs, SIZES, strict=True):
        assert list(output.prompt_token_ids) == expected_prompt(nine_tiles, tokens)


@pytest.mark.engine
@pytest.mark.parametrize("max_tiles", [9, 6])
def test_the_prompt_of_the_embedded_engine_is_the_same(nine_tiles, snapshots, page, max_tiles):
    """`engine_prompt` gives the same layout, and with six tiles processor and token count change together."""
    from local_engine import vllm_sampling_params

    sizes = [size for size in SIZES if size[3] != size[5]]
    prompts = [
        preprocess.engine_prompt(nine_tiles.get_tokenizer(), page(width, height), "Read.")
        | {"mm_processor_kwargs": {"max_crops": max_tiles}}
        for width, height, *_ in sizes
    ]
    outputs = nine_tiles.generate(prompts, sampling_params=vllm_sampling_params(4), use_tqdm=False)
    for output, (_, _, _, of_nine, _, of_six) in zip(outputs, sizes, strict=True):
        tokens = of_nine if max_tiles == 9 else of_six
        assert list(output.prompt_token_ids) == expected_prompt(nine_tiles, tokens, "Read.")
        assert list(output.outputs[0].token_ids) == list(snapshots(kind="cycle").generated(4))


@pytest.mark.engine
@pytest.mark.parametrize(
    "image",
    [
        pytest.param(lambda: half_black(1200, 1600), id="pixels that sum to zero"),
        pytest.param(lambda: half_black(600, 600), id="a global view that sums to zero"),
        pytest.param(lambda: Image.new("RGB", (1400, 1000), "black"), id="black"),
        pytest.param(lambda: Image.new("RGB", (1, 1), "white"), id="one pixel"),
        pytest.param(lambda: Image.new("RGB", (20, 5000), "white"), id="a thin strip"),
    ],
)
def test_any_pixels_are_read(nine_tiles, snapshots, image):
    """No page ends the engine, whatever is on it: vLLM alone takes pixels that sum to zero for no pixels."""
    (output,) = read(nine_tiles, [image()], max_tokens=8)
    assert list(output.outputs[0].token_ids) == list(snapshots(kind="cycle").generated(8))


def half_black(width, height):
    image = Image.new("RGB", (width, height), "white")
    image.paste("black", (0, 0, width // 2, height))
    return image


@pytest.mark.engine
@pytest.mark.parametrize("mode", ["L", "1", "RGBA", "P", "CMYK", "I;16"])
def test_any_colour_mode_is_read(nine_tiles, snapshots, mode):
    """`engine_prompt` hands over RGB whatever it is given."""
    from local_engine import vllm_sampling_params

    prompt = preprocess.engine_prompt(nine_tiles.get_tokenizer(), Image.new(mode, (700, 900)))
    (output,) = nine_tiles.generate([prompt], sampling_params=vllm_sampling_params(8), use_tqdm=False)
    assert list(output.outputs[0].token_ids) == list(snapshots(kind="cycle").generated(8))


@pytest.mark.engine
def test_two_pages_in_one_prompt_are_refused(nine_tiles, page):
    """The model reads one page at a time, and the error says so."""
    two = [{"role": "user", "content": [{"type": "image_pil", "image_pil": page(300, 200)}] * 2}]
    with pytest.raises(Exception, match="At most 1 image"):
        nine_tiles.chat([two], use_tqdm=False)
