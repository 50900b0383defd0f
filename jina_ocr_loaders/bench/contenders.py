"""What ``peers`` compares: each reads a PDF through the same server, as its users write it.

    PYTHON contenders.py NAME BASE_URL PDF

It prints JSON: how many pages have text, the seconds that took, and the error that ended it. A contender runs in the
interpreter that has its packages, so this file imports nothing but what that contender needs.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

CONCURRENCY = 32
MODEL = "jina-ocr-v1"
PROMPT = "Convert the page to Markdown."
LONG_SIDE = 1920  # pixels; what the model sees of an A4 page
A4_HEIGHT = 842  # points

Reader = Callable[[str, str], int]
"""Reads the PDF through the server at the URL; returns the number of pages that have text."""


def jina() -> Reader:
    """This package."""
    import openai  # noqa: F401  the others' clients are imported before the clock runs, too

    from jina_ocr_loaders import JinaOCR

    def read(url: str, pdf: str) -> int:
        with JinaOCR("hosted", base_url=url, api_key="key", concurrency=CONCURRENCY, on_error="mark") as ocr:
            return sum(page.ok for page in ocr.pages(pdf))

    return read


def gather() -> Reader:
    """A plain script: draw all pages into a list, gather the requests. The client's own two retries are on."""
    import asyncio
    import base64
    import io

    import pypdfium2
    from openai import AsyncOpenAI

    def draw(page: Any) -> str:
        out = io.BytesIO()
        page.render(scale=LONG_SIDE / A4_HEIGHT).to_pil().convert("RGB").save(out, "JPEG", quality=90)
        return base64.b64encode(out.getvalue()).decode()

    async def read_all(url: str, pdf: str) -> int:
        images = [draw(page) for page in pypdfium2.PdfDocument(pdf)]
        client = AsyncOpenAI(api_key="key", base_url=url)
        slots = asyncio.Semaphore(CONCURRENCY)

        async def one(image: str) -> str:
            part = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{image}"}}
            async with slots:
                answer = await client.chat.completions.create(
                    model=MODEL,
                    messages=[{"role": "user", "content": [part, {"type": "text", "text": PROMPT}]}],  # type: ignore[list-item, misc]
                    max_tokens=4096,
                )
            return answer.choices[0].message.content or ""

        return sum(map(bool, await asyncio.gather(*map(one, images))))

    return lambda url, pdf: asyncio.run(read_all(url, pdf))


def langchain() -> Reader:
    """LangChain's PyPDFium2Loader with its image parser: the images in the page, one request at a time."""
    from langchain_community.document_loaders import PyPDFium2Loader
    from langchain_community.document_loaders.parsers.images import LLMImageBlobParser
    from langchain_openai import ChatOpenAI

    def read(url: str, pdf: str) -> int:
        model = ChatOpenAI(model=MODEL, base_url=url, api_key="key", max_tokens=4096)
        loader = PyPDFium2Loader(pdf, images_parser=LLMImageBlobParser(model=model, prompt=PROMPT), extract_images=True)
        return sum(bool(document.page_content.strip()) for document in loader.lazy_load())

    return read


def docling() -> Reader:
    """docling's pipeline for vision models behind an API."""
    from docling.datamodel.base_models import InputFormat
    from docling.datamodel.pipeline_options import VlmPipelineOptions
    from docling.datamodel.pipeline_options_vlm_model import ApiVlmOptions, ResponseFormat
    from docling.document_converter import DocumentConverter, PdfFormatOption
    from docling.pipeline.vlm_pipeline import VlmPipeline

    def read(url: str, pdf: str) -> int:
        options = VlmPipelineOptions(
            enable_remote_services=True,
            vlm_options=ApiVlmOptions(
                url=f"{url}/chat/completions",
                params={"model": MODEL, "max_tokens": 4096},
                prompt=PROMPT,
                timeout=300,
                scale=LONG_SIDE / A4_HEIGHT,
                concurrency=CONCURRENCY,
                response_format=ResponseFormat.MARKDOWN,
            ),
        )
        format_options = {InputFormat.PDF: PdfFormatOption(pipeline_cls=VlmPipeline, pipeline_options=options)}
        result = DocumentConverter(format_options=format_options).convert(pdf, raises_on_error=False)
        answers = [page.predictions.vlm_response for page in result.pages]
        return sum(bool(answer and answer.text.strip()) for answer in answers)

    return read


CONTENDERS = {"jina": jina, "gather": gather, "langchain": langchain, "docling": docling}


def main(name: str, url: str, pdf: str) -> None:
    """Run one contender and print what came of it."""
    try:
        read = CONTENDERS[name]()
    except ImportError as error:
        print(json.dumps({"missing": error.name}))
        return
    start, pages, failure = time.perf_counter(), 0, None
    try:
        pages = read(url, pdf)
    except Exception as error:  # it ends the contender's whole run: the pages that it had are lost
        failure = type(error).__name__
    print(json.dumps({"pages": pages, "seconds": time.perf_counter() - start, "failure": failure}))


if __name__ == "__main__":
    main(*sys.argv[1:])
