"""The two prompts of the model card, word for word, under the names that options use.

The copy of the card at hand has lost its HTML tags: ``<th>`` and ``<br>`` in the benchmark prompt are put back where
the sentence needs them (the olmOCR-bench prompt that it follows has them there).
"""

from __future__ import annotations

DEFAULT_PROMPT = (
    "Transcribe the provided document image into a clean Markdown format, preserving the natural reading order."
)
"""What the model was trained on (model card, "Prompt")."""

BENCHMARK_PROMPT = r"""Just return the plain text representation of this document as if you were reading it naturally.
Turn equations and math symbols into a LaTeX representation, make sure to use $ and $ as a delimiter for inline math, and $$ and $$ for block math. Do NOT use ascii or unicode math symbols such as ∈ ∉ ⊂ ⊃ ⊆ ⊇ ∅ ∪ ∩ ∀ ∃ ¬, just use LaTeX syntax, ex $ \in $ $ \notin $ etc. If you were going to surround a math expression in \( \) or \[ \] delimiters, surround it with $ $ or $$ $$ instead.
Convert tables into HTML format. Keep the syntax simple, but use <th> for header rows, and use rowspan and colspans appropriately. Don't use <br> inside of table cells, just split that into new rows as needed. Do NOT use LaTeX or Markdown table syntax.
Ignore all graphical content in the image document. Do not attempt to describe or convert the images.
Remove the headers and footers, but keep references and footnotes.
Read any natural handwriting.
This is likely one page out of several in the document, so be sure to preserve any sentences that come from the previous page, or continue onto the next page, exactly as they are.
If there is no text at all that you think you should read, you can output null."""  # noqa: E501
"""What the scores on the model card were measured with: LaTeX, HTML tables, no headers, footers or figures."""

PROMPTS = {"default": DEFAULT_PROMPT, "benchmark": BENCHMARK_PROMPT}


def resolve_prompt(prompt: str | None) -> str:
    """The prompt's text: ``None`` is the default, "default" and "benchmark" are the card's, anything else is itself."""
    return DEFAULT_PROMPT if prompt is None else PROMPTS.get(prompt, prompt)
