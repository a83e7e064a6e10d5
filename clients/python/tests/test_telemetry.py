"""Dragon's Telemetry and AnalysisClient."""

import inspect
import os
import subprocess
import sys
import textwrap
import time

import pegel
import pytest
from pegel import AnalysisClient, Telemetry

from conftest import eventually


def test_the_interface_is_dragons():
    signature = inspect.signature(Telemetry)
    assert list(signature.parameters)[:3] == ["metrics_url", "timeout", "telem_cfg"]
    parameters = inspect.signature(Telemetry.add_data).parameters
    assert list(parameters)[1:] == [
        "ts_metric_name",
        "ts_data",
        "timestamp",
        "telemetry_level",
        "tagk",
        "tagv",
    ]
    assert Telemetry.shutdown is Telemetry.finalize


def test_data_is_stored_with_its_tag_and_time(running):
    start = int(time.time()) - 20
    running.python(
        """
        import sys
        from pegel import Telemetry
        start = int(sys.argv[1])
        t = Telemetry()
        t.add_data("accuracy", 0.9, telemetry_level=2)
        t.add_data("loss", 1.5, start)
        t.add_data("loss", 1.25, timestamp=start + 1, telemetry_level=1)
        t.add_data("gpu_time", 3, start, 1, "gpu", 0)
        t.add_data("gpu_time", 4, start, tagk="gpu", tagv="1")
        t.add_data("gpu_time", 5, start, tagk="gpu")           # a tag needs key and value
        t.add_data("by_rank", 6, start, tagk="rank", tagv=2)
        t.finalize()
        t.add_data("after", 1)
        """,
        str(start),
    )
    eventually("accuracy", lambda: running.samples("accuracy") == [[0.9]])
    eventually("loss", lambda: running.samples("loss") == [[1.5, 1.25]])
    found = pegel.read("gpu_time", start - 1, agent=running.agent)
    by_gpu = {one.labels.get("gpu"): list(one.values) for one in found}
    assert by_gpu == {None: [5], "0": [3], "1": [4]}
    assert pegel.read("by_rank", start - 1, agent=running.agent)[0].labels == {"rank": "2"}
    assert running.samples("after") == []


def test_levels_are_those_of_the_launcher(running):
    program = """
        from pegel import Telemetry
        t = Telemetry()
        print(t.level)
        t.add_data("at_one", 1)
        t.add_data("at_two", 1, telemetry_level=2)
        t.add_data("at_three", 1, telemetry_level=3)
        t.start(3)
        t.add_data("started_three", 1, telemetry_level=3)
        print(t.level)
    """
    assert running.python(program, DRAGON_TELEMETRY_LEVEL="2").stdout == "2\n3\n"
    eventually("level 2", lambda: running.samples("at_two") == [[1]])
    eventually("started", lambda: running.samples("started_three") == [[1]])
    assert running.samples("at_one") == [[1]] and running.samples("at_three") == []
    assert running.python(program, DRAGON_TELEMETRY_LEVEL="0").stdout == "0\n3\n"
    assert running.samples("at_one") == [[1]]
    failed = running.python(program, DRAGON_TELEMETRY_LEVEL="many", check=False)
    assert "DRAGON_TELEMETRY_LEVEL='many' is not a whole number" in failed.stderr


def test_a_timeout_waits_for_an_agent_and_then_raises(node):
    program = """
        import time
        from pegel import Telemetry
        started = time.monotonic()
        try:
            Telemetry(timeout=0.5)
        except TimeoutError as error:
            print(error, time.monotonic() - started >= 0.5)
        Telemetry()                             # without one it does not wait
    """
    done = node.python(program)
    assert done.stdout == f"no agent answered on {node.socket} within 0.5 s True\n"
    assert node.python(program, DRAGON_TELEMETRY_LEVEL="0").stdout == ""
    waiting = node.spawn("from pegel import Telemetry; Telemetry(timeout=60); print('found')")
    node.start()
    assert waiting.stdout.readline() == "found\n"
    assert waiting.wait(60) == 0
    assert node.python(program).stdout == ""


def test_without_an_agent_nothing_raises_and_nothing_waits(node):
    done = node.python(
        """
        from pegel import Telemetry
        t = Telemetry("http://localhost:4243/api/metrics", None, "/no/such/file.yaml")
        for n in range(10_000):
            t.add_data("iteration_time", n * 0.1)
        t.finalize()
        t.shutdown()
        print("done")
        """
    )
    assert done.stdout == "done\n"


def test_an_analysis_client_reads_what_telemetry_wrote(running):
    now = int(time.time())
    running.python(
        """
        import sys
        from pegel import Telemetry
        now = int(sys.argv[1])
        t = Telemetry()
        for n in range(3):
            t.add_data("iteration_time", n, now - 10 + n)
            t.add_data("gpu_time", n, now - 10 + n, tagk="gpu", tagv=n % 2)
        t.add_data("old", 1, now - 400)
        """,
        str(now),
    )
    client = AnalysisClient(agent=running.agent)
    with pytest.raises(RuntimeError, match="connect"):
        client.get_data("iteration_time")
    client.connect(timeout=10)
    eventually("all is stored", lambda: running.samples("old") == [[1]])
    [row] = client.get_data("iteration_time")
    assert set(row) == {"metric", "tags", "aggregateTags", "dps"}
    assert row["metric"] == "iteration_time" and "host" in row["tags"]
    assert row["dps"] == {str(now - 10 + n): n for n in range(3)}
    rows = client.get_data(["iteration_time", "gpu_time"])
    assert sorted((row["metric"], row["tags"].get("gpu")) for row in rows) == [
        ("gpu_time", "0"),
        ("gpu_time", "1"),
        ("iteration_time", None),
    ]
    [row] = client.get_data("gpu_time", tags={"gpu": 1})
    assert row["dps"] == {str(now - 9): 1}
    assert client.get_data("old") == []
    assert client.get_data("old", start_time=now - 500)[0]["dps"] == {str(now - 400): 1}
    assert client.get_data("never_sent") == []
    assert {"iteration_time", "gpu_time", "old"} <= client.get_metrics()
    with pytest.raises(AttributeError):
        client.get_data(7)


def test_an_analysis_client_without_an_agent_says_so(node):
    with pytest.raises(RuntimeError, match="no agent answered"):
        AnalysisClient(agent=node.agent).connect(timeout=0.2)


FINALIZE = """
    import sys
    from pegel import Telemetry, flush
    t = Telemetry()
    assert flush(30)
    print("active", flush=True)
    sys.stdin.readline()
    if sys.argv[1] == "done":
        t.finalize()
"""


def participant(node, end):
    """Starts a process with a Telemetry object, which ends when it reads a line."""
    program = node.home / "participant.py"
    program.write_text(textwrap.dedent(FINALIZE))
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, program, end], env=node.environment(), stdin=pipe, stdout=pipe, text=True
    )
    assert process.stdout.readline() == "active\n"
    return process


def end(process):
    process.stdin.write("\n")
    process.stdin.close()
    assert process.wait(60) == 0


@pytest.mark.parametrize("is_of_job", [True, False])
def test_finalize_stops_an_agent_of_a_job_when_all_participants_are_done(node, is_of_job):
    node.start(*(["--until-pid", str(os.getpid())] if is_of_job else []))
    first, second, forgetful = (participant(node, how) for how in ("done", "done", "forgotten"))
    assert node.agent.get("/api/v1/participants") == {"active": 3, "done": 0, "stopping": False}
    end(first)
    assert node.agent.get("/api/v1/participants")["active"] == 2
    assert node.process.poll() is None
    # A participant that ends without finalize is not waited for.
    end(forgetful)
    end(second)
    if is_of_job:
        assert node.process.wait(60) == 0
    else:
        assert node.agent.get("/api/v1/participants") == {"active": 0, "done": 2, "stopping": False}
        assert node.process.poll() is None


def test_finalize_in_a_child_does_not_end_its_parents_part(node):
    node.start("--until-pid", str(os.getpid()))
    done = node.python(
        """
        import os
        from pegel import Telemetry, flush
        t = Telemetry()
        assert flush(30)
        if os.fork() == 0:
            t.finalize()
            os._exit(0)
        os.wait()
        import pegel
        print(pegel.Agent().get("/api/v1/participants"))
        """
    )
    assert done.stdout == "{'active': 1, 'done': 0, 'stopping': False}\n"
