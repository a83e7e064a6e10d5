"""Metrics of your program, for the Pegel agent on its node.

    import pegel
    pegel.counter("iterations").add(1)
    pegel.gauge("loss").set(0.41)
    with pegel.timed("epoch"):
        ...

An update is a few atomic instructions in shared memory: it never blocks and needs no agent. An agent
that starts later finds the totals so far, and counts survive a kill of the program. A value of the
wrong type raises TypeError; a number that cannot be stored is dropped and counted, see dropped().

PEGEL_DISABLE=1 turns metrics off; PEGEL_LANES sets another directory for the shared memory;
PEGEL_SOCKET names the agent's socket for the functions that read.
"""

from . import statsd
from ._agent import Agent, AgentError, NoAgentError
from ._analysis import AnalysisClient
from ._drops import dropped
from ._filter import Filter, add_filter, filters, remove_filter
from ._marks import mark, phase
from ._native import (
    Counter,
    FloatCounter,
    Gauge,
    Histogram,
    Point,
    Timer,
    counter,
    float_counter,
    gauge,
    histogram,
    is_published,
    point,
    timer,
)
from ._native import version as __version__
from ._notebook import show, summary
from ._samples import Samples, Series, read
from ._sender import flush
from ._telemetry import Telemetry
from ._timed import timed

__all__ = [
    "Agent",
    "AgentError",
    "AnalysisClient",
    "Counter",
    "Filter",
    "FloatCounter",
    "Gauge",
    "Histogram",
    "NoAgentError",
    "Point",
    "Samples",
    "Series",
    "Telemetry",
    "Timer",
    "add_filter",
    "counter",
    "dropped",
    "filters",
    "float_counter",
    "flush",
    "gauge",
    "histogram",
    "is_published",
    "mark",
    "phase",
    "point",
    "read",
    "remove_filter",
    "show",
    "statsd",
    "summary",
    "timed",
    "timer",
]
