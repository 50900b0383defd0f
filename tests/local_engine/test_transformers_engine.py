"""The Transformers engine on a small snapshot whose Python files, written here, keep the model card's contract."""

import asyncio
import json
import shutil
import threading

import pytest

from local_engine.errors import EngineClosedError, EngineSetupError
from local_engine.transformers_engine import TransformersEngine

pytestmark = pytest.mark.engine

CONFIGURATION = """
from transformers import PreTrainedConfig


class TinyConfig(PreTrainedConfig):
    model_type = "deepseek_vl_v2"
    num_hidden_layers = 1
"""

# A cycle snapshot's layers are switched off: embedding, norm and head are the whole model, and give the known text.
MODEL = """
import torch
from torch import nn
from transformers import GenerationMixin, LogitsProcessor, LogitsProcessorList, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from .configuration_tiny import TinyConfig


class SlidingWindowNoRepeatNgramProcessor(LogitsProcessor):
    def __init__(self, size, window, whitelist):
        self.size, self.window, self.whitelist = size, window, whitelist

    def __call__(self, input_ids, scores):
        ids = input_ids[0].tolist()
        prefix = ids[len(ids) - self.size + 1 :]
        for at in range(max(0, len(ids) - self.window), len(ids) - self.size + 1):
            if ids[at : at + self.size - 1] == prefix and ids[at + self.size - 1] not in self.whitelist:
                scores[0, ids[at + self.size - 1]] = -float("inf")
        return scores


class Text(nn.Module):
    def __init__(self, vocabulary, hidden):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, hidden)
        self.norm = nn.RMSNorm(hidden, eps=1e-6)


class TinyModel(PreTrainedModel, GenerationMixin):
    config_class = TinyConfig
    _keys_to_ignore_on_load_unexpected = [r".*"]

    def __init__(self, config):
        super().__init__(config)
        language = config.language_config
        self.model = Text(language["vocab_size"], language["hidden_size"])
        self.lm_head = nn.Linear(language["hidden_size"], language["vocab_size"], bias=False)
        self.post_init()

    def prepare_inputs_for_generation(self, input_ids, images=None, **kwargs):
        return {"input_ids": input_ids, "images": images}

    def forward(self, input_ids, images, **kwargs):
        assert images.dtype == self.dtype and images.shape[1] == 3, "the page belongs to every prompt"
        assert (input_ids == self.config.image_token_index).sum() == 4
        return CausalLMOutputWithPast(logits=self.lm_head(self.model.norm(self.model.embed_tokens(input_ids[:, -1:]))))

    def generate(self, input_ids, *, no_repeat_ngram_size=35, ngram_window=1024, whitelist=(128821, 128822), **kwargs):
        processors = LogitsProcessorList()
        if no_repeat_ngram_size:
            processors.append(SlidingWindowNoRepeatNgramProcessor(no_repeat_ngram_size, ngram_window, whitelist))
        return super().generate(input_ids, logits_processor=processors, **kwargs)
"""

PROCESSOR = """
import torch
from transformers import ProcessorMixin
from transformers.image_transforms import to_channel_dimension_format
import numpy


class TinyProcessor(ProcessorMixin):
    attributes = ["tokenizer"]
    tokenizer_class = "AutoTokenizer"

    def __init__(self, tokenizer=None, **kwargs):
        super().__init__(tokenizer)

    def prepare_ocr_inputs(self, image, prompt="Read it.", device="cpu"):
        assert image.mode == "RGB"
        ids = self.tokenizer.encode("<|User|>:\\n" + "<image>" * 4 + f"\\n{prompt}\\n<|Assistant|>:\\n")
        pixels = torch.from_numpy(numpy.asarray(image).copy()).permute(2, 0, 1)[None].to(DTYPE)
        return {"input_ids": torch.tensor([ids], device=device), "images": pixels.to(device)}

    def decode_ocr(self, output, input_ids):
        return self.tokenizer.decode(output[0, input_ids.shape[1] :], skip_special_tokens=True)
"""


@pytest.fixture(scope="module")
def with_code(snapshots, tmp_path_factory):
    """Give a synthetic snapshot the Python files of a published one; `dtype` is what its processor makes of pixels."""

    def make(dtype="bfloat16", **options):
        snapshot = snapshots(kind="cycle", **options)
        folder = tmp_path_factory.mktemp("snapshot") / f"tiny_{dtype}"
        shutil.copytree(snapshot.path, folder)
        (folder / "configuration_tiny.py").write_text(CONFIGURATION)
        (folder / "modeling_tiny.py").write_text(MODEL)
        (folder / "processing_tiny.py").write_text(PROCESSOR.replace("DTYPE", f"torch.{dtype}"))
        add(
            folder / "config.json",
            AutoConfig="configuration_tiny.TinyConfig",
            AutoModelForCausalLM="modeling_tiny.TinyModel",
        )
        add(folder / "processor_config.json", AutoProcessor="processing_tiny.TinyProcessor")
        return folder, snapshot

    return make


def add(path, **classes):
    path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": classes}))


@pytest.fixture(scope="module")
def ending(with_code):
    return with_code()


@pytest.fixture(scope="module")
def looping(with_code):
    return with_code(loop=7)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_cards_recipe_gives_the_known_text(with_code, page, dtype):
    """Prepare, generate and decode as in the card, in both dtypes, with the counts and the end of the page."""
    folder, snapshot = with_code(dtype)

    async def read():
        async with TransformersEngine(folder, trust_remote_code=True, dtype=dtype) as engine:
            return await engine.transcribe(page(300, 200).convert("L"))

    result = asyncio.run(read())
    assert (result.text, result.finish_reason) == (snapshot.text, "stop")
    assert result.output_tokens == len(snapshot.tokens) + 1
    assert result.prompt_tokens > 4


def test_what_vllm_registers_in_this_process_is_no_hindrance(ending, page):
    """vLLM has a config class of its own for the model type, registered in this process; the snapshot's is taken."""
    from transformers import AutoConfig
    from vllm.transformers_utils.configs.deepseek_vl2 import DeepseekVLV2Config

    folder, snapshot = ending
    AutoConfig.register("deepseek_vl_v2", DeepseekVLV2Config, exist_ok=True)

    async def read():
        async with TransformersEngine(folder, trust_remote_code=True) as engine:
            return await engine.transcribe(page(300, 200))

    assert asyncio.run(read()).text == snapshot.text


def test_a_page_cut_at_its_limit_says_so(ending, page):
    """With fewer tokens than the text has, the finish reason is `length` and the text a beginning of it."""
    folder, snapshot = ending

    async def read():
        async with TransformersEngine(folder, trust_remote_code=True) as engine:
            return await engine.transcribe(page(300, 200), max_tokens=30)

    result = asyncio.run(read())
    assert (result.finish_reason, result.output_tokens) == ("length", 30)
    assert result.text
    assert snapshot.text.startswith(result.text)


def test_a_loop_is_stopped_where_the_ngram_option_does_not(looping, page):
    """The card's option breaks a loop of 7 after 35 tokens; with it off, our guard stops it and keeps one copy."""
    folder, snapshot = looping

    async def read(**options):
        async with TransformersEngine(folder, trust_remote_code=True) as engine:
            return await engine.transcribe(page(300, 200), max_tokens=900, **options)

    broken = asyncio.run(read())
    assert broken.finish_reason == "length"
    assert broken.text.startswith(snapshot.text)
    assert broken.text.count(snapshot.text.split()[-1]) < (900 - len(snapshot.tokens)) / 7 / 2
    stopped = asyncio.run(read(no_repeat_ngram_size=0))
    assert stopped.finish_reason == "repetition"
    assert stopped.text == snapshot.text
    assert stopped.output_tokens < 500


def test_cancelling_stops_the_model_and_the_next_page_is_read(looping, page):
    """A cancelled page does not hold up the next one until its token limit, and its error is the caller's own."""
    folder, snapshot = looping

    async def read():
        async with TransformersEngine(folder, trust_remote_code=True) as engine:
            await engine.transcribe(page(300, 200), max_tokens=1)
            task = asyncio.create_task(
                engine.transcribe(page(300, 200), max_tokens=10**9, temperature=100.0, no_repeat_ngram_size=0)
            )
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await engine.transcribe(page(300, 200), max_tokens=20)

    assert snapshot.text.startswith(asyncio.run(read()).text)


def test_handles_share_one_model_and_pages_wait_for_each_other(ending, page):
    """Four threads with a handle and a loop each get the known text from one model, freed with the last handle."""
    from local_engine import transformers_engine

    folder, snapshot = ending
    texts = []

    def work(number):
        async def read():
            async with TransformersEngine(folder, trust_remote_code=True) as engine:
                texts.append((await engine.transcribe(page(300, 200, number))).text)
                assert len(transformers_engine._models) == 1

        asyncio.run(read())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [snapshot.text] * 4
    assert len(transformers_engine._models) == 0


def test_running_the_snapshots_code_must_be_allowed(ending):
    """Without `trust_remote_code` nothing is loaded, and the error says what would run."""
    folder, _ = ending
    with pytest.raises(EngineSetupError, match=r"runs the Python files.*trust_remote_code=True.*vLLM"):
        TransformersEngine(folder)


def test_a_snapshot_without_code_says_what_it_lacks(snapshots, page):
    """A snapshot that holds no Python files cannot be loaded: one readable error."""

    async def read():
        async with TransformersEngine(snapshots(kind="cycle").path, trust_remote_code=True) as engine:
            await engine.transcribe(page(300, 200))

    with pytest.raises(EngineSetupError, match=r"Python files in .*: none"):
        asyncio.run(read())


def test_a_closed_engine_says_so(ending, page):
    """Closing twice is fine; reading afterwards is an error."""
    folder, _ = ending

    async def read():
        engine = TransformersEngine(folder, trust_remote_code=True)
        await engine.aclose()
        await engine.aclose()
        with pytest.raises(EngineClosedError):
            await engine.transcribe(page(300, 200))

    asyncio.run(read())
