"""Marks and phases: annotations that every chart shows."""

import os
import threading
import time
from typing import Any, Mapping

from . import _native, _sender
from ._agent import Agent, AgentError
from ._timed import Scope

# The agent keeps one annotation per millisecond. Those of one process never share one; if another
# process has taken it, the next ones are tried.
_TRIES = 100
_TEXT_MAX = 4096


_start_lock = threading.Lock()
_last_start = 0


def _next_start() -> int:
    """Returns the current time in milliseconds, or the first one that this process has not used."""
    global _last_start
    with _start_lock:
        _last_start = max(time.time_ns() // 1_000_000, _last_start + 1)
        return _last_start


def _renew_lock_in_child() -> None:
    global _start_lock
    _start_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock_in_child)


class _Annotation:
    """An annotation whose state is sent as a whole, as often as it changes."""

    def __init__(self, kind: str, text: str, labels: "Mapping[str, object] | None") -> None:
        _check_text(kind, text)
        self._lock = threading.Lock()
        self._start = _next_start()
        self._end = 0
        self._text = text
        self._is_placed = False
        custom = {"kind": kind, "pid": str(os.getpid()), "id": os.urandom(8).hex()}
        for key, value in (("rank", _native.rank()), ("jobid", _native.job_id())):
            if value is not None:
                custom[key] = value
        custom.update((str(key), str(value)) for key, value in (labels or {}).items())
        self._custom = custom

    def end(self) -> None:
        """Sets the end to the current time."""
        with self._lock:
            self._end = max(self._start + 1, time.time_ns() // 1_000_000)

    def deliver(self, agent: Agent) -> None:
        """Sends the current state."""
        if not self._is_placed:
            self._place(agent)
        with self._lock:
            body: "dict[str, Any]" = {
                "startTime": self._start,
                "description": self._text,
                "custom": self._custom,
            }
            if self._end:
                body["endTime"] = max(self._end, self._start + 1)
        agent.request("POST", "/api/annotation", body=body)

    def _place(self, agent: Agent) -> None:
        """Finds a start time that no other annotation has."""
        for _ in range(_TRIES):
            try:
                found = agent.get("/api/annotation", {"start_time": self._start})
            except AgentError as error:
                if error.status != 404:
                    raise
                break
            if (found.get("custom") or {}).get("id") == self._custom["id"]:
                break
            with self._lock:
                self._start += 1
        self._is_placed = True


def _check_text(kind: str, text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"the text of a {kind} must be of type str, not {type(text).__name__}")
    if not text or len(text) > _TEXT_MAX:
        raise ValueError(f"the text of a {kind} must have 1 to {_TEXT_MAX} characters")


def mark(text: str, *, labels: "Mapping[str, object] | None" = None) -> None:
    """Puts a mark on the time line, now. Returns at once; the mark is sent in the background."""
    annotation = _Annotation("mark", text, labels)
    _sender.send(annotation.deliver)


class phase(Scope):
    """A named phase of the program, which every chart shows from its beginning to its end.

        with pegel.phase("assembly"): ...
        @pegel.phase("solve")
        async def solve(): ...
    """

    __slots__ = ("name", "labels")

    def __init__(self, name: str, *, labels: "Mapping[str, object] | None" = None) -> None:
        _check_text("phase", name)
        self.name = name
        self.labels = labels

    def _begin(self) -> _Annotation:
        annotation = _Annotation("phase", self.name, self.labels)
        _sender.send(annotation.deliver)
        return annotation

    def _end(self, begun: _Annotation) -> None:
        begun.end()
        _sender.send(begun.deliver)
