"""How the target routes tokens to experts."""

import pytest

pytestmark = pytest.mark.engine

ONE_GROUP = {"top_k": 6, "global_num_experts": 64, "num_expert_group": 1, "topk_group": 1, "renormalize": False}


def test_experts_of_one_group_are_chosen_as_by_plain_top_k():
    """What vLLM's grouped router gives for one group is the softmax's six largest: what the plain kernel computes."""
    import torch
    from vllm.model_executor.layers.fused_moe.router.fused_topk_router import FusedTopKRouter
    from vllm.model_executor.layers.fused_moe.router.grouped_topk_router import GroupedTopKRouter

    from local_engine.target import ungrouped

    grouped = GroupedTopKRouter(**ONE_GROUP)
    plain = ungrouped(grouped)
    assert isinstance(plain, FusedTopKRouter)
    assert (plain.top_k, plain.global_num_experts, plain.scoring_func) == (6, 64, "softmax")
    assert plain.renormalize is False
    logits = torch.randn(50, 64, generator=torch.Generator().manual_seed(0))
    with torch.compiler.set_stance("force_eager"):
        weights, experts = grouped._compute_routing(torch.empty(50, 8), logits, None)
    expected, chosen = logits.softmax(dim=-1).topk(6)
    assert torch.equal(experts.sort(dim=-1).values, chosen.sort(dim=-1).values.int())
    assert torch.allclose(weights.sort(dim=-1).values, expected.sort(dim=-1).values)


@pytest.mark.parametrize("other", [{"num_expert_group": 8, "topk_group": 3}, {"routed_scaling_factor": 2.5}])
def test_any_other_routing_is_left_to_vllm(other):
    """Several groups, or weights that are scaled, are not what the plain kernel computes."""
    from vllm.model_executor.layers.fused_moe.router.grouped_topk_router import GroupedTopKRouter

    from local_engine.target import ungrouped

    router = GroupedTopKRouter(**ONE_GROUP | other)
    assert ungrouped(router) is router
