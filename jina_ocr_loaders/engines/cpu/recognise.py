"""Text recognition: RapidOCR finds lines and reads them, with the models that its wheel brings."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from jina_ocr_loaders.engines.cpu.geometry import Box, Line, Word
from jina_ocr_loaders.engines.cpu.spacing import respace
from jina_ocr_loaders.errors import MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BATCH = 24  # lines read between two looks at whether the reading was cancelled: some 0.7 s on two cores
UPRIGHT = 20.0  # degrees; a line that leans less is ordinary text, on a page that was scanned askew


class Recogniser:
    """Finds and reads lines of text.

    Raises:
        MissingExtraError: RapidOCR is not installed.
    """

    def __init__(self) -> None:
        # onnxruntime 1.30 and later write a device id and call home when they are imported, unless this is set.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            from rapidocr import EngineType, RapidOCR
        except ImportError as error:
            raise MissingExtraError(
                f'The cpu engine needs RapidOCR ({error}): pip install "jina-ocr-loaders[cpu]"'
            ) from error
        params: dict[str, Any] = {
            "Global.log_level": "critical",
            "Global.max_side_len": 100_000,  # the page comes in the size that is wanted
            "Global.return_word_box": True,
            "Rec.rec_img_shape": [3, 48, 64],  # pixels; short lines are not padded to 320, twice as fast on tables
        }
        if find_spec("openvino"):
            params |= {f"{part}.engine_type": EngineType.OPENVINO for part in ("Det", "Cls", "Rec")}
        self._ocr: Any = RapidOCR(params=params)
        logging.getLogger("RapidOCR").setLevel(logging.CRITICAL)
        self.model = f"rapidocr-{'.'.join(metadata.version('rapidocr').split('.')[:2])}"

    def find(self, image: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The four corners of each line: top left, top right, bottom right, bottom left of the text itself.

        Parameters:
            image: the page, in OpenCV's order of channels (BGR).
        """
        import numpy as np

        boxes = self._ocr(image, use_det=True, use_cls=False, use_rec=False).boxes
        return np.zeros((0, 4, 2), np.float32) if boxes is None else np.asarray(boxes, np.float32)

    def read(
        self, image: NDArray[np.uint8], quads: NDArray[np.float32], check: Callable[[], None] = lambda: None
    ) -> list[Line]:
        """Read the lines that ``find`` found, in no particular order; those that cannot be read have no text.

        Parameters:
            image: the page.
            quads: the corners of the lines.
            check: called between batches; what it raises ends the reading.
        """
        crops = self._ocr.crop_text_regions(image, quads)
        # Batches of lines of like length waste the least on padding.
        order = sorted(range(len(crops)), key=lambda i: crops[i].shape[1] / crops[i].shape[0])
        lines: list[Line] = []
        for start in range(0, len(order), BATCH):
            check()
            some = order[start : start + BATCH]
            lines += self._read_batch([crops[i] for i in some], [quads[i] for i in some])
        return lines

    def confidence(self, image: NDArray[np.uint8], quads: NDArray[np.float32], turns: int) -> list[float]:
        """How sure the reading of some lines is when the page is turned, in quarters counter-clockwise."""
        import numpy as np

        crops = self._ocr.crop_text_regions(image, quads)
        # Standing crops come out turned by one quarter already.
        done = [1 if _stands(quad) else 0 for quad in quads]
        turned = [np.rot90(crop, turns - before) for crop, before in zip(crops, done, strict=True)]
        return [score for _, score, _ in self._readings(turned)]

    def _read_batch(self, crops: list[NDArray[np.uint8]], quads: list[NDArray[np.float32]]) -> list[Line]:
        readings = list(self._readings(crops))
        # RapidOCR turns upright boxes by 90 degrees before reading them, as if their text ran downwards.
        turned = [i for i, quad in enumerate(quads) if _stands(quad)]
        angles = dict.fromkeys(turned, 270.0)
        for i, other in zip(turned, self._readings([crops[i][::-1, ::-1] for i in turned]), strict=True):
            if other[1] > readings[i][1]:
                readings[i], angles[i] = other, 90.0
        return [
            _line(text, score, spans, quad, angles.get(i, _angle(quad)))
            for i, ((text, score, spans), quad) in enumerate(zip(readings, quads, strict=True))
        ]

    def _readings(self, crops: list[NDArray[np.uint8]]) -> Iterator[tuple[str, float, list[tuple[str, float, float]]]]:
        """Text, confidence, and the words with where they begin and end as shares of the crop's width."""
        if not crops:
            return
        import numpy as np

        result = self._ocr.recognize_txt([np.ascontiguousarray(crop) for crop in crops])
        for text, score, info, crop in zip(result.txts, result.scores, result.word_results, crops, strict=True):
            places = _places(info)
            text = respace(text, places, crop)
            yield text, float(score), _spans(text, places)


def _places(info: Any) -> list[float]:
    """Where the middles of a line's letters are, as shares of its width: the recogniser's output columns."""
    if not info.line_txt_len:
        return []
    return [(column + 0.5) / info.line_txt_len for word in info.word_cols for column in word]


def _spans(text: str, places: list[float]) -> list[tuple[str, float, float]]:
    """Words with where they begin and end, as shares of the line's width."""
    letter = 0.5 / len(places) if places else 0.0  # half the width of a letter
    spans, at = [], 0
    for word in text.split():
        some = places[at : at + len(word)]
        at += len(word)
        if some:
            spans.append((word, max(0.0, some[0] - letter), min(1.0, some[-1] + letter)))
    return spans


def _sides(quad: NDArray[np.float32]) -> tuple[float, float]:
    """Length along the text, and the height of its letters."""
    (a, b, c, d) = (tuple(map(float, corner)) for corner in quad)
    return max(math.dist(a, b), math.dist(d, c)), max(math.dist(a, d), math.dist(b, c))


def _stands(quad: NDArray[np.float32]) -> bool:
    along, across = _sides(quad)
    return int(across) >= 1.5 * int(along)  # the rule by which RapidOCR turns a crop


def _angle(quad: NDArray[np.float32]) -> float:
    (left, top), (right, bottom) = quad[0], quad[1]
    return -math.degrees(math.atan2(float(bottom - top), float(right - left)))


def _line(
    text: str, score: float, spans: list[tuple[str, float, float]], quad: NDArray[np.float32], angle: float
) -> Line:
    (left, top), (right, bottom) = map(float, quad.min(axis=0)), map(float, quad.max(axis=0))
    box = Box(left, top, right, bottom)
    along, across = _sides(quad)
    if abs(angle) <= UPRIGHT:
        words = tuple(
            Word(word, Box(left + start * box.width, top, left + end * box.width, bottom)) for word, start, end in spans
        )
        return Line(text.strip(), box, score, words, 0.0, across)
    return Line(text.strip(), box, score, (), angle, min(along, across) if abs(angle) > 60 else across)
