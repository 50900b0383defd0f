"""Reads many documents into one Markdown file each, and says what went wrong with which page.

    python examples/batch.py OUTPUT_FOLDER FILE...

Pages that were read are cached in OUTPUT_FOLDER/.cache: a run that is interrupted goes on where it was.
"""

import asyncio
import re
import sys
from pathlib import Path

from jina_ocr_loaders import DocumentResult, JinaOCR, JinaOCRError


async def read(ocr: JinaOCR, file: str, folder: Path) -> DocumentResult | JinaOCRError:
    try:
        result = await ocr.aread(file)
    except JinaOCRError as error:  # this document; the others go on
        return error
    name = re.sub(r"[^\w.-]+", "_", file)  # with folder and suffix: x/a.pdf, y/a.pdf and x/a.png stay apart
    (folder / f"{name}.md").write_text(result.markdown, encoding="utf-8")
    return result


async def main(folder: Path, files: list[str]) -> int:
    bad = 0
    async with JinaOCR(on_error="mark", cache=folder / ".cache") as ocr:
        # All at once is fine: a few documents are open at a time, and their pages share the limit of `concurrency`.
        for file, result in zip(files, await asyncio.gather(*(read(ocr, file, folder) for file in files)), strict=True):
            if isinstance(result, JinaOCRError):
                bad += 1
                print(result)
                continue
            print(f"{file}: {result.counts}")
            for page in result:
                if not page.ok:
                    bad += 1
                    print(f"  page {page.number}: {page.error or page.status}")
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    output = Path(sys.argv[1])
    output.mkdir(parents=True, exist_ok=True)
    sys.exit(asyncio.run(main(output, sys.argv[2:])))
