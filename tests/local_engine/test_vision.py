"""The image side on the device: the model's own pixels, vLLM's own features, and the same text."""

import numpy as np
import pytest
from PIL import Image, ImageOps

from local_engine.compare import SCORED, compare, read_texts
from local_engine.preprocess import TILE, VIEW, tile_grid

from .conftest import read, start_llm, token_ids

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

SIZES = [(300, 200), (1024, 1448), (1920, 1080), (1000, 1000), (641, 640), (700, 2000)]


def noise(width, height, kind):
    """A page of sharp edges: bicubic resizing overshoots most where black meets white."""
    random = np.random.default_rng(width * height)
    if kind == "text":
        return (random.random((height, width, 1)) > 0.1).astype("uint8").repeat(3, 2) * 255
    return random.integers(0, 256, (height, width, 3), dtype=np.uint8)


def pillow(image, width, height):
    """Pillow's resizing, across before down; since version 13 it does tall images the other way round."""
    return image.resize((width, image.height)).resize((width, height))


def levels(views):
    return ((views.double() + 1) * 127.5).movedim(-3, -1).numpy()


@pytest.mark.parametrize("kind", ["text", "colours"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_pixels_are_those_of_the_models_own_processor(size, kind):
    """All pixels of every tile and of the padded view are Pillow's, level for level."""
    from local_engine.resize import cut_views

    pixels = noise(*size, kind)
    image, (columns, rows) = Image.fromarray(pixels), tile_grid(*size)
    tiles, view = cut_views(torch.from_numpy(pixels), (columns, rows), torch.float32)

    inside = ImageOps.contain(image, (VIEW, VIEW)).size
    padded = ImageOps.pad(pillow(image, *inside), (VIEW, VIEW), color=(127, 127, 127))
    assert np.abs(levels(view)[0] - np.asarray(padded, dtype=float)).max() < 1e-3

    expected = 0 if columns * rows == 1 else columns * rows
    assert len(tiles) == expected
    if expected:
        page = np.asarray(pillow(image, columns * TILE, rows * TILE), dtype=float)
        cut = page.reshape(rows, TILE, columns, TILE, 3).swapaxes(1, 2).reshape(-1, TILE, TILE, 3)
        assert np.abs(levels(tiles) - cut).max() < 1e-3


@pytest.mark.parametrize("size", [(3000, 1), (1, 3000), (1, 1)], ids=str)
def test_a_sliver_is_a_page_too(size):
    """A page of one row or column of pixels has views of the right shape: an error here would end the engine."""
    from local_engine.resize import cut_views

    width, height = size
    columns, rows = tile_grid(width, height)
    tiles, view = cut_views(torch.zeros(height, width, 3, dtype=torch.uint8), (columns, rows), torch.float32)
    assert view.shape == (1, 3, VIEW, VIEW)
    assert view.min() == -1
    assert len(tiles) == (columns * rows if columns * rows > 1 else 0)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [pytest.param("float32", 1e-5, id="fp32"), pytest.param("bfloat16", 2e-2, id="bf16")],
)
@pytest.mark.parametrize(("side", "trained"), [(14, 14), (10, 16), (16, 16)], ids=["window", "tile", "view"])
def test_folded_attention_gives_sams_attention(side, trained, dtype, tolerance):
    """Positions folded into queries and keys give SAM's biased attention, in bf16 within 2 % of the features' norm."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.models.deepencoder import RelPosAttention

    from local_engine.vision import FoldedRelPosAttention

    torch.manual_seed(side)
    with set_current_vllm_config(VllmConfig()), torch.inference_mode():
        attention = RelPosAttention(768, 12, use_rel_pos=True, input_size=(trained, trained))
        for parameter in attention.parameters():
            torch.nn.init.normal_(parameter, std=0.05)
        features = torch.randn(2, side, side, 768)
        exact = attention(features)  # in fp32
        attention.__class__ = FoldedRelPosAttention
        folded = attention.to(getattr(torch, dtype))(features.to(getattr(torch, dtype))).float()
    assert (folded - exact).norm() / exact.norm() < tolerance


@pytest.fixture(scope="module")
def pages(page):
    return [page(width, height, seed) for seed, (width, height) in enumerate([(300, 200), (1000, 1400), (1300, 900)])]


@pytest.fixture(scope="module")
def fast_target():
    """The fast target with the tiny snapshots' towers."""
    from vllm import ModelRegistry
    from vllm.model_executor.models.deepseek_ocr import DeepseekOCRDummyInputsBuilder
    from vllm.multimodal import MULTIMODAL_REGISTRY

    from local_engine.synthetic_target import SyntheticTarget
    from local_engine.vision import JinaOCRFastForCausalLM, PageMultiModalProcessor, PageProcessingInfo

    @MULTIMODAL_REGISTRY.register_processor(
        PageMultiModalProcessor, info=PageProcessingInfo, dummy_inputs=DeepseekOCRDummyInputsBuilder
    )
    class FastSyntheticTarget(JinaOCRFastForCausalLM, SyntheticTarget):
        pass

    ModelRegistry.register_model("FastSyntheticTarget", FastSyntheticTarget)
    return {"hf_overrides": {"architectures": ["FastSyntheticTarget"]}}


@pytest.fixture(scope="module")
def exact(snapshots, pages):
    """Texts of the plain path, in fp32, on a snapshot whose every layer acts."""
    with start_llm(snapshots(kind="live").path, **SCORED) as llm:
        return read_texts(llm, pages, max_tokens=100)


@pytest.fixture(scope="module")
def plain(exact):
    """Their tokens."""
    return [list(text.tokens) for text in exact]


@pytest.mark.parametrize("k", [0, 3])
def test_text_is_that_of_the_plain_path(snapshots, pages, plain, fast_target, k):
    """In fp32, pages read together through the device path give the plain path's text token for token, also drafted."""
    with start_llm(snapshots(kind="live").path, k, **fast_target) as llm:
        assert token_ids(read(llm, pages, max_tokens=100, ignore_eos=True)) == plain
    assert len(set(map(tuple, plain))) == len(pages)


def test_text_of_compiled_towers_is_that_of_plain_ones(snapshots, pages, plain, fast_target):
    """In fp32 the towers, compiled block by block, give the text that they give uncompiled, token for token."""
    with start_llm(snapshots(kind="live").path, **fast_target) as llm:
        llm.apply_model(lambda model: model.compile_towers())
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        assert token_ids(read(llm, pages, max_tokens=100, ignore_eos=True)) == plain
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > before


@pytest.mark.parametrize(
    ("dtype", "of_features", "of_logits"),
    [pytest.param("float32", 1e-5, 1e-4, id="fp32"), pytest.param("bfloat16", 4e-2, 4e-2, id="bf16")],
)
def test_features_and_logits_are_those_of_the_plain_path(snapshots, pages, fast_target, dtype, of_features, of_logits):
    """Whole pages on a snapshot whose every layer acts: pixels are those of the model's own processor within 2 of 255
    levels, features and logits those that stock towers make of them, within a share of their norm."""
    from vllm.model_executor.models.deepencoder import RelPosAttention
    from vllm.transformers_utils.processors.deepseek_ocr import DeepseekOCRProcessor

    from local_engine.resize import cut_views
    from local_engine.target import JinaOCRForCausalLM
    from local_engine.vision import FoldedRelPosAttention

    def plain_pages(model, given):
        """What the plain path makes of pages: the model's own processor, stock attention, one page at a time."""
        features = []
        for block in model.sam_model.blocks:
            block.attn.__class__ = RelPosAttention
        for page in given:
            made = processor(prompt="<image>", images=[Image.fromarray(page.numpy())])
            inputs = {name: made[name] for name in ("pixel_values", "images_crop", "images_spatial_crop")}
            grid = tuple(made["images_spatial_crop"][0].tolist())
            tiles, view = cut_views(page, grid, torch.float32)
            assert (view - made["pixel_values"][0]).abs().max() <= 2 * 2 / 255
            assert len(tiles) == 0 or (tiles - made["images_crop"]).abs().max() <= 2 * 2 / 255
            inputs = {n: v.to(model.image_newline.dtype) if v.is_floating_point() else v for n, v in inputs.items()}
            features += JinaOCRForCausalLM.embed_multimodal(model, **inputs)
        for block in model.sam_model.blocks:
            block.attn.__class__ = FoldedRelPosAttention
        return features

    def differences(model):
        given = [torch.from_numpy(np.array(page)) for page in pages]
        with torch.inference_mode():
            fast = model.encode_pages(given, [tile_grid(*page.size) for page in pages])
            plain = plain_pages(model, given)
        return [float((f.float() - p.float()).norm() / p.float().norm()) for f, p in zip(fast, plain, strict=True)]

    def logits(llm):
        outputs = read(llm, pages, max_tokens=1, logprobs=-1)
        vectors = [dict(sorted(output.outputs[0].logprobs[0].items())) for output in outputs]
        return [torch.tensor([each.logprob for each in vector.values()]) for vector in vectors]

    with start_llm(snapshots(kind="live").path, dtype=dtype, max_logprobs=-1, **fast_target) as llm:
        processor = DeepseekOCRProcessor(tokenizer=llm.get_tokenizer(), max_crops=9)
        (apart,) = llm.apply_model(differences)
        assert max(apart) < of_features
        fast = logits(llm)
        llm.apply_model(lambda model: setattr(model, "encode_pages", lambda given, _: plain_pages(model, given)))
        for one, other in zip(fast, logits(llm), strict=True):
            assert (one - other).norm() / other.norm() < of_logits


def test_in_bf16_the_text_is_as_near_to_the_exact_one_as_the_plain_paths(snapshots, pages, exact, fast_target):
    """Rounded to bf16, logprobs are no further from those of fp32 than the plain path's, and texts part at ties."""

    def rounded(**settings):
        with start_llm(snapshots(kind="live").path, dtype="bfloat16", **SCORED, **settings) as llm:
            return compare("bf16", read_texts(llm, pages, max_tokens=100), "fp32", exact)

    fast, plain = rounded(**fast_target), rounded()
    assert 0 < fast.drift < 2 * plain.drift  # seen: 0.05 and 0.07
    assert fast.widest < 0.3  # seen: 0.02 and 0.08; random weights, so that many tokens are nearly as likely


def test_fewer_tiles_reach_the_device(snapshots, fast_target):
    """`max_crops` decides tokens and tiles alike: a square page in at most four tiles costs 693 tokens, not 1,203."""
    square = Image.new("RGB", (1500, 1500), "white")
    with start_llm(snapshots(kind="live").path, max_tiles=4, **fast_target) as llm:
        (output,) = read(llm, [square], max_tokens=1)
        image = llm.get_tokenizer().convert_tokens_to_ids("<image>")
        assert list(output.prompt_token_ids).count(image) == 693


@pytest.mark.parametrize(
    ("count", "split"), [(1, [2]), (2, [2]), (3, [2, 2]), (6, [6]), (9, [6, 2, 2]), (12, [6, 6]), (17, [6, 6, 2, 2, 2])]
)
def test_batches_hold_all_images(count, split):
    """Images go into the batches that graphs were captured for, the largest first, the last one padded."""
    from local_engine.vision import split_batches

    assert split_batches(count, (6, 2)) == split
