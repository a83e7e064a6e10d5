"""Dragon's interface: Telemetry with add_data."""

import os
import threading
import time
from typing import Any

from . import _sender
from ._agent import Agent, AgentError
from ._native import TelemetryWriter

# Without DRAGON_TELEMETRY_LEVEL the agent's own level decides what is kept.
_LEVEL_MAX = 5
_POLL_SECONDS = 0.1
# How long finalize() waits for an agent that does not answer. It does not wait for a missing one.
_FINALIZE_SECONDS = 1.0


class Telemetry(TelemetryWriter):
    """Adds data as Dragon's class of this name does, through shared memory instead of HTTP.

    add_data() returns at once and raises nothing because an agent is missing. metrics_url and
    telem_cfg are accepted and ignored: there is no port to configure. With a timeout the constructor
    waits for an agent, as Dragon's does, and raises TimeoutError; without one it does not wait. The
    level is DRAGON_TELEMETRY_LEVEL; if that is not set, all data is written and the agent keeps what
    its own level permits.
    """

    def __new__(
        cls,
        metrics_url: "str | None" = None,
        timeout: "float | None" = None,
        telem_cfg: "str | None" = None,
        *,
        pid: bool = False,
        rank: bool = False,
    ) -> "Telemetry":
        made = super().__new__(cls, level=_level_from_environment(), pid=pid, rank=rank)
        assert isinstance(made, Telemetry)
        return made

    def __init__(
        self,
        metrics_url: "str | None" = None,
        timeout: "float | None" = None,
        telem_cfg: "str | None" = None,
        *,
        pid: bool = False,
        rank: bool = False,
    ) -> None:
        self._options: "dict[str, Any]" = {"pid": pid, "rank": rank}
        if self.level > 0 and timeout is not None:
            _wait_for_agent(float(timeout))
        self._participant = _Participant()
        if self.level > 0:
            _sender.send(self._participant.announce, is_counted=False)

    def start(self, telemetry_level: int = 2) -> None:
        """Sets the level of the data that is written. Dragon starts its servers here."""
        self.set_level(int(telemetry_level))

    def finalize(self) -> None:
        """Marks this process as done; nothing is written afterwards.

        An agent that a job started stops when all processes with a Telemetry object are done or
        have ended. Other agents continue.
        """
        if self.level <= 0:
            return
        self.set_level(0)
        self._participant.finish()

    shutdown = finalize

    def __reduce__(self) -> Any:
        return _rebuild, (self._options, self.level)

    def __repr__(self) -> str:
        return f"<pegel.Telemetry level {self.level}>"


def _rebuild(options: "dict[str, Any]", level: int) -> Telemetry:
    made = Telemetry(**options)
    made.set_level(level)
    return made


def _level_from_environment() -> int:
    text = os.environ.get("DRAGON_TELEMETRY_LEVEL", "")
    if not text:
        return _LEVEL_MAX
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"DRAGON_TELEMETRY_LEVEL={text!r} is not a whole number") from None


def _wait_for_agent(timeout: float) -> None:
    agent = Agent(timeout=max(timeout, _POLL_SECONDS))
    deadline = time.monotonic() + timeout
    while not agent.is_ready():
        if time.monotonic() >= deadline:
            tried = " or ".join(agent.sockets())
            raise TimeoutError(f"no agent answered on {tried} within {timeout:g} s")
        time.sleep(_POLL_SECONDS)


class _Participant:
    """A process that takes part in a job, until it is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_done = False
        self._pid = os.getpid()
        self._identity = {"id": os.urandom(8).hex(), "pid": self._pid, **_process_identity()}

    def announce(self, agent: Agent) -> None:
        """Tells the agent that this process takes part."""
        with self._lock:
            if not self._is_done:
                self._post(agent, "active")

    def finish(self) -> None:
        """Tells the agent that this process is done. A child of fork() does not end its parent's part."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._is_done = True
            try:
                self._post(Agent(timeout=_FINALIZE_SECONDS), "done")
            except AgentError:
                # Best effort: an agent that is missing has nothing to stop.
                pass

    def _post(self, agent: Agent, state: str) -> None:
        agent.request("POST", "/api/v1/participants", body={**self._identity, "state": state})


def _process_identity() -> "dict[str, int]":
    """Returns what tells this process from another one that gets its pid later."""
    try:
        with open("/proc/self/stat", "rb") as file:
            start = int(file.read().rpartition(b")")[2].split()[19])
        return {"start_ticks": start, "pid_namespace": os.stat("/proc/self/ns/pid").st_ino}
    except (OSError, ValueError, IndexError):
        return {}
