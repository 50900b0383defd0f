"""Fixtures that many tests share."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jina_ocr_loaders.ocr import JinaOCR
from jina_ocr_loaders.retry import Clock
from jina_ocr_loaders.settings import OCRSettings
from tests.servers.hosted import HostedServer


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's own reaches a test."""
    proxies = ("http_proxy", "https_proxy", "all_proxy")
    for name in os.environ:
        if name.startswith(("JINA_", "OPENAI_")) or name.lower() in proxies:
            monkeypatch.delenv(name)


@pytest.fixture
def server() -> Iterator[HostedServer]:
    """A hosted API on loopback that can be told to misbehave."""
    with HostedServer() as server:
        yield server


class FakeTime:
    """A clock that moves only when someone sleeps; ``sleeps`` are the waits in order."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Let the time pass at once."""
        self.sleeps.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def clock(self) -> Clock:
        """What the retries take; their jitter is halfway."""
        return Clock(now=lambda: self.now, sleep=self.sleep, random=lambda: 0.5)


@pytest.fixture
def fake_time() -> FakeTime:
    """The injected time: waits between attempts take none."""
    return FakeTime()


@pytest.fixture
def make_ocr(server: HostedServer, fake_time: FakeTime) -> Iterator[Callable[..., JinaOCR]]:
    """Makes a JinaOCR on the test's server and clock; options as for JinaOCR."""
    made: list[JinaOCR] = []

    def make(**options: Any) -> JinaOCR:
        hosted = {"engine": "hosted", "base_url": server.base_url, "api_key": "key"}
        settings = OCRSettings.model_validate({**hosted, **options})
        made.append(JinaOCR.from_settings(settings, clock=fake_time.clock()))
        return made[-1]

    yield make
    for ocr in made:
        ocr.close()
