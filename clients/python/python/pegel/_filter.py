"""Filters: which values are collected, read, or shown by the agent."""

import math
import re
import threading
from typing import Any, Callable, Mapping

from . import _native
from ._agent import Agent

# Called with name, labels and value; returns whether the value is kept.
FilterFunction = Callable[[str, "dict[str, str]", float], bool]


class Filter:
    """Removes values of some series.

    name (with * and ?) and labels select the series; without them it is all series. Of the selected
    series, values below `minimum` or above `maximum`, and values for which `function` returns false,
    are removed. With none of these three, all values are removed.

        pegel.Filter("debug_*")                              nothing named debug_
        pegel.Filter("loss", minimum=0, maximum=100)         no outliers
        pegel.Filter(function=lambda name, labels, value: labels.get("rank") == "0")
    """

    def __init__(
        self,
        name: "str | None" = None,
        *,
        labels: "Mapping[str, object] | None" = None,
        minimum: "float | None" = None,
        maximum: "float | None" = None,
        function: "FilterFunction | None" = None,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name must be of type str, not {type(name).__name__}")
        if function is not None and not callable(function):
            raise TypeError(f"function must be callable, not {type(function).__name__}")
        self.name = name
        self.labels = {str(key): str(value) for key, value in (labels or {}).items()}
        self.minimum = _bound("minimum", minimum)
        self.maximum = _bound("maximum", maximum)
        self.function = function
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum:g} exceeds maximum {self.maximum:g}")
        if name is None and not self.labels and not self._has_condition():
            raise ValueError("a filter without arguments would remove everything")
        self._pattern = None if name is None else _glob(name)

    def _has_condition(self) -> bool:
        return not (self.minimum is None and self.maximum is None and self.function is None)

    def selects(self, name: str, labels: "Mapping[str, str]") -> bool:
        """Returns whether the filter applies to a series."""
        if self._pattern is not None and not self._pattern.fullmatch(name):
            return False
        return all(labels.get(key) == value for key, value in self.labels.items())

    def keeps(self, name: str, labels: "Mapping[str, str]", value: "float | None") -> bool:
        """Returns whether a value remains. None is the amount of a counter, which has no range."""
        if not self.selects(name, labels):
            return True
        if not self._has_condition():
            return False
        if value is None:
            return self.function is None or bool(self.function(name, dict(labels), math.nan))
        if self.minimum is not None and not value >= self.minimum:
            return False
        if self.maximum is not None and not value <= self.maximum:
            return False
        return self.function is None or bool(self.function(name, dict(labels), value))

    def register(self, name: str, *, agent: "Agent | None" = None) -> None:
        """Registers the filter with the agent under a name, until unregister().

        It then acts on all answers of the agent: OpenTSDB, PromQL, the page. What is stored does not
        change. A function cannot be registered.
        """
        if self.function is not None:
            raise ValueError("a filter with a function cannot be registered: use name, labels and range")
        body: "dict[str, Any]" = {"match": self._selector()}
        if self.minimum is not None:
            body["min"] = self.minimum
        if self.maximum is not None:
            body["max"] = self.maximum
        (agent or Agent()).request("PUT", _path(name), body=body)

    @staticmethod
    def unregister(name: str, *, agent: "Agent | None" = None) -> None:
        """Removes a filter from the agent."""
        (agent or Agent()).request("DELETE", _path(name))

    @staticmethod
    def registered(*, agent: "Agent | None" = None) -> "list[dict[str, Any]]":
        """Returns the filters of the agent."""
        found: "list[dict[str, Any]]" = (agent or Agent()).get("/api/v1/filters")
        return found

    def _selector(self) -> str:
        """Returns name and labels in the syntax of the agent's `match`."""
        pairs = ",".join(f"{key}={_quoted(value)}" for key, value in sorted(self.labels.items()))
        return f"{self.name or '*'}{{{pairs}}}" if pairs else self.name or "*"

    def __repr__(self) -> str:
        parts = [repr(self._selector())]
        parts += [
            f"{key}={value!r}"
            for key, value in (
                ("minimum", self.minimum),
                ("maximum", self.maximum),
                ("function", self.function),
            )
            if value is not None
        ]
        return f"pegel.Filter({', '.join(parts)})"


def _bound(key: str, value: "float | None") -> "float | None":
    if value is None:
        return None
    number = float(value)
    if math.isnan(number):
        raise ValueError(f"{key} is not a number")
    return number


def _glob(pattern: str) -> "re.Pattern[str]":
    special = {"*": ".*", "?": "."}
    return re.compile("".join(special.get(c, re.escape(c)) for c in pattern), re.DOTALL)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _path(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
        raise ValueError(f"{name!r} is not a name of 1 to 64 letters, digits, '_', '.' and '-'")
    return f"/api/v1/filters/{name}"


_lock = threading.Lock()
_filters: "list[Filter]" = []


def _keeps(name: str, labels: "dict[str, str]", value: "float | None") -> bool:
    return all(one.keeps(name, labels, value) for one in _filters)


def _changed() -> None:
    _native.set_filter(_keeps if _filters else None)


def add_filter(one: Filter) -> Filter:
    """Applies a filter to everything that this process collects from now on.

    Removed values are counted, see dropped(). While there is a filter, each update calls Python.
    """
    if not isinstance(one, Filter):
        raise TypeError(f"expected a pegel.Filter, not {type(one).__name__}")
    with _lock:
        _filters.append(one)
        _changed()
    return one


def remove_filter(one: Filter) -> None:
    """Removes a filter of this process."""
    with _lock:
        _filters.remove(one)
        _changed()


def filters() -> "list[Filter]":
    """Returns the filters of this process."""
    with _lock:
        return list(_filters)
