"""Reading a page: turned upright, its lines read, its layout found, all put into Markdown."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jina_ocr_loaders.engines.cpu.assembly import to_markdown
from jina_ocr_loaders.engines.cpu.geometry import Line
from jina_ocr_loaders.engines.cpu.gutters import split_at_gutters
from jina_ocr_loaders.engines.cpu.initials import notches
from jina_ocr_loaders.engines.cpu.layout import LayoutModel, find_model, warn_without_model
from jina_ocr_loaders.engines.cpu.letters import measured
from jina_ocr_loaders.engines.cpu.orientation import quarter_turns
from jina_ocr_loaders.engines.cpu.pitch import pitched
from jina_ocr_loaders.engines.cpu.recognise import Recogniser
from jina_ocr_loaders.engines.cpu.text_layer import TextLayer
from jina_ocr_loaders.errors import EngineNotReadyError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image

    from jina_ocr_loaders.pages import TextRun

TEXT_LAYER = "text-layer"  # what a page that was read from its own text says in place of a model

SPARSE = 0.6  # letters per line height; print has two and more (Latin), or more than one (Chinese)
LINE = 6.0  # line heights; what is shorter may be a mark, a stamp or a signature
LOW_CONFIDENCE = 0.8  # mean of a page; print in a known script reads at 0.95 and more, an unknown script below this


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read on a page."""

    markdown: str
    confidence: float | None
    model: str
    warnings: tuple[str, ...] = ()


class PageReader:
    """The models, loaded once, and what is done with them to a page."""

    def __init__(self) -> None:
        self._recogniser = Recogniser()
        path = find_model()
        self._layout = LayoutModel(path) if path else None
        self.model = self._recogniser.model
        self._lock = threading.Lock()  # RapidOCR keeps state while it runs

    def read(self, image: Image, check: Callable[[], None], runs: Sequence[TextRun] | None = None) -> Reading:
        """Read a page. Several threads may call; one page is read at a time.

        Parameters:
            image: the page.
            runs: its own text, which is used if it says what the page shows.
            check: called between stages, from this thread; what it raises ends the reading.
        """
        with self._lock:
            check()
            return self._read(image, check, runs)

    def _read(self, image: Image, check: Callable[[], None], runs: Sequence[TextRun] | None) -> Reading:
        import numpy as np

        pixels = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
        quads = self._recogniser.find(pixels)
        check()
        model = TEXT_LAYER
        lines = self._from_layer(pixels, quads, runs, check) if runs else None
        if lines is None:
            model = self.model
            pixels, quads = self._upright(pixels, quads)
            check()
            lines = self._recogniser.read(pixels, split_at_gutters(pixels, quads), check)
        lines = pitched(pixels, measured(pixels, [*lines, *self._initials(pixels, lines)]))
        if self._layout is None:
            warn_without_model()
        regions = self._layout.regions(pixels) if self._layout else []
        check()
        height, width = pixels.shape[:2]
        confidence = _confidence(lines)
        low = (confidence is not None and confidence < LOW_CONFIDENCE) or any(map(_is_unread, lines))
        warnings = ("low_confidence",) if low else ()
        lines = [line for line in lines if line.text]
        return Reading(to_markdown(lines, regions, width, height), confidence, model, warnings)

    def _from_layer(
        self,
        pixels: NDArray[np.uint8],
        quads: NDArray[np.float32],
        runs: Sequence[TextRun],
        check: Callable[[], None],
    ) -> list[Line] | None:
        """The lines as the text layer has them, or None if it does not say what the page shows."""
        quads = split_at_gutters(pixels, quads)
        layer = TextLayer(runs, quads)
        if not layer.is_true(lambda some: self._recogniser.read(pixels, quads[some], check)):
            return None
        rest = self._recogniser.read(pixels, quads[layer.missing], check) if layer.missing else []
        return [*layer.lines.values(), *layer.seen_elsewhere(pixels), *rest]

    def _initials(self, pixels: NDArray[np.uint8], lines: list[Line]) -> list[Line]:
        """Initials that the detection missed."""
        import numpy as np

        places = [box.corners for box in notches(lines)]
        found = self._recogniser.read(pixels, np.array(places, np.float32)) if places else []
        return [line for line in found if len(line.text) == 1 and line.text.isupper()]

    def _upright(
        self, pixels: NDArray[np.uint8], quads: NDArray[np.float32]
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """The page turned upright, and its lines."""
        import numpy as np

        def confidence(numbers: Sequence[int], turns: int) -> list[float]:
            return self._recogniser.confidence(pixels, quads[list(numbers)], turns)

        turns = quarter_turns(quads, confidence)
        if not turns:
            return pixels, quads
        turned = np.ascontiguousarray(np.rot90(pixels, turns))
        return turned, self._recogniser.find(turned)


def _confidence(lines: Sequence[Line]) -> float | None:
    """Mean confidence, weighted by area; None where nothing was found.

    Of a script that it does not know the recogniser reads nothing, or the odd letter: such lines count as not read.
    """
    area = sum(line.box.area for line in lines)
    sure = sum(line.confidence * line.box.area for line in lines if not _is_sparse(line))
    return round(sure / area, 4) if area else None


def _is_sparse(line: Line) -> bool:
    """Whether a line has far fewer letters than would fill it: an advance of more than a line's height for each, or of
    twice as much where they are set apart, as in some headings."""
    letters = [letter for letter in line.text if not letter.isspace()]
    apart = len(letters) > 2 and letters == line.text.split() and line.text.replace(" ", "").isalnum()
    along = max(line.box.width, line.box.height)
    return len(letters) * line.size < (SPARSE / 2 if apart else SPARSE) * along


def _is_unread(line: Line) -> bool:
    """Whether a whole line has hardly a letter, as one in a script that the recogniser does not know."""
    return max(line.box.width, line.box.height) > LINE * line.size and _is_sparse(line)


class _Shared:
    """The reader of this process, and the lock under which it is made."""

    lock = threading.Lock()
    reader: PageReader | None = None
    forked = False

    @classmethod
    def after_fork(cls) -> None:
        """A forked child has the models, but not the threads that run them: to use or even to free them, it would
        wait for ever."""
        cls.lock, cls.forked = threading.Lock(), cls.reader is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Shared.after_fork)


def shared_reader() -> PageReader:
    """The one reader of this process; its models are loaded at the first call.

    Raises:
        MissingExtraError: RapidOCR or onnxruntime is not installed.
        EngineNotReadyError: this is a forked child of a process that had loaded the models.
    """
    with _Shared.lock:
        if _Shared.forked:
            raise EngineNotReadyError(
                "The cpu engine cannot go on in a forked process once its models are loaded. "
                'Start processes with multiprocessing.get_context("spawn"), or fork before the JinaOCR is made.'
            )
        if _Shared.reader is None:
            _Shared.reader = PageReader()
        return _Shared.reader
