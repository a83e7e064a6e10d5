"""Processes, threads and their ends: counts are exact however a program is structured or dies."""

import os
import signal

import pytest

from conftest import eventually

POOL = """
    import multiprocessing, os, sys
    import pegel

    total = pegel.counter("work_total")

    def work(n):
        total.add(1)
        pegel.counter("by_pid_total", pid=True).add(1)
        with pegel.timed("work"):
            pass
        return os.getpid()

    def with_argument(counter):
        counter.add(10)

    if __name__ == "__main__":
        method = sys.argv[1]
        total.add(1000)
        context = multiprocessing.get_context(method)
        with context.Pool(3) as pool:
            pids = set(pool.map(work, range(200), chunksize=5))
            pool.close()
            pool.join()
        # A handle as an argument counts in the child's own lanes.
        child = context.Process(target=with_argument, args=(total,))
        child.start(); child.join()
        assert child.exitcode == 0
        print(len(pids), os.getpid() in pids)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_counts_exactly(running, method):
    done = running.python(POOL, method)
    count, is_parent = done.stdout.split()
    assert int(count) >= 1 and is_parent == "False"
    # With spawn and forkserver, `total.add(1000)` runs in the parent alone.
    running.wait_for({"work_total": 1000 + 200 + 10, "work_count": 200})
    by_pid = running.values("by_pid_total*")
    assert sum(by_pid.values()) == 200 and len(by_pid) == int(count)


def test_fork_in_the_middle_counts_each_side_once(running):
    running.python(
        """
        import os, pegel, time
        c = pegel.counter("forked_total")
        t = pegel.Telemetry()
        now = int(time.time()) - 10
        c.add(1)
        t.add_data("forked", 1, now)
        for n in range(3):
            if os.fork() == 0:
                c.add(10)
                t.add_data("forked", 10, now + 1 + n)
                pegel.counter("child_total").add(1)
                os._exit(0)
        for _ in range(3):
            os.wait()
        c.add(1)
        """
    )
    running.wait_for({"forked_total": 32, "child_total": 3})
    eventually("all points", lambda: running.samples("forked") == [[1, 10, 10, 10]])


def test_threads_lose_no_update(running):
    running.python(
        """
        import pegel, sys, threading
        sys.setswitchinterval(1e-6)
        c = pegel.counter("threads_total")
        h = pegel.histogram("sizes")
        def work(n):
            own = pegel.counter("by_thread_total", labels={"thread": n})
            for i in range(5000):
                c.add(1); h.record(1); own.add(1)
                pegel.counter("looked_up_total").add(1)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for t in threads: t.start()
        for t in threads: t.join()
        """
    )
    running.wait_for({"threads_total": 40_000, "sizes_count": 40_000, "looked_up_total": 40_000})
    assert list(running.values("by_thread_total*").values()) == [5000] * 8


def test_kill_9_loses_no_count_and_no_point(running):
    program = running.spawn(
        """
        import pegel, time
        c, t = pegel.counter("killed_total"), pegel.Telemetry()
        now = int(time.time()) - 200
        for n in range(1, 100_000_000):
            c.add(1)
            if n <= 100:
                t.add_data("killed", n, now + n)
            if n % 1000 == 0:
                print(n)
        """
    )
    last = 0
    for _ in range(20):
        last = int(program.stdout.readline())
    program.send_signal(signal.SIGKILL)
    rest = program.stdout.read().split("\n")
    program.wait()
    printed = max([last, *(int(line) for line in rest[:-1] if line)])
    eventually("the points", lambda: running.samples("killed") == [[*range(1, 101)]])
    counted = running.values("killed_total")["killed_total"]
    assert printed <= counted <= printed + 1000


def test_an_agent_that_starts_later_finds_the_totals(node):
    node.python("import pegel; pegel.counter('early_total').add(7); pegel.Telemetry().add_data('early', 3)")
    node.start()
    node.wait_for({"early_total": 7})
    eventually("the point", lambda: node.samples("early") == [[3]])


def test_an_agent_that_restarts_counts_nothing_twice(running):
    program = running.spawn(
        """
        import pegel, time
        c = pegel.counter("over_total")
        for n in range(3):
            c.add(5)
            print(n)
        time.sleep(600)
        """
    )
    for n in range(3):
        assert program.stdout.readline() == f"{n}\n"
    running.wait_for({"over_total": 15})
    running.process.kill()
    running.process.wait()
    running.start()
    running.wait_for({"over_total": 15})
    program.kill()
    program.wait()


@pytest.mark.parametrize(
    "ending",
    [
        "pass",
        "raise SystemExit(0)",
        "import os; os._exit(0)",
        "import threading; threading.Thread(target=lambda: pegel.mark('late')).start()",
        "import atexit; atexit.register(lambda: (c.add(1), pegel.mark('at exit'), t.add_data('late', 1)))",
        "import asyncio; asyncio.run(asyncio.sleep(0))",
        "globals()['keep'] = type('D', (), {'__del__': lambda self: (c.add(1), t.add_data('late', 1))})()",
    ],
)
@pytest.mark.parametrize("with_agent", [True, False])
def test_a_program_that_forgets_finalize_ends(node, ending, with_agent):
    if with_agent:
        node.start()
    # The program must end before the time limit of `python`, although nothing answers for a minute.
    done = node.python(
        f"""
        import pegel
        c, t = pegel.counter("ended_total"), pegel.Telemetry()
        c.add(1); t.add_data("ended", 1); pegel.mark("begin")
        {ending}
        """
    )
    assert done.stderr == ""
    if with_agent:
        node.wait_for({"ended_total": 2 if "c.add(1)" in ending else 1})


def test_a_hanging_agent_delays_nothing(running):
    os.kill(running.process.pid, signal.SIGSTOP)
    try:
        done = running.python(
            """
            import pegel
            t = pegel.Telemetry()
            for n in range(2000):
                t.add_data("hang", n)
                pegel.counter("hang_total").add(1)
                pegel.mark(f"mark {n}")
            print(pegel.dropped().get("queue_full", 0) > 500)
            """
        )
    finally:
        os.kill(running.process.pid, signal.SIGCONT)
    assert done.stdout == "True\n"
    running.wait_for({"hang_total": 2000})


def test_asyncio_tasks_count(running):
    running.python(
        """
        import asyncio, pegel
        c = pegel.counter("tasks_total")
        async def task(n):
            async with pegel.phase("task") if n == 0 else pegel.timed("task"):
                await asyncio.sleep(0)
                c.add(1)
        async def main():
            await asyncio.gather(*(task(n) for n in range(100)))
        asyncio.run(main())
        """
    )
    running.wait_for({"tasks_total": 100, "task_count": 99})
