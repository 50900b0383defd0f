"""When a page's text is stopped as it comes: it is longer than it may be, or goes in circles."""

from __future__ import annotations

from local_engine.loops import MIN_REPEATS, MIN_SPAN, PIECE, find_loop

CHARS_PER_TOKEN = 128  # at most, in runs of spaces; a server that sends more than max_tokens allows never ends
LOOK_EVERY = 512  # characters between two looks for a loop
PROBE = 16  # characters at the very end that must have occurred before
TAIL = 24_000  # characters at the end of the text that are looked at: a page holds some 4,000


class TextGuard:
    """Watches the text of one answer.

    Parameters:
        max_tokens: that were asked for.
    """

    def __init__(self, max_tokens: int) -> None:
        self._limit = CHARS_PER_TOKEN * max_tokens
        self._parts: list[str] = []
        self._size = 0
        self._next_look = LOOK_EVERY

    def push(self, piece: str, *, last: bool) -> str | None:
        """Take the next piece; returns why to stop, "length" or "repetition", or None.

        A loop is seen at most ``LOOK_EVERY`` characters late, and in any case with the last piece. A text that is too
        long and loops is a loop.
        """
        self._parts.append(piece)
        self._size += len(piece)
        too_long = self._size > self._limit
        if last or too_long or self._size >= self._next_look:
            self._next_look = self._size + LOOK_EVERY
            if cut_loop("".join(self._parts)) is not None:
                return "repetition"
        return "length" if too_long else None


def cut_loop(text: str, *, min_span: int = MIN_SPAN) -> str | None:
    """The text with one copy of the loop it ends in; None when it does not end in one of so many pieces."""
    offset = max(0, len(text) - TAIL)
    # The end of a loop occurs in each of its copies; hardly any honest text passes this, and it costs next to nothing.
    if text.count(text[-PROBE:], offset) < MIN_REPEATS // 2:
        return None
    pieces = list(PIECE.finditer(text, offset))
    loop = find_loop([piece[0] for piece in pieces], min_span=min_span)
    return text[: pieces[loop.start + loop.period - 1].end()] if loop else None
