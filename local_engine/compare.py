"""Compares what the engine reads with what the model card's recipe reads: what `jina-ocr engine compare` runs.

    python -m local_engine.compare [MODEL] [page.png ...] [--drafts 0 3] [--max-tokens 1085]

The recipe in fp32 is the reference; the recipe itself, in bf16, and the engine with each K are compared with it. In
bf16 two ways to add the same numbers differ in the last bits, so that either of two nearly equal tokens may come, after
which the texts go different ways. What counts is how nearly equal the two were, the gap, and how far the logprobs are
apart up to there: an engine that is right is about as far from the reference as the recipe is.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from local_engine.settings import EngineSettings, default_environment
from local_engine.setups import (
    CARD,
    Setup,
    can_run,
    in_process,
    markdown_table,
    options,
    pages_of,
    read_all,
    start_card,
)
from local_engine.snapshot import resolve

if TYPE_CHECKING:
    from PIL.Image import Image
    from vllm import LLM

EXACT = f"{CARD}, fp32"
LISTED = 10  # likeliest tokens whose logprobs are kept
# Arguments of `LLM`, so that it lists those that the tokens were chosen by.
SCORED = {"logprobs_mode": "processed_logprobs", "max_logprobs": LISTED}


@dataclass(frozen=True)
class Text:
    """What was read on a page.

    Attributes:
        tokens: their ids.
        logprobs: by token id, of the likeliest tokens at each position, the repetition penalty applied; natural
            logarithms.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[dict[int, float], ...] = field(repr=False)


@dataclass(frozen=True)
class Comparison:
    """How two readings of the same pages differ.

    Attributes:
        names: of both, the reference second.
        pages: compared.
        common: tokens that both have, up to where each page's texts part.
        gaps: of the pages whose texts part, by how much the reference held its own token there for likelier, in nats.
        drift: root mean square difference of the logprobs of all tokens listed by both, up to there.
    """

    names: tuple[str, str]
    pages: int
    common: int
    gaps: tuple[float, ...]
    drift: float

    @property
    def widest(self) -> float:
        """The largest gap; 0 where no page parts."""
        return max(self.gaps, default=0.0)


def compare(name: str, texts: Sequence[Text], reference_name: str, reference: Sequence[Text]) -> Comparison:
    """Compare readings of the same pages, page by page."""
    common, gaps, squares = 0, [], []
    for text, right in zip(texts, reference, strict=True):
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text.tokens, right.tokens, strict=False)))
        for ours, theirs in zip(text.logprobs[:same], right.logprobs[:same], strict=True):
            squares += [(ours[token] - theirs[token]) ** 2 for token in ours.keys() & theirs.keys()]
        common += same
        if same < max(len(text.tokens), len(right.tokens)):
            gaps.append(_gap(text, right, same))
    drift = math.sqrt(sum(squares) / len(squares)) if squares else 0.0
    return Comparison((name, reference_name), len(reference), common, tuple(gaps), drift)


def _gap(text: Text, reference: Text, at: int) -> float:
    if at >= min(len(text.tokens), len(reference.tokens)):
        return math.inf  # one goes on where the other was cut
    listed = reference.logprobs[at]
    return listed[reference.tokens[at]] - listed.get(text.tokens[at], min(listed.values()))


def table(comparisons: Sequence[Comparison]) -> str:
    """The comparisons as a Markdown table, one a row."""
    head = ["reading", "compared with", "same text", "tokens in common", "widest gap", "logprobs apart"]
    rows = []
    for c in comparisons:
        same = f"{c.pages - len(c.gaps)} of {c.pages} pages"
        rows.append([*c.names, same, str(c.common), f"{c.widest:.3f}" if c.gaps else "-", f"{c.drift:.4f}"])
    return markdown_table(head, rows)


def read_setup(setup: Setup) -> list[Text]:
    """Read the setup's pages in this process, all together."""
    images = pages_of(setup.images)
    if setup.name in (CARD, EXACT):
        return read_texts(start_card(setup, **SCORED), images, setup.max_tokens)
    settings = EngineSettings.of(setup.model, setup.num_speculative_tokens, engine_args=setup.engine_args)
    with default_environment(settings.environment()):
        from vllm import LLM

        llm = LLM(**(settings.arguments(resolve(setup.model)) | SCORED))
        return read_texts(llm, images, setup.max_tokens)


def read_texts(llm: "LLM", images: Sequence["Image"], max_tokens: int) -> list[Text]:
    """Texts of pages read in one call, loops not stopped, by an `LLM` made with `SCORED`."""
    outputs = read_all(llm, images, max_tokens, repetition_detection=None, logprobs=LISTED)
    texts = []
    for output in outputs:
        (completion,) = output.outputs
        positions = completion.logprobs or ()
        logprobs = tuple({token: each.logprob for token, each in position.items()} for position in positions)
        texts.append(Text(tuple(completion.token_ids), logprobs))
    return texts


def _loaded(pages: Sequence[Any]) -> list[Text]:
    """Texts as JSON gives them back: its keys are strings."""
    return [
        Text(tuple(tokens), tuple({int(token): value for token, value in at.items()} for at in logprobs))
        for tokens, logprobs in ((page["tokens"], page["logprobs"]) for page in pages)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = options("jina-ocr engine compare", "Compare the texts with the card recipe's.", [0, 3])
    chosen = parser.parse_args(arguments)
    if not can_run("engine compare", chosen.model):
        return 1
    card = Setup(CARD, chosen.model, images=tuple(chosen.images), max_tokens=chosen.max_tokens)
    engines = [
        replace(card, name=f"K = {k}", num_speculative_tokens=k, engine_args=chosen.engine_args)
        for k in sorted({0, *chosen.drafts})
    ]
    # Uncompiled: read once, compiling would take longer than the pages do.
    exact = replace(card, name=EXACT, engine_args={"dtype": "float32", "enforce_eager": True})
    texts: dict[str, list[Text]] = {}
    for setup in (exact, card, *engines):
        result = in_process("local_engine.compare:read_setup", setup)
        if result is None:
            return 1
        texts[setup.name] = _loaded(result)
    reference = texts.pop(EXACT)
    comparisons = [compare(name, read, EXACT, reference) for name, read in texts.items()]
    print(table(comparisons))
    return 0


if __name__ == "__main__":
    sys.exit(main())
