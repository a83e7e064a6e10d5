"""Charts and tables in notebooks."""

import html
import os
import re
import time
import urllib.parse
from datetime import datetime, timedelta
from typing import Any

from ._agent import Agent
from ._samples import Samples, read

# The page shows at most this many charts.
_CHARTS_MAX = 12
_PATTERNS_MAX = 64
_ROWS_MAX = 200
# Metrics of the node and of the agent itself; the page tells them apart in the same way.
_OF_NODE = re.compile(
    r"(node_|pegel_).*|cpu_percent|load_average|used_RAM|num_running_processes"
    r"|DeviceUtilization|DeviceMemoryUtilization|DevicePowerUsage"
)


class Charts:
    """Charts of the agent's page, live, in a frame."""

    def __init__(self, url: str, height: int) -> None:
        self.url = url
        self.height = height

    def _repr_html_(self) -> str:
        url = html.escape(self.url, quote=True)
        return (
            f'<iframe src="{url}" width="100%" height="{self.height}" style="border:0" '
            'title="pegel"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<pegel charts: {self.url}>"


def show(
    match: str = "*",
    *,
    span: float = 300.0,
    height: int = 480,
    url: "str | None" = None,
    agent: "Agent | None" = None,
) -> Charts:
    """Shows the charts of the agent's page for all metrics that match, live, in a notebook.

    `span` is the time shown, in seconds. `url` is the address at which your browser reaches the page,
    if it is not that of the agent: behind a Jupyter proxy 'proxy/1337/'.
    """
    agent = agent or Agent()
    names = _names(agent, match)
    if not names:
        raise ValueError(f"no live metric matches {match!r}")
    charts = [("chart", name) for name in names[:_CHARTS_MAX]]
    query = urllib.parse.urlencode([*charts, ("span", f"{span:g}"), ("embedded", "1")])
    page = agent.page_url() if url is None else url.rstrip("/") + "/"
    return Charts(f"{page}#/metrics?{query}", height)


def _names(agent: Agent, match: str) -> "list[str]":
    """Returns the names of programs' metrics that match; those of the node if they were asked for."""
    rows = agent.get("/api/v1/list", {"match": match})
    names = sorted({str(row["name"]).partition("{")[0] for row in rows})
    names = [name for name in names if not name.endswith("_bucket")]
    return [name for name in names if not _OF_NODE.fullmatch(name)] if match == "*" else names


class Summary:
    """A table of metrics: count, last, mean, smallest and largest value."""

    HEADER = ("metric", "samples", "last", "mean", "min", "max")

    def __init__(self, rows: "list[tuple[str, int, float, float, float, float]]") -> None:
        self.rows = rows

    def _cells(self) -> "list[tuple[str, ...]]":
        return [(row[0], str(row[1]), *(f"{value:.6g}" for value in row[2:])) for row in self.rows]

    def __repr__(self) -> str:
        cells = [self.HEADER, *self._cells()]
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = (
            "  ".join(
                cell.ljust(width) if index == 0 else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths))
            ).rstrip()
            for row in cells
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def row(cells: "tuple[str, ...]", tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

        body = "".join(row(cells, "td") for cells in self._cells())
        return f"<table><thead>{row(self.HEADER, 'th')}</thead><tbody>{body}</tbody></table>"


def summary(
    match: str = "*",
    since: "str | float | datetime | timedelta | None" = None,
    *,
    agent: "Agent | None" = None,
) -> Summary:
    """Returns a table of the metrics of programs, since this process started or since a given time."""
    agent = agent or Agent()
    names = _names(agent, match)[:_ROWS_MAX]
    start = _process_start() if since is None else since
    rows = []
    for first in range(0, len(names), _PATTERNS_MAX):
        part = names[first : first + _PATTERNS_MAX]
        rows += _rows(read(part, start, agent=agent))
    return Summary(rows)


def _rows(samples: Samples) -> "list[tuple[str, int, float, float, float, float]]":
    return [
        (
            one.text,
            len(one),
            one.values[-1],
            sum(one.values) / len(one),
            min(one.values),
            max(one.values),
        )
        for one in samples
        if len(one)
    ]


def _process_start() -> float:
    """Returns when this process started, in seconds since 1970; an hour ago if that is unknown."""
    try:
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        with open("/proc/uptime", "rb") as file:
            uptime = float(file.read().split()[0])
        return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK") - 1.0
    except (OSError, ValueError, IndexError):
        return time.time() - 3600.0
