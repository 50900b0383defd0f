"""Drafts in one CUDA graph. That they are the same takes a GPU: `jina-ocr bench engine` tells their acceptance."""

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.engine


@pytest.fixture
def graphs() -> list[Any]:
    """Shapes of the graphs replayed."""
    return []


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Arguments of vLLM's own loop over the drafts, which would launch kernels."""
    from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

    called: list[Any] = []
    monkeypatch.setattr(EagleSpeculator, "_multi_step_decode", lambda _self, *arguments: called.append(arguments))
    return called


@pytest.fixture
def speculator(graphs: list[Any]) -> Any:
    from local_engine.drafting import OneGraphSpeculator

    one = object.__new__(OneGraphSpeculator)
    one._together = SimpleNamespace(run_fullgraph=graphs.append)
    return one


def shape(mode: str) -> Any:
    from vllm.config.compilation import CUDAGraphMode
    from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor

    return BatchExecutionDescriptor(CUDAGraphMode[mode], num_tokens=4, num_reqs=4)


def test_all_drafts_are_one_graph(speculator: Any, graphs: list[Any], loops: list[Any]) -> None:
    """Where vLLM would replay a graph for each draft, one is replayed for all."""
    speculator._multi_step_decode(3, False, shape("FULL"), None)
    assert graphs == [shape("FULL")]
    assert loops == []


def test_without_graphs_vllm_drafts(speculator: Any, graphs: list[Any], loops: list[Any]) -> None:
    """A batch that has no graph goes through vLLM's own loop as it is."""
    speculator._multi_step_decode(3, True, shape("NONE"), None)
    assert graphs == []
    assert loops == [(3, True, shape("NONE"), None)]


@pytest.mark.parametrize("metadata", [{}, None])
def test_the_graph_holds_vllms_own_loop(speculator: Any, loops: list[Any], metadata: Any) -> None:
    """It is captured from the loop that makes slots and metadata before each draft, with no graph inside."""
    speculator._draft_all(4, 4, metadata, None, None, shape("NONE").cg_mode)
    assert loops == [(4, metadata is None, shape("NONE"), None)]


@pytest.mark.parametrize(("own", "switch", "ours"), [(False, True, True), (False, False, False), (True, True, False)])
def test_only_vllms_own_speculator_is_replaced(monkeypatch: Any, own: bool, switch: bool, ours: bool) -> None:
    """Not where it is switched off, and not in a vLLM that drafts in one graph itself."""
    from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

    from local_engine import drafting

    monkeypatch.setattr(drafting, "_vllm_has_its_own", lambda: own)
    monkeypatch.setattr(drafting.OneGraphSpeculator, "__init__", lambda *_: None)  # it takes a configured model
    runner = SimpleNamespace(speculator=object.__new__(EagleSpeculator), device="cuda:0")
    drafting.draft_in_one_graph(runner, SimpleNamespace(additional_config={"one_graph_drafts": switch}))
    assert isinstance(runner.speculator, drafting.OneGraphSpeculator) == ours


@pytest.mark.parametrize("runner", [SimpleNamespace(), SimpleNamespace(speculator=None)])
def test_a_runner_that_does_not_draft_is_left_alone(runner: Any) -> None:
    """The older runner and one without drafts have no speculator."""
    from local_engine.drafting import draft_in_one_graph

    draft_in_one_graph(runner, SimpleNamespace(additional_config={}))
    assert getattr(runner, "speculator", None) is None


def test_newer_vllm_has_its_own() -> None:
    """The vLLM that is tested on the CPU makes such a graph itself, for FlashAttention too."""
    import vllm
    from vllm.v1.attention.backends.flash_attn import FlashAttentionMetadataBuilder

    from local_engine.drafting import _vllm_has_its_own

    assert vllm.__version__.startswith("0.32")
    assert _vllm_has_its_own()
    assert FlashAttentionMetadataBuilder.update_draft_decode_metadata
