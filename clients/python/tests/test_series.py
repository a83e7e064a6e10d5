"""Counters, gauges, timers, histograms, points: what a program counts is what the agent has."""

import asyncio
import pickle
import threading
import time

import pegel
import pytest

from conftest import eventually


def test_every_kind_reaches_the_agent(running):
    running.python(
        """
        import pegel
        pegel.counter("steps_total", help="Steps.", labels={"phase": "solve", "gpu": 0}).add(3)
        pegel.counter("steps_total", labels={"gpu": 0, "phase": "solve"}).add()
        pegel.float_counter("energy_joules_total").add(1.5)
        pegel.gauge("loss").set(0.41)
        pegel.gauge("workers").add(2)
        pegel.gauge("workers").add(-0.5)
        for size in (1, 2, 3):
            pegel.histogram("message_bytes").record(size)
        pegel.timer("step_seconds").record(0.25)
        pegel.point("accuracy").add(0.9)
        assert pegel.is_published()
        """
    )
    running.wait_for(
        {
            'steps_total{gpu="0",phase="solve"}': 4,
            "energy_joules_total": 1.5,
            "message_bytes_count": 3,
            "message_bytes_sum": 6,
            "step_seconds_sum": 0.25,
        }
    )
    eventually("the point is stored", lambda: running.samples("accuracy") == [[0.9]])


def test_gauges_are_live_while_the_program_runs(running):
    program = running.spawn(
        """
        import pegel, time
        pegel.gauge("loss").set(0.41)
        pegel.gauge("queue").add(2)
        pegel.gauge("queue").add(-0.5)
        print("set")
        time.sleep(600)
        """
    )
    assert program.stdout.readline() == "set\n"
    running.wait_for({"loss": 0.41, "queue": 1.5})
    program.kill()
    program.wait()
    eventually("a gauge ends with its program", lambda: not running.values("loss"))


def test_points_have_their_own_time(running):
    start = int(time.time()) - 30
    running.python(
        """
        import pegel, sys, datetime
        start = int(sys.argv[1])
        p = pegel.point("residual")
        p.add(1, start)                    # seconds
        p.add(2, start + 0.25)
        p.add(3, (start + 1) * 1000)       # milliseconds
        p.add(4, time=datetime.datetime.fromtimestamp(start + 2, datetime.timezone.utc))
        """,
        str(start),
    )
    eventually("all points are stored", lambda: running.samples("residual") == [[1, 2, 3, 4]])
    found = pegel.read("residual", start - 1, agent=running.agent)[0]
    assert [t - start * 1000 for t in found.times] == [0, 250, 1000, 2000]


def test_processes_are_told_apart_on_request(running):
    program = """
        import pegel, os
        pegel.counter("a_total", pid=True).add(1)
        pegel.counter("b_total", rank=True).add(1)
        pegel.counter("c_total", labels={"rank": 7}).add(1)
        print(os.getpid())
    """
    pids = [running.python(program, OMPI_COMM_WORLD_RANK=str(rank)).stdout.strip() for rank in (0, 1)]
    running.wait_for(
        {
            f'a_total{{pid="{pids[0]}"}}': 1,
            f'a_total{{pid="{pids[1]}"}}': 1,
            'b_total{rank="0"}': 1,
            'b_total{rank="1"}': 1,
            'c_total{rank="7"}': 2,
        }
    )


def test_timed_blocks_functions_and_coroutines(running):
    running.python(
        """
        import asyncio, pegel

        with pegel.timed("block"):
            pass
        try:
            with pegel.timed("block"):
                raise KeyError
        except KeyError:
            pass

        @pegel.timed("function")
        def double(x):
            "Doubles."
            return 2 * x
        assert double(4) == 8 and double.__name__ == "double" and double.__doc__ == "Doubles."

        @pegel.timed("coroutine")
        async def wait(x):
            await asyncio.sleep(0.02)
            return x

        async def main():
            assert await asyncio.gather(*(wait(n) for n in range(5))) == list(range(5))
        asyncio.run(main())

        try:
            @pegel.timed("generator")
            def numbers():
                yield 1
        except TypeError as error:
            assert "generator" in str(error)
        else:
            raise AssertionError
        """
    )
    running.wait_for({"block_count": 2, "function_count": 1, "coroutine_count": 5})
    assert running.values("coroutine_sum")["coroutine_sum"] >= 5 * 0.02


class RecordedTimer:
    """Keeps durations in a list."""

    def __init__(self):
        self.durations = []

    def record(self, seconds):
        self.durations.append(seconds)


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests set."""
    now = [0.0]
    monkeypatch.setattr("pegel._timed.perf_counter", lambda: now[0])
    return now


def test_tasks_and_threads_that_share_a_timer_have_their_own_beginnings(clock):
    shared = pegel.timed("shared")
    shared.timer = RecordedTimer()

    async def task(begin, end, started, may_end):
        clock[0] = begin
        async with shared:
            started.set()
            await may_end.wait()
            clock[0] = end

    async def main():
        events = [asyncio.Event() for _ in range(4)]
        first = asyncio.create_task(task(0, 11, events[0], events[1]))
        await events[0].wait()
        second = asyncio.create_task(task(10, 13, events[2], events[3]))
        await events[2].wait()
        # The first one ends first: the last beginning is not its own.
        events[1].set()
        await first
        events[3].set()
        await second

    asyncio.run(main())
    assert shared.timer.durations == [11, 3]

    begun, ended = threading.Barrier(2), threading.Event()

    def thread():
        with shared:
            begun.wait()
            ended.wait()

    clock[0] = 0
    other = threading.Thread(target=thread)
    other.start()
    begun.wait()
    clock[0] = 5
    with shared:
        with shared:
            clock[0] = 6
        clock[0] = 8
    assert shared.timer.durations[2:] == [1, 3]
    ended.set()
    other.join()
    assert shared.timer.durations[4:] == [8]


def test_a_generator_suspended_inside_with_keeps_its_beginning(clock):
    outer, inner = pegel.timed("outer"), pegel.timed("inner")
    outer.timer, inner.timer = RecordedTimer(), RecordedTimer()

    def numbers():
        with inner:
            yield 1

    generator = numbers()
    with outer:
        next(generator)
        clock[0] = 2
    assert outer.timer.durations == [2]
    clock[0] = 7
    generator.close()
    assert inner.timer.durations == [7]


def test_a_handle_is_remembered_and_can_be_pickled():
    assert pegel.counter("same_total") is pegel.counter("same_total")
    assert pegel.counter("same_total").name == "same_total"
    made = pegel.gauge("copied", labels={"gpu": 0}, aggregation="max", level=2, help="Help.")
    copy = pickle.loads(pickle.dumps(made))
    assert (copy.name, copy.labels) == ("copied", {"gpu": "0"})
    assert repr(copy) == '<pegel.Gauge copied{gpu="0"}>'
    for handle in (
        pegel.counter("p_total", labels={"a": 1}),
        pegel.float_counter("f_total"),
        pegel.histogram("h"),
        pegel.timer("t"),
        pegel.point("p"),
    ):
        copy = pickle.loads(pickle.dumps(handle))
        assert type(copy) is type(handle) and copy.labels == handle.labels


def test_metrics_can_be_turned_off(running):
    done = running.python(
        """
        import pegel
        pegel.counter("off_total").add(1)
        t = pegel.Telemetry()
        t.add_data("off", 1)
        print(pegel.is_published(), pegel.dropped())
        """,
        PEGEL_DISABLE="1",
    )
    assert done.stdout == "False {}\n"
    assert running.values("off*") == {}
