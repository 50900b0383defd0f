"""Which pages a step of vLLM takes up, and which are encoded beside the steps that decode others.

vLLM admits a page while the key-value cache has room for its prompt, and preempts one when the cache is full: that page
is begun again. vLLM 0.26 gets its counts wrong then, if steps are scheduled ahead of their results: texts came out
wrong, and an engine died. So a page is only admitted here if it fits to its last token.

Encoding ahead: vLLM encodes a page within the step that first needs it, and every page in decoding waits for that. Here
a new page is sent to the worker at once (`local_engine.worker`), encoded on the vision stream while steps go on, and
admitted when the worker says that it is encoded. (Nothing depends on that word: a step that takes a page waits for it
on the device.) The scheduler's output carries `pages_ahead`, the model runner's `pages_encoded`.
"""

from dataclasses import replace
from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from local_engine.plugin import ENCODE_AHEAD, FAST_TARGET, WORKER

PAGES = 4  # sent ahead and not yet admitted, at most: enough that the vision stream never waits for the next


def encodes_ahead(config: VllmConfig) -> bool:
    """Whether an engine encodes pages ahead.

    Only the newer runner looks embeddings up by name, and pages have names of their own only without caches.
    """
    return bool(
        config.additional_config.get(ENCODE_AHEAD, True)
        and config.model_config.hf_config.architectures == [FAST_TARGET]
        and config.parallel_config.worker_cls == WORKER
        and config.use_v2_model_runner
        and not config.cache_config.enable_prefix_caching
        and not config.model_config.multimodal_config.mm_processor_cache_gb
        and config.parallel_config.pipeline_parallel_size == 1
    )


def make_scheduler(vllm_config: VllmConfig, **arguments: Any) -> Scheduler:
    """The scheduler for an engine: vLLM's `scheduler_cls`."""
    kind = PageScheduler if vllm_config.scheduler_config.async_scheduling else Scheduler
    return kind(vllm_config=vllm_config, **arguments)


class PageScheduler(AsyncScheduler):
    """vLLM's scheduler, which waits with a page until it fits into the cache and is encoded."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._encodes_ahead = encodes_ahead(self.vllm_config)
        self._blocks = self.kv_cache_manager.block_pool.num_gpu_blocks - 1  # one is vLLM's own
        self._sent: dict[str, bool] = {}  # pages sent ahead and not yet admitted, by identifier: whether encoded
        self._dropped: list[str] = []  # pages sent ahead whose request ended unadmitted

    def schedule(self, *arguments: Any, **options: Any) -> Any:
        ahead: list[Any] = []
        held: list[Any] = []
        if self.waiting:
            ahead, held = self._send_ahead(), self._held()
            self.waiting.remove_requests(held)
        output = super().schedule(*arguments, **options)
        for request in held:
            self.waiting.add_request(request)
        for new in output.scheduled_new_reqs:
            if any(self._sent.pop(page.identifier, None) is not None for page in new.mm_features):
                new.mm_features = [replace(page, data=None) for page in new.mm_features]  # the worker has it
        output.free_encoder_mm_hashes.extend(self._dropped)
        self._dropped = []
        output.pages_ahead = ahead
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        for identifier in getattr(model_runner_output, "pages_encoded", ()):
            if identifier in self._sent:
                self._sent[identifier] = True
        return super().update_from_output(scheduler_output, model_runner_output)

    def _most_blocks(self, request: Any) -> int:
        """Blocks of the cache that a request may come to hold: steps are under way, and drafts beyond them."""
        steps = self.vllm_config.max_concurrent_batches
        tokens = request.num_prompt_tokens + request.max_tokens + (1 + steps) * (1 + self.num_spec_tokens)
        return -(-tokens // self.block_size)

    def _send_ahead(self) -> list[Any]:
        """The next pages to be sent ahead: those of requests that wait for their encoding, as many as may be."""
        pages = [page for request in self.waiting if self._waits_for_encoding(request) for page in request.mm_features]
        unsent = [page for page in pages if page.identifier not in self._sent]
        ahead = unsent[: PAGES - len(self._sent)]
        self._sent |= {page.identifier: False for page in ahead}
        return ahead

    def _held(self) -> list[Any]:
        """Waiting requests that vLLM is not to see yet: from the first that does not fit or is not encoded on."""
        free = self._blocks - sum(map(self._most_blocks, self.running))
        for number, request in enumerate(self.waiting):
            free -= self._most_blocks(request)
            alone = not self.running and number == 0  # it may end before its token limit
            if (free < 0 and not alone) or self._waits_for_encoding(request):
                return list(self.waiting)[number:]
        return []

    def _waits_for_encoding(self, request: Any) -> bool:
        """Whether a request's page is still to be encoded ahead."""
        # Without others in decoding nothing goes on meanwhile; of a page begun anew vLLM may still have the encoding.
        if not (self._encodes_ahead and self.running) or request.num_preemptions:
            return False
        return not all(self._sent.get(page.identifier) for page in request.mm_features)

    def _free_request(self, request: Any, *arguments: Any, **options: Any) -> Any:
        for page in request.mm_features:
            if self._sent.pop(page.identifier, None) is not None:
                self._dropped.append(page.identifier)
        return super()._free_request(request, *arguments, **options)
