"""How many steps of the model are under way at once.

With asynchronous scheduling vLLM has two: one runs on the GPU, the next is prepared. Which is the one after that, the
scheduler says when it has the first one's result, and that takes its way: an interrupt, two queues between processes,
the scheduler, the worker's preparations. A lone page's step is short, and the GPU waits. With three under way it need
not. The price is one more step in vain for each page that ends.
"""

from vllm.config import VllmConfig

from local_engine.plugin import STEPS

VLLMS_OWN = 2


class DeeperConfig(VllmConfig):
    """vLLM's configuration with more steps under way."""

    @property
    def max_concurrent_batches(self) -> int:
        return steps_under_way(self)


def steps_under_way(config: VllmConfig) -> int:
    """How many there are: what `additional_config` asks for, or vLLM's own two.

    Only the newer runner keeps what a step needs of those before it on the device, however many they are.
    """
    able = (
        config.use_v2_model_runner
        and config.scheduler_config.async_scheduling
        and config.parallel_config.pipeline_parallel_size == 1
    )
    return max(VLLMS_OWN, int(config.additional_config.get(STEPS, VLLMS_OWN))) if able else VLLMS_OWN


def deepen(config: VllmConfig) -> None:
    """Have vLLM keep so many steps under way; to be called in each of its processes before it makes room for them."""
    if steps_under_way(config) > VLLMS_OWN:
        config.__class__ = DeeperConfig
