"""Counts of what was not stored or not delivered, by reason."""

import os
import threading
from collections import Counter

from . import _native

_lock = threading.Lock()
_undelivered: "Counter[str]" = Counter()


def count_undelivered(reason: str) -> None:
    """Counts a mark or message that did not reach an agent."""
    with _lock:
        _undelivered[reason] += 1


def dropped() -> dict[str, int]:
    """Returns how many values and marks of this process were dropped, by reason.

    not_finite, negative, too_large, bad_time: values that no series can hold. no_room: the lanes of
    the process are full. filtered: a filter removed the value. queue_full, no_agent, refused: marks
    that were not delivered. What the agent drops is in its /status.
    """
    with _lock:
        return {**_native.drop_counts(), **_undelivered}


def _reset_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _undelivered.clear()
    _native.reset_drop_counts()


os.register_at_fork(after_in_child=_reset_in_child)
