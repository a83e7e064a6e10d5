"""Dragon's AnalysisClient, over the OpenTSDB API of the agent."""

import time
from typing import Any, Mapping

from ._agent import Agent, AgentError

_WINDOW_SECONDS = 300
_POLL_SECONDS = 0.1


class AnalysisClient:
    """Reads data as Dragon's class of this name does."""

    def __init__(self, *, agent: "Agent | None" = None) -> None:
        self._given = agent or Agent()
        self._agent: "Agent | None" = None

    def connect(self, timeout: "float | None" = None) -> None:
        """Waits for the agent, at most `timeout` seconds; raises RuntimeError after that.

        Without a timeout it tries once: a program without an agent does not wait for ever.
        """
        deadline = time.monotonic() + (0.0 if timeout is None else float(timeout))
        while not self._given.is_ready():
            if time.monotonic() >= deadline:
                raise RuntimeError("no agent answered; start one with `pegel agent`")
            time.sleep(_POLL_SECONDS)
        self._agent = self._given

    def get_data(
        self,
        metrics: "str | list[str]",
        tags: "Mapping[str, object] | None" = None,
        start_time: "int | None" = None,
    ) -> "list[dict[str, Any]]":
        """Returns the data of metrics since start_time, by default of the last 300 s.

        One dict per series: metric, tags, aggregateTags and dps, which maps seconds since 1970 (str)
        to values; sorted by host.
        """
        agent = self._connected()
        if isinstance(metrics, str):
            metrics = [metrics]
        elif not isinstance(metrics, list):
            raise AttributeError("metrics is neither a string nor a list")
        start = int(time.time()) - _WINDOW_SECONDS if start_time is None else int(start_time)
        found: "list[dict[str, Any]]" = []
        for metric in metrics:
            found += self._query(agent, metric, tags or {}, start)
        return sorted(found, key=lambda row: str(row["tags"].get("host", "")))

    def _query(
        self, agent: Agent, metric: str, tags: "Mapping[str, object]", start: int
    ) -> "list[dict[str, Any]]":
        filters = [
            {"type": "literal_or", "tagk": str(key), "filter": str(value), "groupBy": True}
            for key, value in tags.items()
        ]
        # Aggregator none: one result per series, as Dragon returns them.
        query = {"metric": metric, "aggregator": "none", "filters": filters}
        try:
            answer: "list[dict[str, Any]]" = agent.request(
                "POST", "/api/query", body={"start": start * 1000, "queries": [query]}
            )
        except AgentError as error:
            # OpenTSDB refuses a name that was never sent; Dragon returns nothing.
            if error.status == 400 and "No such name" in str(error):
                return []
            raise
        keys = ("metric", "tags", "aggregateTags", "dps")
        return [{key: row[key] for key in keys} for row in answer]

    def get_metrics(self) -> "set[str]":
        """Returns the names of all metrics."""
        agent = self._connected()
        rows = agent.get("/api/suggest", {"type": "metrics", "q": "", "max": 100_000})
        return set(rows)

    def _connected(self) -> Agent:
        if self._agent is None:
            raise RuntimeError("not connected: call connect() first")
        return self._agent
