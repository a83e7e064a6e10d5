"""Reading back: columns for NumPy and pandas, charts and tables for notebooks."""

import datetime
import math
import time
import urllib.parse

import pegel
import pytest

from conftest import eventually

WRITE = """
    import sys, pegel
    start = float(sys.argv[1])
    for rank in range(2):
        loss = pegel.point("loss", labels={"rank": rank})
        for n in range(5):
            loss.add(10 * rank + n, start + n)
    pegel.point("accuracy", labels={"name": "a", "time": "b"}).add(0.9, start)
"""


@pytest.fixture
def written(running):
    running.began = int(time.time()) - 60
    running.python(WRITE, str(running.began))
    eventually("all is stored", lambda: running.samples("accuracy") == [[0.9]])
    eventually("all is stored", lambda: sum(map(len, running.samples("loss"))) == 10)
    return running


def test_series_are_found_by_position_text_and_name(written):
    found = pegel.read("*", written.began - 1, written.began + 10, agent=written.agent)
    losses = pegel.read("loss", written.began - 1, agent=written.agent)
    assert [one.text for one in losses] == ['loss{rank="0"}', 'loss{rank="1"}']
    assert list(losses['loss{rank="1"}'].values) == [10, 11, 12, 13, 14]
    assert losses[0].labels == {"rank": "0"} and len(losses[0]) == 5
    assert found["accuracy"].values[0] == 0.9
    with pytest.raises(KeyError, match="2 series are named 'loss'"):
        losses["loss"]
    with pytest.raises(KeyError, match="no series is named"):
        losses["other"]
    assert pegel.read('loss{rank="1"}', written.began - 1, agent=written.agent)[0].labels["rank"] == "1"
    assert repr(losses) == "<pegel.Samples: 10 samples of 2 series>"
    assert len(pegel.read("no_such", agent=written.agent)) == 0


def test_times_are_given_in_several_ways(written):
    start = written.began
    for since in (
        start + 1,
        float(start + 1),
        (start + 1) * 1000,
        datetime.datetime.fromtimestamp(start + 1, datetime.timezone.utc),
    ):
        found = pegel.read('loss{rank="0"}', since, start + 3, agent=written.agent)
        assert list(found[0].values) == [1, 2, 3]
    for since in ("-1h", datetime.timedelta(hours=1)):
        assert len(pegel.read("loss", since, agent=written.agent)) == 2
    steps = pegel.read(
        'loss{rank="0"}', start, start + 10, step=100, aggregation="max", agent=written.agent
    )
    assert max(steps[0].values) == 4
    with pytest.raises(pegel.AgentError, match="not a time"):
        pegel.read("loss", "yesterday", agent=written.agent)


def test_numpy_shares_the_memory(written):
    numpy = pytest.importorskip("numpy")
    series = pegel.read('loss{rank="0"}', written.began - 1, agent=written.agent)[0]
    values, times = numpy.asarray(series.values), numpy.asarray(series.times)
    assert (values.dtype, times.dtype) == (numpy.float64, numpy.int64)
    assert values.mean() == 2 and numpy.diff(times).tolist() == [1000] * 4
    series.values[0] = 40
    assert values[0] == 40


def test_pandas_takes_the_columns(written):
    pandas = pytest.importorskip("pandas")
    samples = pegel.read("*", written.began - 1, written.began + 10, agent=written.agent)
    columns = samples.columns()
    assert len({len(column) for column in columns.values()}) == 1
    frame = samples.to_pandas()
    losses = frame[frame["name"] == "loss"]
    assert losses.groupby("rank")["value"].mean().to_dict() == {"0": 2.0, "1": 12.0}
    assert "UTC" in str(frame["time"].dtype)
    assert losses["time"].iloc[0] == pandas.Timestamp(written.began, unit="s", tz="UTC")
    assert "label_time" in frame.columns
    assert pandas.DataFrame(columns).shape == frame.shape


def test_a_missing_agent_is_a_clear_error(node):
    with pytest.raises(pegel.NoAgentError, match="start one with `pegel agent`"):
        pegel.read("loss", agent=node.agent)
    with pytest.raises(ConnectionError):
        pegel.read("loss", agent=pegel.Agent("http://127.0.0.1:1"))
    with pytest.raises(ValueError, match="not an address"):
        pegel.read("loss", agent=pegel.Agent("ftp://x"))


def test_an_agent_is_found_by_url(written):
    url = written.agent.get("/status")["addresses"]["url"]
    assert len(pegel.read("loss", "-1h", agent=pegel.Agent(url))) == 2
    assert pegel.Agent(url).page_url() == written.agent.page_url()


def test_show_is_the_page_with_the_matching_charts(written):
    shown = pegel.show("loss", span=600, height=300, agent=written.agent)
    address, _, state = shown.url.partition("#/metrics?")
    assert address == written.agent.page_url()
    query = urllib.parse.parse_qs(state)
    assert query["chart"] == ["loss"] and query["span"] == ["600"]
    html = shown._repr_html_()
    assert html.startswith('<iframe src="http://') and 'height="300"' in html and "&amp;" in html
    everything = urllib.parse.parse_qs(pegel.show(agent=written.agent).url.partition("?")[2])
    assert everything["chart"] == ["accuracy", "loss"]
    behind = pegel.show("loss", url="/user/ada/proxy/1337", agent=written.agent)
    assert behind.url.startswith("/user/ada/proxy/1337/#/metrics?chart=loss")
    with pytest.raises(ValueError, match="no live metric matches"):
        pegel.show("no_such", agent=written.agent)


def test_summary_is_a_short_table(written):
    table = pegel.summary(since=written.began - 1, agent=written.agent)
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows['loss{rank="1"}'] == (5, 14, 12, 10, 14)
    assert not any(name.startswith("node_") for name in rows)
    lines = repr(table).splitlines()
    assert lines[0].split() == ["metric", "samples", "last", "mean", "min", "max"]
    assert 'loss{rank="0"}' in repr(table) and "<td>0.9</td>" in table._repr_html_()
    assert math.isfinite(rows['accuracy{name="a",time="b"}'][1])
