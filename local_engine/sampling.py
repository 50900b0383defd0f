"""How jina-ocr-v1 is sampled, and how vLLM itself stops a loop. Imports vLLM only when parameters for it are made."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.sampling_params import RepetitionDetectionParams

GREEDY: dict[str, float] = {"temperature": 0.0, "repetition_penalty": 1.05}  # model card, "vLLM (FastMTP)"

CARD_REPETITION = {"max_pattern_size": 35, "min_pattern_size": 35, "min_count": 10}  # model card

# vLLM's own check, for where no `LoopGuard` watches (`vllm serve`). It knows one count for all periods, which must be
# larger than the rows of an honest table: `loops.ROW_REPEATS`.
SERVE_REPETITION = {"max_pattern_size": 100, "min_pattern_size": 1, "min_count": 80}


def vllm_sampling_params(
    max_tokens: int = 4096,
    *,
    repetition_detection: "dict[str, int] | RepetitionDetectionParams | None" = CARD_REPETITION,
    **overrides: Any,
) -> "SamplingParams":
    """The model card's sampling: greedy, a repetition penalty, and vLLM's own stop of a repeated pattern.

    Parameters:
        max_tokens: of the answer.
        repetition_detection: `None` turns it off.
        overrides: further fields of vLLM's `SamplingParams`, which win.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RepetitionDetectionParams

    if isinstance(repetition_detection, dict):
        repetition_detection = RepetitionDetectionParams(**repetition_detection)
    fields = {**GREEDY, "max_tokens": max_tokens, "repetition_detection": repetition_detection, **overrides}
    return SamplingParams(**fields)
