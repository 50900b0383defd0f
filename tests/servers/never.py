"""A behaviour of the hosted server that tells when it is asked and when the client has given up."""

from __future__ import annotations

import threading

from tests.servers.hosted import ClientGoneError, Exchange


class Never:
    """Never answers.

    Attributes:
        asked: set when the request is there.
        left: set when the client has closed the connection.
    """

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.left = threading.Event()

    async def __call__(self, exchange: Exchange) -> None:
        self.asked.set()
        try:
            await exchange.wait()
        except ClientGoneError:
            self.left.set()
            raise
