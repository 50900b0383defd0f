"""Which pages are taken up and when, with vLLM's own scheduler, requests and cache beneath."""

import random
from collections import deque
from functools import reduce
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.engine

BLOCKS = 1001  # of the key-value cache, one of them vLLM's own
SIZE = 16  # tokens of a block
PROMPT = 300  # tokens
LAYER = "language_model.model.layers.0.self_attn.attn"


def configure(snapshot: Any, k: int = 0, **additional: Any) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs

    from local_engine import vllm_llm_kwargs

    settings = {
        "max_model_len": 20_000,
        "enforce_eager": True,
        "enable_prefix_caching": False,
        "async_scheduling": True,
        "additional_config": additional,
    }
    config = AsyncEngineArgs(**vllm_llm_kwargs(snapshot.path, k, **settings)).create_engine_config()
    config.cache_config.num_gpu_blocks = BLOCKS  # as the engine does once it knows the memory
    config.scheduler_config.async_scheduling = True  # as on a GPU
    return config


@pytest.fixture(scope="module")
def config(snapshots: Any) -> Any:
    return configure(snapshots())


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


@pytest.fixture
def sending(config: Any, monkeypatch: Any) -> Any:
    """A scheduler that sends pages ahead, though nothing here encodes them: the newer runner needs a GPU."""
    from local_engine import scheduling

    monkeypatch.setattr(scheduling, "encodes_ahead", lambda config: True)
    return make(scheduling.make_scheduler, config)


def request(name: str, max_tokens: int = 50) -> Any:
    from vllm import SamplingParams
    from vllm.multimodal.inputs import MultiModalFeatureSpec, MultiModalKwargsItem, PlaceholderRange
    from vllm.v1.request import Request

    page = MultiModalFeatureSpec(MultiModalKwargsItem({}), "image", f"page {name}", PlaceholderRange(1, 273))
    return Request(name, [5] * PROMPT, SamplingParams(max_tokens=max_tokens), None, mm_features=[page])


def step(scheduler: Any, encoded: tuple[str, ...] = ()) -> Any:
    """One step of the engine: every page whose prompt is done gets a token; the worker says which are encoded."""
    output = scheduler.schedule()
    names = list(output.num_scheduled_tokens)
    answer = results(names, [[7] if decoded(scheduler, name) else [] for name in names])
    answer.pages_encoded = [f"page {name}" for name in encoded]  # as `PageWorker` does
    scheduler.update_from_output(output, answer)
    return output


def decoded(scheduler: Any, name: str) -> bool:
    """Whether the step just scheduled gives a page a token."""
    return not scheduler.requests[name].is_prefill_chunk


def results(names: list[str], tokens: list[list[int]]) -> Any:
    from vllm.v1.outputs import ModelRunnerOutput

    return ModelRunnerOutput(names, {name: n for n, name in enumerate(names)}, tokens)


def admitted(output: Any) -> list[tuple[str, bool]]:
    """New requests of a step, and whether the page comes with them."""
    return [(new.req_id, new.mm_features[0].data is not None) for new in output.scheduled_new_reqs]


def ahead(output: Any) -> list[str]:
    return [page.identifier for page in output.pages_ahead]


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


@pytest.mark.parametrize("k", [0, 3])
def test_no_page_is_preempted_with_steps_under_way(snapshots: Any, k: int) -> None:
    """However late results come and however many drafts are refused, pages fit to their last token and are read."""
    from local_engine.scheduling import make_scheduler

    config = configure(snapshots(), k, encode_ahead=False)
    scheduler = make(make_scheduler, config)
    steps = config.max_concurrent_batches
    assert steps > 1
    pages = [request(str(number), max_tokens=700) for number in range(40)]
    for page in pages:
        scheduler.add_request(page)
    accepted, under_way, most = random.Random(0), deque[Any](), 0
    while any(not page.is_finished() for page in pages):
        output = scheduler.schedule()
        under_way.append((output, [name for name in output.num_scheduled_tokens if decoded(scheduler, name)]))
        most = max(most, len(under_way))
        if len(under_way) < steps:
            continue
        output, decoding = under_way.popleft()
        names = list(output.num_scheduled_tokens)
        drafts = {name: len(output.scheduled_spec_decode_tokens.get(name, ())) for name in names}
        tokens = [[7] * (1 + accepted.randint(0, drafts[name])) if name in decoding else [] for name in names]
        scheduler.update_from_output(output, results(names, tokens))
    assert most == steps
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
    output = step(scheduler)
    assert [name for name, _ in admitted(output)] == ["a", "b", "c", "d"]
    for _ in range(4):
        assert admitted(step(scheduler)) == []
    assert admitted(step(scheduler)) == []  # "a" has ended, but the four others together are too many
    scheduler.finish_requests("b", aborted())
    assert admitted(step(scheduler)) == [("e", True)]


def test_a_page_larger_than_the_cache_is_read_alone(scheduler: Any) -> None:
    """It may well end before its token limit."""
    for name in "ab":
        scheduler.add_request(request(name, max_tokens=18_000))
    assert admitted(step(scheduler)) == [("a", True)]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("additional_config", {"encode_ahead": False}),
        ("model_config.hf_config.architectures", ["JinaOCRForCausalLM"]),
        ("model_config.multimodal_config.mm_processor_cache_gb", 4),
        ("parallel_config.worker_cls", "auto"),
        ("parallel_config.pipeline_parallel_size", 2),
        ("use_v2_model_runner", False),
        ("cache_config.enable_prefix_caching", True),
    ],
)
def test_pages_are_encoded_ahead_only_where_that_is_safe(place: str, value: object) -> None:
    """Our model and worker, vLLM's newer runner, and names that no two pages share; it can be switched off."""
    from local_engine.scheduling import encodes_ahead

    config = SimpleNamespace(
        additional_config={},
        use_v2_model_runner=True,
        cache_config=SimpleNamespace(enable_prefix_caching=False),
        model_config=SimpleNamespace(
            hf_config=SimpleNamespace(architectures=["JinaOCRFastForCausalLM"]),
            multimodal_config=SimpleNamespace(mm_processor_cache_gb=0),
        ),
        parallel_config=SimpleNamespace(worker_cls="local_engine.worker.PageWorker", pipeline_parallel_size=1),
    )
    assert encodes_ahead(config)
    set_at(config, place, value)
    assert not encodes_ahead(config)


def set_at(config: Any, place: str, value: object) -> None:
    *path, name = place.split(".")
    setattr(reduce(getattr, path, config), name, value)


def test_nothing_is_sent_ahead_on_a_cpu(scheduler: Any) -> None:
    """Pages come with the step that takes them up."""
    scheduler.add_request(request("a"))
    step(scheduler)
    scheduler.add_request(request("b"))
    output = step(scheduler)
    assert (admitted(output), ahead(output)) == ([("b", True)], [])


def test_a_page_alone_is_admitted_at_once(sending: Any) -> None:
    """Where nothing is decoded meanwhile, the first step takes the page itself."""
    sending.add_request(request("a"))
    output = step(sending)
    assert (admitted(output), ahead(output)) == ([("a", True)], [])


def test_a_page_is_encoded_while_another_is_decoded(sending: Any) -> None:
    """It is sent once, held until the worker has encoded it, and then admitted without being sent again."""
    first, second = request("a"), request("b")
    sending.add_request(first)
    step(sending)
    sending.add_request(second)
    output = step(sending)
    assert (admitted(output), ahead(output), list(output.num_scheduled_tokens)) == ([], ["page b"], ["a"])
    output = step(sending, encoded=("b",))
    assert (admitted(output), ahead(output)) == ([], [])
    output = step(sending)
    assert (admitted(output), ahead(output)) == ([("b", False)], [])
    assert second.mm_features[0].data is not None  # for vLLM, should it have to begin this page again


def test_pages_wait_in_order_and_few_are_sent(sending: Any) -> None:
    """As many as may be are sent at once; later pages do not overtake those that are being encoded."""
    from local_engine.scheduling import PAGES

    sending.add_request(request("first"))
    step(sending)
    names = [str(number) for number in range(2 * PAGES)]
    for name in names:
        sending.add_request(request(name))
    sent, taken = [], []
    for number in range(6 * PAGES):  # the worker encodes one after the other
        output = step(sending, encoded=tuple(names[number - 1 : number]) if number else ())
        sent += ahead(output)
        assert len(sent) == min(len(taken) + PAGES, len(names))
        taken += [name for name, _ in admitted(output)]
    assert taken == names
    assert sent == [f"page {name}" for name in names]


def test_the_last_page_does_not_wait_for_nobody(sending: Any) -> None:
    """When nothing is decoded any more, held pages are admitted; the step waits for them on the device."""
    sending.add_request(request("a", max_tokens=2))
    step(sending)
    sending.add_request(request("b"))
    step(sending)
    assert admitted(step(sending)) == [("b", False)]


def test_a_dropped_page_is_forgotten_by_the_worker(sending: Any) -> None:
    """Who stops a page that was sent ahead leaves nothing on the device."""
    sending.add_request(request("a"))
    step(sending)
    sending.add_request(request("b"))
    step(sending)
    sending.finish_requests("b", aborted())
    output = step(sending)
    assert output.free_encoder_mm_hashes == ["page b"]
    assert not sending.waiting
    assert step(sending).free_encoder_mm_hashes == []


def aborted() -> Any:
    from vllm.v1.request import RequestStatus

    return RequestStatus.FINISHED_ABORTED
