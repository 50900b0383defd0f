"""vLLM's worker with pages encoded beside the steps that decode others, and one kernel launched more carefully."""

from functools import partial
from typing import Any

import torch
from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils
from vllm.v1.worker.gpu_worker import Worker


class OneWarp:
    """A Triton kernel that is launched with one warp."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
        return partial(self._kernel[grid], num_warps=1)


def mend_resampling() -> None:
    """Launch vLLM's `_insert_resampled_kernel` with one warp instead of four.

    It reads the number of accepted drafts, writes back one more, and goes by what it read. No barrier parts the two: a
    warp that comes late reads the new number, leaves, and its share of the vocabulary is missing when the likeliest
    token is searched for, so that the second likeliest wins; of the batch's last page it reads beyond the end. Seen on
    an H200 where pages are encoded beside the steps (docs/performance.md), in vLLM 0.26 to 0.32.
    """
    kernel = rejection_sampler_utils._insert_resampled_kernel
    if not isinstance(kernel, OneWarp):
        rejection_sampler_utils._insert_resampled_kernel = OneWarp(kernel)


class PageWorker(Worker):
    """Encodes the pages that `PageScheduler` sends ahead."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        mend_resampling()
        self._encodings: dict[str, torch.cuda.Event] = {}  # by identifier, until the page is taken or dropped
        self._unsaid: dict[str, torch.cuda.Event] = {}  # those of whose end the scheduler was not told

    def execute_model(self, scheduler_output: Any) -> Any:
        for identifier in scheduler_output.free_encoder_mm_hashes:
            self._encodings.pop(identifier, None)
        for new in scheduler_output.scheduled_new_reqs:
            for page in new.mm_features:
                if encoding := self._encodings.pop(page.identifier, None):
                    encoding.wait()
        output = super().execute_model(scheduler_output)
        for page in getattr(scheduler_output, "pages_ahead", ()):  # vLLM's own warm-up has none
            self._encode(page)
        return output

    def sample_tokens(self, grammar_output: Any) -> Any:
        output = super().sample_tokens(grammar_output)
        encoded = [identifier for identifier, encoding in self._unsaid.items() if encoding.query()]
        if encoded:
            output.model_runner_output.pages_encoded = encoded
            for identifier in encoded:
                del self._unsaid[identifier]
        return output

    def _encode(self, page: Any) -> None:
        runner = self.model_runner
        stream = runner.model.vision_stream
        with torch.cuda.stream(stream):
            (embedding,) = runner.model_state.encoder_runner.execute_mm_encoder([(page.modality, page.data)])
            self._encodings[page.identifier] = self._unsaid[page.identifier] = stream.record_event()
        embedding.record_stream(torch.cuda.current_stream())
        runner.encoder_cache.encoder_outputs[page.identifier] = embedding
