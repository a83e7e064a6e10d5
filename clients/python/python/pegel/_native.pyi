from datetime import datetime
from typing import Callable, SupportsFloat, SupportsIndex, final

from typing_extensions import disjoint_base

__all__ = [
    "Counter",
    "FloatCounter",
    "Gauge",
    "Histogram",
    "Point",
    "TelemetryWriter",
    "Timer",
    "counter",
    "drop_counts",
    "float_counter",
    "gauge",
    "histogram",
    "is_published",
    "job_id",
    "point",
    "rank",
    "reset_drop_counts",
    "set_filter",
    "statsd_counts",
    "statsd_flush",
    "statsd_flush_before_exit",
    "statsd_resume_after_fork",
    "statsd_start",
    "statsd_switch",
    "timer",
    "version",
]

version: str

# NumPy's scalars and tensors with one element have one of these methods.
_Real = SupportsFloat | SupportsIndex
_Time = _Real | datetime | None

@final
class Counter:
    """A whole number that only grows."""
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    def add(self, amount: SupportsIndex = ...) -> None:
        """Adds to the counter."""

@final
class FloatCounter:
    """A floating point number that only grows: seconds, joules."""
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    def add(self, amount: _Real) -> None:
        """Adds to the counter."""

@final
class Gauge:
    """A number that goes up and down."""
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    def set(self, value: _Real) -> None:
        """Sets the value."""
    def add(self, amount: _Real) -> None:
        """Adds to the current value; starts at zero."""

@final
class Histogram:
    """The distribution of a size: count, sum, smallest, largest and buckets."""
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    def record(self, value: _Real) -> None:
        """Records one value."""

@final
class Timer:
    """The duration of an operation in seconds: count, sum, smallest, largest and buckets."""
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    def record(self, seconds: _Real) -> None:
        """Records one duration in seconds."""

@final
class Point:
    """Single values with their own times."""
    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    def add(self, value: _Real, time: _Time = ...) -> None:
        """Adds a point, at the current time or at a time of the program."""

@disjoint_base
class TelemetryWriter:
    """Writes points by name: the base of Telemetry."""
    def __new__(cls, *, level: int = 5, pid: bool = False, rank: bool = False) -> TelemetryWriter: ...
    @property
    def level(self) -> int:
        """The highest level of data that is written; 0: none."""
    def set_level(self, level: int) -> None:
        """Sets the highest level of data that is written."""
    def add_data(
        self,
        ts_metric_name: str,
        ts_data: _Real,
        timestamp: _Time = ...,
        telemetry_level: int = 1,
        tagk: str | None = None,
        tagv: object = None,
    ) -> None:
        """Adds a value of a metric. Does nothing if telemetry_level exceeds the level of this object."""

def counter(name: str, *, help: str | None = None, labels: dict[str, object] | None = None, level: int | None = None, pid: bool = False, rank: bool = False) -> Counter:
    """Returns a whole number that only grows."""

def float_counter(name: str, *, help: str | None = None, labels: dict[str, object] | None = None, level: int | None = None, pid: bool = False, rank: bool = False) -> FloatCounter:
    """Returns a floating point number that only grows: seconds, joules."""

def gauge(name: str, *, help: str | None = None, labels: dict[str, object] | None = None, level: int | None = None, pid: bool = False, rank: bool = False, aggregation: str | None = None) -> Gauge:
    """Returns a number that goes up and down.

    aggregation is how the values of several programs are combined: last, min, max or sum.
    """

def histogram(name: str, *, help: str | None = None, labels: dict[str, object] | None = None, level: int | None = None, pid: bool = False, rank: bool = False) -> Histogram:
    """Returns the distribution of a size."""

def timer(name: str, *, help: str | None = None, labels: dict[str, object] | None = None, level: int | None = None, pid: bool = False, rank: bool = False) -> Timer:
    """Returns the duration of an operation, in seconds."""

def point(name: str, *, help: str | None = None, labels: dict[str, object] | None = None, level: int | None = None, pid: bool = False, rank: bool = False) -> Point:
    """Returns a series of single values with their own times."""

def is_published() -> bool:
    """Returns whether an agent can read what this process counts."""

def rank() -> str | None:
    """Returns the rank of this process in its job, as its launcher states it."""

def job_id() -> str | None:
    """Returns the job of this process, as its scheduler names it."""

def drop_counts() -> dict[str, int]:
    """Returns the counts of dropped values that are not zero."""

def reset_drop_counts() -> None:
    """Sets the counts of dropped values to zero."""

def set_filter(function: Callable[[str, dict[str, str], float | None], bool] | None) -> None:
    """Sets the function that decides for every update whether it is stored."""

def statsd_start(address: str) -> None:
    """Starts to send the values of this process to a server, or changes the server."""

def statsd_switch(pattern: str, on: bool) -> None:
    """Turns the series on or off whose names match a pattern."""

def statsd_flush() -> None:
    """Sends what changed, now."""

def statsd_flush_before_exit() -> None:
    """Sends what changed before the process ends."""

def statsd_resume_after_fork() -> bool:
    """Continues in a child of fork. Returns whether the parent sent values."""

def statsd_counts() -> dict[str, int]:
    """Returns what was sent since the start."""
