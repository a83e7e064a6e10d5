"""Filters at collection and when reading."""

import time

import pegel
import pytest
from pegel import Filter

from conftest import eventually


def test_a_filter_selects_by_name_labels_range_and_function():
    keeps = Filter("loss*", labels={"rank": 0}, minimum=0, maximum=10).keeps
    assert keeps("loss", {"rank": "0"}, 5) and keeps("loss", {"rank": "0"}, 0)
    assert not keeps("loss", {"rank": "0"}, -1) and not keeps("loss_b", {"rank": "0"}, 11)
    assert not keeps("loss", {"rank": "0"}, float("nan"))
    assert keeps("loss", {"rank": "1"}, 99) and keeps("other", {"rank": "0"}, 99)
    assert not Filter("debug_?").keeps("debug_1", {}, 1)
    assert Filter("debug_?").keeps("debug_12", {}, 1)
    even = Filter(function=lambda name, labels, value: value % 2 == 0)
    assert even.keeps("a", {}, 2) and not even.keeps("a", {}, 3)
    assert repr(Filter("a", labels={"b": 'c"'}, minimum=1)) == "pegel.Filter('a{b=\"c\\\\\"\"}', minimum=1.0)"


def test_filters_without_sense_are_refused():
    with pytest.raises(ValueError, match="would remove everything"):
        Filter()
    with pytest.raises(ValueError, match="exceeds maximum"):
        Filter("a", minimum=2, maximum=1)
    with pytest.raises(ValueError, match="minimum is not a number"):
        Filter("a", minimum=float("nan"))
    with pytest.raises(TypeError, match="callable"):
        Filter("a", function=7)
    with pytest.raises(TypeError, match="of type str"):
        Filter(7)
    with pytest.raises(TypeError, match="pegel.Filter"):
        pegel.add_filter("a")


def test_a_filter_at_collection_removes_and_counts(running):
    running.python(
        """
        import pegel, time
        now = int(time.time()) - 10
        t, c = pegel.Telemetry(), pegel.counter("debug_total")
        outliers = pegel.add_filter(pegel.Filter("loss", maximum=100))
        debug = pegel.add_filter(pegel.Filter("debug_*"))
        odd = pegel.add_filter(pegel.Filter("size", function=lambda name, labels, value: value % 2 == 1))
        for value in (1, 1000, 2):
            t.add_data("loss", value, now := now + 1)
            pegel.histogram("size").record(value)
            c.add(1)
        assert pegel.dropped() == {"filtered": 1 + 2 + 3}, pegel.dropped()
        assert pegel.filters() == [outliers, debug, odd]
        pegel.remove_filter(debug)
        c.add(5)
        for one in (outliers, odd):
            pegel.remove_filter(one)
        t.add_data("loss", 3000, now + 1)
        assert pegel.dropped() == {"filtered": 6}
        """
    )
    running.wait_for({"debug_total": 5, "size_count": 1})
    eventually("the points", lambda: running.samples("loss") == [[1, 2, 3000]])


def test_an_error_of_a_filter_function_is_raised(node):
    done = node.python(
        """
        import pegel
        pegel.add_filter(pegel.Filter("a", function=lambda name, labels, value: 1 / 0))
        pegel.gauge("b").set(1)
        try:
            pegel.gauge("a").set(1)
        except ZeroDivisionError:
            print("raised")
        """
    )
    assert done.stdout == "raised\n"


def test_a_filter_when_reading(running):
    start = int(time.time()) - 30
    running.python(
        """
        import sys, pegel
        p, q = pegel.point("value"), pegel.point("other")
        for n in range(6):
            p.add(n, int(sys.argv[1]) + n)
            q.add(n, int(sys.argv[1]) + n)
        """,
        str(start),
    )
    eventually("all is stored", lambda: running.samples("other") == [[*range(6)]])

    def read(one):
        found = pegel.read("*", start - 1, start + 10, filter=one, agent=running.agent)
        return {series.name: list(series.values) for series in found if not series.name.startswith(("node_", "pegel_"))}

    assert read(Filter("value", minimum=2, maximum=4)) == {"value": [2, 3, 4], "other": [*range(6)]}
    assert read(Filter("value")) == {"other": [*range(6)]}
    assert read(Filter(function=lambda name, labels, value: name == "value" and value > 4)) == {"value": [5]}


@pytest.fixture
def stored(running):
    """Three series with the values 0 to 5."""
    running.began = int(time.time()) - 30
    running.python(
        """
        import sys, pegel
        series = [pegel.point("loss", labels={"rank": r}) for r in (0, 1)] + [pegel.point("debug_x")]
        for n in range(6):
            for one in series:
                one.add(n, int(sys.argv[1]) + n)
        """,
        str(running.began),
    )
    eventually("all is stored", lambda: running.samples("debug_x") == [[*range(6)]])
    return running


def answers(node):
    """Returns the values of `loss` with rank 0 and of `debug_x` in every kind of answer."""
    start, end = node.began - 1, node.began + 10
    result = {}
    for name, match in (("loss", 'loss{rank="0"}'), ("debug_x", "debug_x")):
        found = pegel.read(match, start, end, agent=node.agent)
        result["range", name] = [v for one in found for v in one.values]
        tags = [{"type": "literal_or", "tagk": "rank", "filter": "0", "groupBy": True}]
        query = {"metric": name, "aggregator": "sum", "filters": tags if name == "loss" else []}
        try:
            rows = node.agent.request("POST", "/api/query", body={"start": start, "end": end, "queries": [query]})
        except pegel.AgentError as error:
            assert error.status == 400 and "No such name" in str(error), error
            rows = []
        result["opentsdb", name] = [v for row in rows for v in row["dps"].values()]
        found = node.agent.get("/api/v1/query", {"query": f"{match}[1m]", "time": end})
        result["promql", name] = [float(v) for one in found["data"]["result"] for _, v in one["values"]]
        # The page asks for these: names, current values, steps.
        names = {row["name"] for row in node.agent.get("/api/v1/list", {"match": match})}
        result["list", name] = bool(names)
        result["values", name] = list(node.values(match).values())
        steps = pegel.read(match, start, end, step=100, aggregation="max", agent=node.agent)
        result["steps", name] = [max(one.values) for one in steps]
    return result


def test_a_registered_filter_acts_on_every_answer(stored):
    everything = answers(stored)
    for kind in ("range", "opentsdb", "promql"):
        assert everything[kind, "loss"] == everything[kind, "debug_x"] == [*range(6)], kind
    Filter("loss", labels={"rank": 0}, minimum=1, maximum=3).register("outliers", agent=stored.agent)
    Filter("debug_*").register("debug", agent=stored.agent)
    expected = [
        {"name": "debug", "match": "debug_*", "min": None, "max": None},
        {"name": "outliers", "match": 'loss{rank="0"}', "min": 1, "max": 3},
    ]
    assert Filter.registered(agent=stored.agent) == expected
    assert stored.agent.get("/status")["filters"] == expected
    assert stored.agent.get("/api/v1/filters/debug") == expected[0]

    def check():
        found = answers(stored)
        for kind in ("range", "opentsdb", "promql"):
            assert found[kind, "loss"] == [1, 2, 3] and found[kind, "debug_x"] == [], kind
        # The range is applied before the samples of a step are combined.
        assert found["steps", "loss"] == [3] and found["steps", "debug_x"] == []
        # The current value, 5, is out of range.
        assert found["values", "loss"] == found["values", "debug_x"] == []
        assert not found["list", "debug_x"]
        assert [*range(6)] in stored.samples('loss{rank="1"}')

    check()
    # It survives a restart, also by kill -9.
    stored.process.kill()
    stored.process.wait()
    stored.start()
    check()
    Filter.unregister("debug", agent=stored.agent)
    Filter.unregister("outliers", agent=stored.agent)
    found = answers(stored)
    assert all(found[kind, name] == [*range(6)] for kind in ("range", "opentsdb", "promql") for name in ("loss", "debug_x"))


def test_registered_filters_without_sense_are_refused(running):
    with pytest.raises(ValueError, match="function cannot be registered"):
        Filter(function=lambda *_: True).register("f", agent=running.agent)
    with pytest.raises(ValueError, match="is not a name"):
        Filter("a").register("a/b", agent=running.agent)
    for body, reason in (
        ({}, "missing field `match`"),
        ({"match": 'a{b=~"["}'}, "invalid pattern"),
        ({"match": "a", "min": 2, "max": 1}, "exceeds the largest"),
        ({"match": "a", "maximum": 1}, "unknown field"),
        ({"match": "a", "min": "x"}, "malformed filter"),
    ):
        with pytest.raises(pegel.AgentError, match=reason) as error:
            running.agent.request("PUT", "/api/v1/filters/f", body=body)
        assert error.value.status == 400
    with pytest.raises(pegel.AgentError, match="no filter named") as error:
        Filter.unregister("none", agent=running.agent)
    assert error.value.status == 404
    assert Filter.registered(agent=running.agent) == []
