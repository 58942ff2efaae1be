"""Converts the pieces of a body to pieces of another size, to text, and to lines."""

from __future__ import annotations

import codecs
import io
from typing import Any, List, Optional


class Pieces:
    """Pieces of `size` bytes, the last one excepted, or of `size` characters with an encoding."""

    def __init__(self, size: Optional[int] = None, encoding: Optional[str] = None):
        if size is not None and size < 1:
            raise ValueError(f"chunk_size is {size}, want at least 1, or None for the pieces as they arrive")
        self._size = size
        self._decoder = codecs.getincrementaldecoder(encoding)("replace") if encoding else None
        self._rest: Any = "" if encoding else b""

    def feed(self, data: Any, final: bool = False) -> List[Any]:
        if self._decoder is not None:
            data = self._decoder.decode(data, final)
        if self._size is None:
            return [data] if data else []
        rest, size = self._rest + data, self._size
        whole = len(rest) if final else len(rest) // size * size
        self._rest = rest[whole:]
        return [rest[i : min(i + size, whole)] for i in range(0, whole, size)]


class Lines:
    """Lines of text without their ends, which are \\n, \\r\\n or \\r."""

    def __init__(self, encoding: str):
        self._decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)("replace"), translate=True)
        self._rest = ""

    def feed(self, data: bytes, final: bool = False) -> List[str]:
        *lines, self._rest = (self._rest + self._decoder.decode(data, final)).split("\n")
        return [*lines, self._rest] if final and self._rest else lines
