"""What getting hold of one document may take."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one download, or of one copy into a temporary file.

    Attributes:
        max_bytes: its size, after unpacking.
        timeout: seconds for all of it, redirects included.
        allow_private_networks: whether http(s) URLs may lead to addresses that are not public.
        proxy: URL of an HTTP proxy. With one, addresses cannot be checked: needs ``allow_private_networks``.
        ca_bundle: file of CA certificates to trust instead of the usual ones.
    """

    max_bytes: int = 1 << 30
    timeout: float = 300.0
    allow_private_networks: bool = False
    proxy: str | None = None
    ca_bundle: str | os.PathLike[str] | None = None
