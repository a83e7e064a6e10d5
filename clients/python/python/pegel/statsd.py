"""Sends the values of this process to another statsd server as well, for sites that have one.

    import pegel
    pegel.statsd.start("aggregator:8125")       # or PEGEL_STATSD=aggregator:8125 in the environment
    pegel.statsd.switch("io.*", False)          # these series are no longer sent

A thread compares the values with what it sent and sends what changed, in datagrams of at most 1440
bytes. docs/statsd-output.md describes the lines, and the variables for interval, prefix and labels.
"""

import os
import sys

from . import _native

__all__ = ["counts", "flush", "start", "switch"]


def start(address: str) -> None:
    """Starts to send, or changes the server: HOST:PORT, or unix:PATH.

    Raises ValueError if the address or one of the variables PEGEL_STATSD_* is malformed. A server
    that is missing is no error: what cannot be sent is counted, and sent later.
    """
    _native.statsd_start(address)


def switch(pattern: str, on: bool) -> None:
    """Turns the series on or off whose names match a pattern, in which * stands for any text.

    The last call that matches a name decides. What a series counts while it is off is not sent.
    """
    _native.statsd_switch(pattern, on)


def flush() -> None:
    """Sends what changed, now. Does nothing while the thread sends."""
    _native.statsd_flush()


def counts() -> dict[str, int]:
    """Returns the number of lines and datagrams that were sent, and of errors."""
    return _native.statsd_counts()


def _flush_at_exit(_: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, _native.statsd_flush_before_exit, exitpriority=1)


def _prepare_children() -> None:
    # multiprocessing ends children of fork and forkserver without the handlers of the C library. It
    # calls the function in each of them, after it has cleared what they inherited.
    if "multiprocessing.util" in sys.modules:
        sys.modules["multiprocessing.util"].register_after_fork(flush, _flush_at_exit)


def _resume_in_child() -> None:
    if _native.statsd_resume_after_fork():
        _prepare_children()


# A child of forkserver imports this module before it runs its function.
_prepare_children()
os.register_at_fork(after_in_child=_resume_in_child)
