"""The frames between client and worker: two lengths, a JSON header, the bytes of the page images."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from io import FileIO
from typing import Any

_LENGTHS = struct.Struct(">IQ")  # of the header, of the payload

Header = dict[str, Any]


def send(stream: FileIO, header: Header, payload: Sequence[bytes] = ()) -> None:
    """Write one frame.

    Raises:
        OSError: the other side is gone.
    """
    head = json.dumps(header).encode("ascii")  # lone surrogates of odd file names survive as escapes
    lengths = _LENGTHS.pack(len(head), sum(map(len, payload)))
    for data in (lengths + head, *payload):
        view = memoryview(data)
        while view:
            view = view[stream.write(view) :]


def receive(stream: FileIO) -> tuple[Header, memoryview]:
    """Read one frame.

    Raises:
        EOFError: the other side is gone.
    """
    head_length, payload_length = _LENGTHS.unpack(_read(stream, _LENGTHS.size))
    return json.loads(bytes(_read(stream, head_length))), _read(stream, payload_length)


def _read(stream: FileIO, size: int) -> memoryview:
    data = memoryview(bytearray(size))
    filled = 0
    while filled < size:
        if not (count := stream.readinto(data[filled:])):
            raise EOFError
        filled += count
    return data
