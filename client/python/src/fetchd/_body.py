"""Follows the body of one fetch through its events."""

from __future__ import annotations

from typing import Optional

from . import contract
from .errors import ContractError


class Body:
    """Checks that the chunks of a body are contiguous."""

    __slots__ = ("head", "start", "offset", "begun", "_restart")

    def __init__(self) -> None:
        self.head: Optional[contract.ResponseStarted] = None  # the last one
        self.start = 0  # offset of the first byte
        self.offset = 0  # of the next byte
        self.begun = False  # a byte has arrived
        self._restart: Optional[int] = None

    def started(self, head: contract.ResponseStarted) -> None:
        """Handles a ResponseStarted. It drops nothing yet: if this response fails without a
        byte, the body may continue where it was."""
        self.head, offset = head, head.body_offset_bytes
        if not self.begun:
            self.start = self.offset = offset
        else:
            self._restart = offset if offset < self.offset else None

    def chunk(self, chunk: contract.BodyChunk) -> Optional[int]:
        """Handles a chunk. Returns the lower offset if the body restarts there."""
        restart, self._restart = self._restart, None
        want = self.offset if restart is None else restart
        if self.head is None or chunk.offset_bytes != want:
            raise ContractError(f"the body continues at byte {chunk.offset_bytes}, want {want} after a ResponseStarted")
        self.begun = True
        self.start = min(self.start, want)  # a restart may go below a resume point
        self.offset = want + len(chunk.data)
        return restart

    def ended(self, outcome: contract.FetchOutcome) -> Optional[int]:
        """Handles the outcome. Returns the lower offset if the body restarted without a byte."""
        if outcome.HasField("error"):
            return None
        restart, self._restart = self._restart, None
        if restart is not None:
            self.start, self.offset = min(self.start, restart), restart
        if self.begun and self.offset != outcome.body_summary.size_bytes:
            raise ContractError(f"the body ends at byte {self.offset}, and the outcome says {outcome.body_summary.size_bytes}")
        return restart
