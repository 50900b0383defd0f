"""What files at the edge cost: CPU seconds and peak memory of process and workers, each file in a process of its own.

    python -m tests.corpus.edges

The figures are in docs/robustness.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jina_ocr_loaders.bench.document import make_pdf
from jina_ocr_loaders.bench.memory import peak_pss, python
from tests.data import images, odd_files, pdfs

LARGEST = 13_377  # pixels; its square is the largest number of pixels that is read


FILES: dict[str, Callable[[], bytes]] = {
    "one page": lambda: make_pdf(1),
    "600 pages": lambda: make_pdf(600),
    "14,400 x 14,400 points": lambda: pdfs.sized(14_400, 14_400),
    "234 x 8,020 points": lambda: pdfs.long_list(400),
    "PNG of 178.9 million pixels": lambda: largest("PNG"),
    "JPEG of 178.9 million pixels": lambda: largest("JPEG"),
    "TIFF of 178.9 million pixels": lambda: largest("TIFF", compression="tiff_lzw"),
    "PNG of as many, with transparency": lambda: images.saved(images.in_mode("RGBA", (LARGEST, LARGEST)), "PNG"),
    "JPEG 2000 of 69.6 million pixels (A3)": lambda: images.saved(images.picture((7016, 9921)), "JPEG2000"),
    "PNG that says 3.6 billion pixels": images.png_bomb,
    "PNG that says 100 million rows": lambda: images.png_bomb(1, 100_000_000),
    "half a JPEG 2000": lambda: images.truncated("JPEG2000"),
    "TIFF with strips outside of it": images.hostile_tiff,
    "says that it has 2 billion pages": lambda: odd_files.false_count(2**31 - 1),
    "page of 4 KB that unpacks to 2 GB": lambda: pdfs.bloating(2000),
    "form that draws itself": odd_files.self_drawing,
    "forms within forms, 5 billion": pdfs.endless,
    "shading painted for hours": pdfs.slow,
}


def largest(kind: str, **options: Any) -> bytes:
    """An image of as many pixels as are read."""
    return images.saved(images.picture((LARGEST, LARGEST)), kind, **options)


def main() -> None:
    """Print a line for each file."""
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, make) in enumerate(FILES.items()):
            path = Path(folder, f"{number}")
            path.write_bytes(make())
            read = f"*read_one('ours', {str(path)!r}, None)"
            code = f"from tests.corpus.compare import read_one; print({read}, sep='\\t')"
            memory, _, output = peak_pss(python(code))
            outcome, seconds, _ = output.splitlines()[-1].split("\t")
            shown = f"{outcome.count('ok')} pages" if "'ok'" in outcome else outcome
            size = f"{path.stat().st_size:,} bytes"
            print(name, size, shown, f"{float(seconds):.1f} s", f"{memory:.0f} MB", sep="\t", flush=True)


if __name__ == "__main__":
    main()
