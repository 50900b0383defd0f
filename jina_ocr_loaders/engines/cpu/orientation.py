"""Orientation: which way up a scan lies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SAMPLE = 8  # lines read to tell a page's direction
SURE = 0.9  # mean confidence above which lines are upright: upside down they come out below 0.8


def quarter_turns(quads: NDArray[np.float32], confidence: Callable[[Sequence[int], int], list[float]]) -> int:
    """Quarter turns, counter-clockwise, that set the page upright.

    Parameters:
        quads: corners of the lines of the page as it lies.
        confidence: reads some of the lines, given by number, with the page turned so many quarters counter-clockwise,
            and says how sure each reading is.
    """
    lengths = [(math.dist(quad[0], quad[1]), math.dist(quad[0], quad[3])) for quad in quads]
    standing = sum(down for along, down in lengths if down > 1.5 * along)
    lying = sum(along for along, down in lengths if along > 1.5 * down)
    sideways = standing > 2 * lying
    longest = sorted(range(len(lengths)), key=lambda i: -max(lengths[i]))[:SAMPLE]
    if not longest:
        return 0
    first, second = (1, 3) if sideways else (0, 2)
    sure = mean(confidence(longest, first))
    if sure > SURE:
        return first
    # A page in a script that cannot be read either way stays as it is.
    return second if mean(confidence(longest, second)) > sure + 0.05 else 0 if not sideways else first
