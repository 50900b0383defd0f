"""vLLM's worker with pages encoded beside the steps that decode others: the other half of `local_engine.scheduling`.

It also has the drafts made in one graph (`local_engine.drafting`).
"""

from typing import Any

import torch
from vllm.v1.worker.gpu_worker import Worker

from local_engine.drafting import draft_in_one_graph


class PageWorker(Worker):
    """Encodes the pages that `PageScheduler` sends ahead."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._encodings: dict[str, torch.cuda.Event] = {}  # by identifier, until the page is taken or dropped
        self._unsaid: dict[str, torch.cuda.Event] = {}  # those of whose end the scheduler was not told

    def init_device(self) -> None:
        super().init_device()
        draft_in_one_graph(self.model_runner, self.vllm_config)

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
