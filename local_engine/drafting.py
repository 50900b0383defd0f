"""A step's drafts after the first as one CUDA graph, with all that comes between them.

vLLM 0.26 replays a graph for each draft, and before it makes slots and attention metadata anew: launches from Python,
for which the GPU waits when it reads a lone page. They read and write the same buffers at every step, so one graph can
hold them all. vLLM 0.32 has such a graph of its own.
"""

from typing import Any

from vllm.config import VllmConfig
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor
from vllm.v1.worker.gpu.spec_decode.eagle.speculator import EagleSpeculator

from local_engine.plugin import ONE_GRAPH_DRAFTS


class OneGraphSpeculator(EagleSpeculator):
    """vLLM's speculator for FastMTP, which replays all drafts after the first together."""

    def init_cudagraph_manager(self, cudagraph_mode: CUDAGraphMode) -> None:
        super().init_cudagraph_manager(cudagraph_mode)
        single = self.decode_cudagraph_manager
        self._together = type(single)(
            self.vllm_config, self.device, single.cudagraph_mode, decode_query_len=single.decode_query_len
        )

    def capture(self) -> None:
        super().capture()
        if self.num_speculative_steps == 1:
            return
        self.draft_max_seq_len = self.max_model_len  # the graphs are for pages of any length
        self._together.capture(
            self._draft_all,
            self.model_state,
            self.input_buffers,
            self.block_tables,
            self.attn_groups,
            self.kv_cache_config,
            progress_bar_desc="Capturing CUDA graphs of all drafts",
        )

    def _draft_all(
        self, num_reqs: int, num_tokens: int, attn_metadata: Any, _slots: Any, num_tokens_across_dp: Any, mode: Any
    ) -> None:
        """What a graph holds: vLLM's own loop, without graphs of its own."""
        shape = BatchExecutionDescriptor(mode, num_tokens, num_reqs)
        super()._multi_step_decode(num_reqs, attn_metadata is None, shape, num_tokens_across_dp)

    def _multi_step_decode(
        self, num_reqs: int, skip_attn: bool, batch_desc: BatchExecutionDescriptor, num_tokens_across_dp: Any
    ) -> None:
        if batch_desc.cg_mode == CUDAGraphMode.FULL:
            self._together.run_fullgraph(batch_desc)
        else:
            super()._multi_step_decode(num_reqs, skip_attn, batch_desc, num_tokens_across_dp)


def draft_in_one_graph(runner: Any, config: VllmConfig) -> None:
    """Have a newer model runner that drafts with FastMTP do so in one graph, unless its vLLM does so itself.

    To be called before the runner loads its model.
    """
    wanted = config.additional_config.get(ONE_GRAPH_DRAFTS, True)
    if wanted and type(getattr(runner, "speculator", None)) is EagleSpeculator and not _vllm_has_its_own():
        runner.speculator = OneGraphSpeculator(config, runner.device)


def _vllm_has_its_own() -> bool:
    return hasattr(EagleSpeculator, "_fused_multi_step_decode")
