"""Follows the body of one fetch through its events."""

from __future__ import annotations

from typing import Optional

from . import contract
from .errors import ContractError


_KINDS = contract.short_names(contract.FetchOutcome.DESCRIPTOR.fields_by_name["kind"].enum_type)


def check_response(response: contract.HttpResponse, what: str) -> None:
    """Raises ContractError if there is no response."""
    if not 100 <= response.status_code <= 999:
        raise ContractError(f"{what} has no response with a status: {response.status_code}")


def check_outcome(outcome: contract.FetchOutcome) -> None:
    """Raises ContractError if an outcome lacks what it must have. A failure could be taken for a success."""
    kind = _KINDS.get(outcome.kind, "")
    if kind not in ("success", "not_modified", "redirect", "failed"):
        raise ContractError(f"the outcome has the kind {outcome.kind}")
    if (kind == "failed") != outcome.HasField("error"):
        raise ContractError("the outcome is a failure without an error" if kind == "failed" else "the outcome has an error, and is none")
    if kind != "failed":
        check_response(outcome.response, "the outcome")


def check_size(outcome: contract.FetchOutcome, body: Optional[Body], resume: int) -> None:
    """Raises ContractError if a body that was to be delivered has not arrived. resume is the resume point of the
    request."""
    if _KINDS.get(outcome.kind) != "success" or (body is not None and body.begun) or resume:
        return  # Body.ended has compared the size, or the caller may have all of it
    size = outcome.text_summary.size_bytes if outcome.HasField("text_summary") else outcome.body_summary.size_bytes
    if len(outcome.inline_body) != size:
        raise ContractError(f"the body has {size} bytes, but {len(outcome.inline_body)} came")


class Body:
    """Checks that the chunks of a body are contiguous."""

    __slots__ = ("head", "start", "offset", "begun", "_restart", "_resume")

    def __init__(self, resume: int = 0) -> None:
        self._resume = resume  # the resume point of the request
        self.head: Optional[contract.ResponseStarted] = None  # the last one
        self.start = 0  # offset of the first byte
        self.offset = 0  # of the next byte
        self.begun = False  # a byte has arrived
        self._restart: Optional[int] = None

    def started(self, head: contract.ResponseStarted) -> None:
        """Handles a ResponseStarted. It drops nothing yet: if this response fails without a
        byte, the body may continue where it was."""
        check_response(head.response, "a response")
        self.head, offset = head, head.body_offset_bytes
        if offset < 0:
            raise ContractError(f"a body begins at byte {offset}")
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
        if not self.begun and want > self._resume:
            raise ContractError(f"a body begins at byte {want}, want byte {self._resume} at most")
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
