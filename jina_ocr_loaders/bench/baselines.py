"""What a good programmer writes in ten minutes instead of using this package: the loops that we compare with."""

from __future__ import annotations

import asyncio
import base64
import io
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from jina_ocr_loaders.prompts import DEFAULT_PROMPT

LONG_SIDE, QUALITY = 1920, 90

Read = Callable[[Any, bytes], Awaitable[str]]
"""One request for a page's JPEG by an openai client: its text."""


def render(path: str, index: int) -> bytes:
    """One page as JPEG, at the size and quality that the engine uses; the document stays open for the next."""
    import pypdfium2

    document = _open.get(path) or _open.setdefault(path, pypdfium2.PdfDocument(path))
    page = document[index]
    image = page.render(scale=LONG_SIDE / max(page.get_size())).to_pil()
    out = io.BytesIO()
    image.convert("RGB").save(out, "JPEG", quality=QUALITY)
    return out.getvalue()


def close_documents() -> None:
    """Close what `render` has opened in this process."""
    while _open:
        _open.popitem()[1].close()


_open: dict[str, Any] = {}


def body(jpeg: bytes) -> dict[str, Any]:
    """The fields of one streamed request."""
    url = "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": DEFAULT_PROMPT}]
    return {
        "model": "jina-ocr-v1",
        "messages": [{"role": "user", "content": content}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 4096,
        "temperature": 0.0,
    }


async def read(client: Any, jpeg: bytes) -> str:
    """One streamed request, as the client's documentation shows it."""
    parts = []
    async for chunk in await client.chat.completions.create(**body(jpeg)):
        if chunk.choices and chunk.choices[0].delta.content:
            parts.append(chunk.choices[0].delta.content)
    return "".join(parts)


async def read_dicts(client: Any, jpeg: bytes) -> str:
    """The same with chunks as plain dicts, which is how the hosted engine uses the client."""
    from openai import AsyncStream

    parts = []
    async for chunk in await client.post(
        "/chat/completions", cast_to=object, body=body(jpeg), stream=True, stream_cls=AsyncStream[object]
    ):
        if chunk["choices"]:
            parts.append(chunk["choices"][0]["delta"].get("content", ""))
    return "".join(parts)


async def bare_loop(
    base_url: str,
    pages: Sequence[Callable[[], Awaitable[bytes]]],
    concurrency: int,
    read: Read = read,
) -> tuple[float, float]:
    """AsyncOpenAI and a semaphore, pages from the given functions, each read by ``read``.

    Returns:
        Seconds for all, and CPU seconds of this process.
    """
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="key", base_url=base_url, max_retries=0) as client:
        slots = asyncio.Semaphore(concurrency)

        async def one(page: Callable[[], Awaitable[bytes]]) -> str:
            async with slots:
                return await read(client, await page())

        start, cpu = time.perf_counter(), time.process_time()
        texts = await asyncio.gather(*map(one, pages))
        assert all(texts)
        return time.perf_counter() - start, time.process_time() - cpu


def encoded(jpegs: Sequence[bytes]) -> list[Callable[[], Awaitable[bytes]]]:
    """Pages that are ready."""

    def page(jpeg: bytes) -> Callable[[], Awaitable[bytes]]:
        async def get() -> bytes:
            return jpeg

        return get

    return [page(jpeg) for jpeg in jpegs]


def rendered(pool: ProcessPoolExecutor, path: str, count: int) -> list[Callable[[], Awaitable[bytes]]]:
    """Pages that processes of a pool draw and encode when they are asked for."""

    def page(index: int) -> Callable[[], Awaitable[bytes]]:
        async def get() -> bytes:
            return await asyncio.get_running_loop().run_in_executor(pool, render, path, index)

        return get

    return [page(index) for index in range(count)]
