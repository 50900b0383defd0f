"""Which pages a step of vLLM takes up: only those that the key-value cache holds to their last token.

vLLM admits a page while the cache has room for its prompt, and preempts one when the cache is full: that page is begun
again. vLLM 0.26 gets its counts wrong then, if steps are scheduled ahead of their results: texts came out wrong, and an
engine died (docs/performance.md).
"""

from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler


def make_scheduler(vllm_config: VllmConfig, **arguments: Any) -> Scheduler:
    """The scheduler for an engine: vLLM's `scheduler_cls`."""
    kind = PageScheduler if vllm_config.scheduler_config.async_scheduling else Scheduler
    return kind(vllm_config=vllm_config, **arguments)


class PageScheduler(AsyncScheduler):
    """vLLM's scheduler, which waits with a page until the cache has room for all of it."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._blocks = self.kv_cache_manager.block_pool.num_gpu_blocks - 1  # one is vLLM's own

    def schedule(self, *arguments: Any, **options: Any) -> Any:
        held = self._held() if self.waiting else []
        self.waiting.remove_requests(held)
        output = super().schedule(*arguments, **options)
        for request in held:
            self.waiting.add_request(request)
        return output

    def _held(self) -> list[Any]:
        """Waiting requests that vLLM is not to see yet: from the first that does not fit on."""
        free = self._blocks - sum(map(self._most_blocks, self.running))
        for number, request in enumerate(self.waiting):
            free -= self._most_blocks(request)
            alone = not self.running and number == 0  # it may end before its token limit
            if free < 0 and not alone:
                return list(self.waiting)[number:]
        return []

    def _most_blocks(self, request: Any) -> int:
        """Blocks of the cache that a request may come to hold: two steps are under way, and drafts beyond them."""
        tokens = request.num_prompt_tokens + request.max_tokens + 3 * (1 + self.num_spec_tokens)
        return -(-tokens // self.block_size)
