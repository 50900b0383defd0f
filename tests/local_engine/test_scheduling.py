"""Which pages are taken up and when, with vLLM's own scheduler, requests and cache beneath."""

from typing import Any

import pytest

pytestmark = pytest.mark.engine

BLOCKS = 1001  # of the key-value cache, one of them vLLM's own
SIZE = 16  # tokens of a block
PROMPT = 300  # tokens
LAYER = "language_model.model.layers.0.self_attn.attn"


@pytest.fixture(scope="module")
def config(snapshots: Any) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs

    from local_engine import vllm_llm_kwargs

    settings = {
        "max_model_len": 20_000,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "async_scheduling": True,
    }
    config = AsyncEngineArgs(**vllm_llm_kwargs(snapshots().path, 0, **settings)).create_engine_config()
    config.cache_config.num_gpu_blocks = BLOCKS  # as the engine does once it knows the memory
    config.scheduler_config.async_scheduling = True  # as on a GPU
    return config


def make(kind: Any, config: Any) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    layer = FullAttentionSpec(block_size=SIZE, num_kv_heads=4, head_size=64, dtype=torch.float32)
    return kind(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(BLOCKS, [], [KVCacheGroupSpec([LAYER], layer)]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=SIZE,
    )


@pytest.fixture
def scheduler(config: Any) -> Any:
    from local_engine.scheduling import make_scheduler

    return make(make_scheduler, config)


def request(name: str, max_tokens: int = 50) -> Any:
    from vllm import SamplingParams
    from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItem, PlaceholderRange
    from vllm.v1.request import Request

    page = MultiModalFeatureSpec(MultiModalKwargsItem({}), "image", f"page {name}", PlaceholderRange(1, 273))
    return Request(name, [5] * PROMPT, SamplingParams(max_tokens=max_tokens), None, mm_features=[page])


def step(scheduler: Any) -> Any:
    """One step of the engine: every page whose prompt is done gets a token."""
    from vllm.v1.outputs import ModelRunnerOutput

    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    tokens = [[] if scheduler.requests[name].is_prefill_chunk else [7] for name in names]
    scheduler.update_from_output(output, ModelRunnerOutput(names, {name: n for n, name in enumerate(names)}, tokens))
    return output


def admitted(output: Any) -> list[str]:
    return [new.req_id for new in output.scheduled_new_reqs]


def read_all(scheduler: Any) -> list[Any]:
    """Read forty pages that do not fit into the cache together, to the end."""
    pages = [request(str(number), max_tokens=700) for number in range(40)]
    for page in pages:
        scheduler.add_request(page)
    while any(not page.is_finished() for page in pages):
        step(scheduler)
    return pages


def test_no_page_is_preempted(scheduler: Any) -> None:
    """Pages are admitted only while the cache holds them to their last token, and all are read."""
    pages = read_all(scheduler)
    assert [page.num_output_tokens for page in pages] == [700] * 40
    assert sum(page.num_preemptions for page in pages) == 0


def test_vllm_itself_would_preempt_them(config: Any) -> None:
    """The cache of the test above is small enough to tell."""
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    assert sum(page.num_preemptions for page in read_all(make(AsyncScheduler, config))) > 0


def test_the_cache_is_used(scheduler: Any) -> None:
    """As many pages are taken up as fit, and the next one as soon as one has ended."""
    for name in "abcde":
        scheduler.add_request(request(name, max_tokens=4000 if name > "a" else 5))
    assert admitted(step(scheduler)) == ["a", "b", "c", "d"]
    for _ in range(4):
        assert admitted(step(scheduler)) == []
    assert admitted(step(scheduler)) == []  # "a" has ended, but the four others together are too many
    scheduler.finish_requests("b", aborted())
    assert admitted(step(scheduler)) == ["e"]


def test_a_page_larger_than_the_cache_is_read_alone(scheduler: Any) -> None:
    """It may well end before its token limit."""
    for name in "ab":
        scheduler.add_request(request(name, max_tokens=18_000))
    assert admitted(step(scheduler)) == ["a"]


def aborted() -> Any:
    from vllm.v1.request import RequestStatus

    return RequestStatus.FINISHED_ABORTED
