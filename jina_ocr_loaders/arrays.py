"""Images as numpy arrays, the way in which LangChain's PDF parsers hand them to an ``images_parser``."""

from __future__ import annotations

import io

from jina_ocr_loaders.errors import CorruptDocumentError, UnsupportedSourceError

NUMPY_ARRAY = "application/x-npy"


def png_of_array(array_file: bytes) -> bytes:
    """The image in a ``.npy`` file as PNG.

    Parameters:
        array_file: rows, columns, and one channel, or blue, green and red in this order (pdfium's), or these and alpha.

    Raises:
        CorruptDocumentError: it is no ``.npy`` file, or one that holds Python objects.
        UnsupportedSourceError: it is no image.
    """
    import numpy as np
    from PIL import Image

    try:
        array = np.load(io.BytesIO(array_file), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise CorruptDocumentError(f"not a .npy file: {error}") from error
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * 255
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise UnsupportedSourceError(f"an array of {array.dtype} with the shape {array.shape} is no image")
    order = {1: slice(None), 3: [2, 1, 0], 4: [2, 1, 0, 3]}[channels]
    array = array.reshape(*array.shape[:2], channels)[..., order]
    png = io.BytesIO()
    Image.fromarray(array.squeeze(2) if channels == 1 else array).save(png, "PNG", compress_level=1)
    return png.getvalue()
