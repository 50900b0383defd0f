"""What the tests of the local engine share: tiny snapshots, and vLLM in this process."""

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

HAS_VLLM = find_spec("vllm") is not None

if HAS_VLLM:
    # vLLM reads these when it is imported. No process of its own: a test starts in seconds and can exchange a class.
    os.environ.update(
        HF_HUB_OFFLINE="1",
        VLLM_CPU_KVCACHE_SPACE="1",
        VLLM_CPU_OMP_THREADS_BIND="0-1",
        VLLM_ENABLE_V1_MULTIPROCESSING="0",
        VLLM_LOGGING_LEVEL="WARNING",
        VLLM_NO_USAGE_STATS="1",
    )

Page = Image.Image
Snapshots = Callable[..., Any]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not HAS_VLLM:
        for item in items:
            if item.get_closest_marker("engine") and Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="vLLM is not installed here: `make test-engine` runs this"))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Side directories of the tests' snapshots go to a folder of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Snapshots:
    """Write a tiny synthetic snapshot, or return the one that was written with the same options."""
    from local_engine.synthetic import write_snapshot

    written: dict[tuple[Any, ...], Any] = {}

    def snapshot(**options: Any) -> Any:
        key = tuple(sorted(options.items()))
        if key not in written:
            written[key] = write_snapshot(tmp_path_factory.mktemp("snapshot"), **options)
        return written[key]

    return snapshot


@contextmanager
def start_llm(model: Any, k: int = 0, **settings: Any) -> Iterator[Any]:
    """vLLM's `LLM` in this process, in fp32, on the card's arguments; gone when the block ends. One at a time."""
    from vllm import LLM
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    from local_engine import vllm_llm_kwargs

    defaults = {"dtype": "float32", "enforce_eager": True, "max_model_len": 4096}
    llm = LLM(**vllm_llm_kwargs(model, k, **{**defaults, **settings}))
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()
        del llm
        gc.collect()
        cleanup_dist_env_and_memory()


@pytest.fixture(scope="session")
def page() -> Callable[[int, int, int], Page]:
    """A page of so many pixels with lines of grey boxes on it; each seed draws others."""

    def draw(width: int, height: int, seed: int = 0) -> Page:
        image = Image.new("RGB", (width, height), "white")
        pen = ImageDraw.Draw(image)
        for line in range(height // 40):
            for column in range(width // 30):
                shade = (seed * 7919 + line * 104729 + column * 1299709) % 251
                pen.rectangle(
                    (column * 30, line * 40, column * 30 + 22, line * 40 + 24), fill=(shade, shade, 255 - shade)
                )
        return image

    return draw


def read(llm: Any, images: list[Page], **sampling: Any) -> list[Any]:
    """The card's recipe: one chat per page, the default prompt, the card's sampling."""
    from local_engine import DEFAULT_OCR_PROMPT, vllm_sampling_params

    chats = [
        [
            {
                "role": "user",
                "content": [
                    {"type": "image_pil", "image_pil": image},
                    {"type": "text", "text": DEFAULT_OCR_PROMPT},
                ],
            }
        ]
        for image in images
    ]
    return list(llm.chat(chats, sampling_params=vllm_sampling_params(**sampling), use_tqdm=False))


def token_ids(outputs: list[Any]) -> list[list[int]]:
    """What was generated for each page."""
    return [list(output.outputs[0].token_ids) for output in outputs]


def accepted(llm: Any) -> tuple[int, list[int]]:
    """Drafts made by this `LLM`, and how many of them were accepted at each position."""
    counters = {metric.name: metric for metric in llm.get_metrics()}
    positions = counters["vllm:spec_decode_num_accepted_tokens_per_pos"].values
    return int(counters["vllm:spec_decode_num_drafts"].value), [int(value) for value in positions]
