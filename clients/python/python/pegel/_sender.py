"""Delivers messages to the agent from a background thread.

The program never waits: the queue is bounded, and what does not fit, or is not delivered within a
minute, is dropped and counted. A child of fork() starts with an empty queue and no thread.
"""

import atexit
import os
import queue
import sys
import threading
import time
from typing import Callable

from ._agent import Agent, AgentError, NoAgentError
from ._drops import count_undelivered

_QUEUE_MAX = 1024
_KEEP_SECONDS = 60.0
_RETRY_SECONDS = 0.5
_REQUEST_SECONDS = 2.0
# How long a program waits at its end for messages on their way.
_EXIT_SECONDS = 5.0

Delivery = Callable[[Agent], None]


class Sender:
    """A queue of deliveries, and the thread that makes them."""

    def __init__(self) -> None:
        self._queue: "queue.Queue[tuple[float, Delivery, bool]]" = queue.Queue(_QUEUE_MAX)
        self._lock = threading.Lock()
        self._thread: "threading.Thread | None" = None
        self._is_closing = threading.Event()

    def send(self, delivery: Delivery, is_counted: bool = True) -> None:
        """Queues a delivery; counts it if the queue is full."""
        try:
            self._queue.put_nowait((time.monotonic(), delivery, is_counted))
        except queue.Full:
            if is_counted:
                count_undelivered("queue_full")
            return
        self._start()

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="pegel-sender", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                # The interpreter is shutting down, or there are too many threads.
                return
            self._thread = thread
        # multiprocessing ends its children without atexit.
        if "multiprocessing.util" in sys.modules:
            sys.modules["multiprocessing.util"].Finalize(None, self.close, exitpriority=1)

    def _run(self) -> None:
        agent = Agent(timeout=_REQUEST_SECONDS)
        while True:
            queued, delivery, is_counted = self._queue.get()
            reason = self._deliver(agent, queued, delivery)
            if reason is not None and is_counted:
                count_undelivered(reason)
            self._queue.task_done()

    def _deliver(self, agent: Agent, queued: float, delivery: Delivery) -> "str | None":
        """Returns why the message was not delivered, or None."""
        while True:
            try:
                delivery(agent)
                return None
            except NoAgentError:
                reason = "no_agent"
            except AgentError as error:
                reason = "refused"
                if error.status is not None and error.status < 500 and error.status != 429:
                    return reason
            except Exception:  # A defect must not end the thread.
                return "refused"
            if self._is_closing.is_set() or time.monotonic() - queued > _KEEP_SECONDS:
                return reason
            self._is_closing.wait(_RETRY_SECONDS)

    def flush(self, seconds: float) -> bool:
        """Waits until the queue is empty; returns whether it is."""
        deadline = time.monotonic() + seconds
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._queue.all_tasks_done.wait(left)
        return True

    def close(self) -> None:
        """Gives messages on their way a last attempt."""
        if self._thread is None:
            return
        self._is_closing.set()
        self.flush(_EXIT_SECONDS)


sender = Sender()


def _replace_in_child() -> None:
    global sender
    sender = Sender()


def send(delivery: Delivery, is_counted: bool = True) -> None:
    """Queues a delivery to the agent of this node; `is_counted`: as dropped, if it fails."""
    sender.send(delivery, is_counted)


def flush(timeout: float = _EXIT_SECONDS) -> bool:
    """Waits until all marks and phases so far are delivered or dropped; returns whether they are."""
    return sender.flush(timeout)


os.register_at_fork(after_in_child=_replace_in_child)
atexit.register(lambda: sender.close())
