"""Reading stored samples back, as columns that NumPy and pandas use without a copy."""

import importlib
import math
import time
from array import array
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Iterable, overload

from ._agent import Agent
from ._filter import Filter



class Series:
    """The samples of one series.

    times (milliseconds since 1970, int64) and values (float64) are arrays with the buffer protocol:
    numpy.asarray(series.values) shares their memory.
    """

    __slots__ = ("name", "labels", "times", "values")

    def __init__(
        self, name: str, labels: "dict[str, str]", times: "array[int]", values: "array[float]"
    ) -> None:
        self.name = name
        self.labels = labels
        self.times = times
        self.values = values

    def __len__(self) -> int:
        return len(self.times)

    @property
    def text(self) -> str:
        """The name with its labels."""
        pairs = ",".join(f'{key}="{value}"' for key, value in sorted(self.labels.items()))
        return f"{self.name}{{{pairs}}}" if pairs else self.name

    def __repr__(self) -> str:
        return f"<pegel.Series {self.text}, {len(self)} samples>"


class Samples(Sequence[Series]):
    """The series that a read() found, sorted by name and labels."""

    def __init__(self, series: "Iterable[Series]") -> None:
        self._series = list(series)

    def __len__(self) -> int:
        return len(self._series)

    @overload
    def __getitem__(self, which: "int | str") -> Series: ...
    @overload
    def __getitem__(self, which: slice) -> "Sequence[Series]": ...
    def __getitem__(self, which: "int | str | slice") -> "Series | Sequence[Series]":
        """Returns a series by position, by its text, or by its name if it is the only one."""
        if not isinstance(which, str):
            return self._series[which]
        found = [one for one in self._series if one.text == which]
        found = found or [one for one in self._series if one.name == which]
        if len(found) != 1:
            what = "no series is" if not found else f"{len(found)} series are"
            raise KeyError(f"{what} named {which!r}")
        return found[0]

    def columns(self) -> "dict[str, Any]":
        """Returns one row per sample: time, value, name, and a column for each label.

        time and value are arrays with the buffer protocol; the others are lists of str. The column
        of a label with one of these three names is label_time, label_value or label_name.
        """
        keys = sorted({key for one in self._series for key in one.labels})
        times, values = array("q"), array("d")
        names: "list[str]" = []
        labels: "dict[str, list[str]]" = {key: [] for key in keys}
        for one in self._series:
            times.extend(one.times)
            values.extend(one.values)
            names.extend([one.name] * len(one))
            for key in keys:
                labels[key].extend([one.labels.get(key, "")] * len(one))
        columns: "dict[str, Any]" = {"time": times, "value": values, "name": names}
        columns.update(
            (f"label_{key}" if key in columns else key, column) for key, column in labels.items()
        )
        return columns

    def to_pandas(self) -> Any:
        """Returns a DataFrame with one row per sample; time is a timestamp in UTC."""
        # Not a dependency, and imported by name so that type checkers do not require its stubs.
        pandas: Any = importlib.import_module("pandas")
        frame = pandas.DataFrame(self.columns())
        frame["time"] = pandas.to_datetime(frame["time"], unit="ms", utc=True)
        return frame

    def filtered(self, one: Filter) -> "Samples":
        """Returns the samples that a filter keeps; series without any are left out."""
        result = []
        for series in self._series:
            kept = [
                (time_, value)
                for time_, value in zip(series.times, series.values)
                if one.keeps(series.name, series.labels, value)
            ]
            if kept:
                times, values = zip(*kept)
                result.append(
                    Series(series.name, series.labels, array("q", times), array("d", values))
                )
        return Samples(result)

    def __repr__(self) -> str:
        count = sum(map(len, self._series))
        return f"<pegel.Samples: {count} samples of {len(self)} series>"


def read(
    match: "str | list[str]" = "*",
    since: "str | float | datetime | timedelta" = "-5m",
    until: "str | float | datetime | timedelta" = "now",
    *,
    step: "str | float | None" = None,
    aggregation: "str | None" = None,
    filter: "Filter | None" = None,
    agent: "Agent | None" = None,
) -> Samples:
    """Returns stored samples.

    match is a name with * and ?, or a name with matchers: 'loss*', 'loss{rank="0"}'. since and until
    are seconds since 1970, a datetime, a time relative to now ('-5m', timedelta(minutes=5)), or
    'now'. With a step ('10s', or seconds) there is one value per step; aggregation (first, last, min,
    max, avg, sum, count) says which.

        frame = pegel.read("loss*", "-1h").to_pandas()
        values = numpy.asarray(pegel.read("loss")[0].values)
    """
    query: "dict[str, Any]" = {"match": match, "start": time_text(since), "end": time_text(until)}
    if step is not None:
        query["step"] = step if isinstance(step, str) else f"{float(step):g}"
    if aggregation is not None:
        query["agg"] = aggregation
    answer = (agent or Agent()).get("/api/v1/range", query)
    samples = Samples(map(_series_from, answer))
    return samples if filter is None else samples.filtered(filter)


def _series_from(row: "dict[str, Any]") -> Series:
    points = row["points"]
    times = array("q", [point[0] for point in points])
    # A value that is not finite is null in JSON.
    values = array("d", [math.nan if point[1] is None else point[1] for point in points])
    return Series(row["name"], dict(row["labels"]), times, values)


def time_text(moment: "str | float | datetime | timedelta") -> str:
    """Returns a time as the agent's API reads it."""
    if isinstance(moment, str):
        return moment
    if isinstance(moment, timedelta):
        return str(round((time.time() - abs(moment.total_seconds())) * 1000))
    seconds = moment.timestamp() if isinstance(moment, datetime) else float(moment)
    return str(round(seconds * 1000)) if seconds < 1e11 else str(round(seconds))
