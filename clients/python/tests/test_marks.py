"""Marks and phases: annotations of the agent."""

import time

import pegel
import pytest

from conftest import eventually


def annotations(node):
    """Returns the annotations of all series, as OpenTSDB's queries return them."""
    node.agent.request(
        "POST", "/api/put", body={"metric": "any", "timestamp": int(time.time()), "value": 1}
    )
    query = {"metric": "any", "aggregator": "sum"}
    body = {"start": "1h-ago", "queries": [query], "globalAnnotations": True}
    found = node.agent.request("POST", "/api/query", body=body)
    return found[0].get("globalAnnotations") or []


def test_a_mark_and_a_phase_are_stored(running):
    before = time.time() * 1000
    running.python(
        """
        import pegel, time
        pegel.mark("checkpoint 12", labels={"file": "a.ckpt"})
        with pegel.phase("assembly"):
            time.sleep(0.05)
        @pegel.phase("solve")
        def solve():
            return 4
        assert solve() == 4
        assert pegel.flush(30)
        """,
        SLURM_JOB_ID="77",
        SLURM_PROCID="3",
    )
    found = {one["description"]: one for one in annotations(running)}
    assert set(found) == {"checkpoint 12", "assembly", "solve"}
    mark, phase = found["checkpoint 12"], found["assembly"]
    assert before <= mark["startTime"] <= time.time() * 1000 and mark["endTime"] == 0
    assert mark["custom"]["kind"] == "mark" and mark["custom"]["file"] == "a.ckpt"
    assert (mark["custom"]["jobid"], mark["custom"]["rank"]) == ("77", "3")
    # The start is a millisecond later if the mark has taken it.
    assert phase["endTime"] - phase["startTime"] >= 45
    assert phase["custom"]["kind"] == "phase" and found["solve"]["endTime"] > 0


def test_a_running_phase_is_visible(running):
    program = running.spawn(
        """
        import pegel, time
        with pegel.phase("long"):
            print("begun")
            time.sleep(600)
        """
    )
    assert program.stdout.readline() == "begun\n"
    [one] = eventually("the phase", lambda: annotations(running))
    assert one["description"] == "long" and one["endTime"] == 0
    program.kill()
    program.wait()


def test_marks_of_one_moment_do_not_replace_each_other(running):
    running.python(
        """
        import pegel
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: pegel.mark(f"mark {n}"), range(40)))
        assert pegel.flush(30) and pegel.dropped() == {}
        """
    )
    assert sorted(one["description"] for one in annotations(running)) == sorted(
        f"mark {n}" for n in range(40)
    )


def test_children_of_multiprocessing_deliver_their_marks(running):
    running.python(
        """
        import multiprocessing, pegel
        pegel.mark("parent")
        def work(n):
            pegel.mark(f"child {n}")
        if __name__ == "__main__":
            for method in ("fork", "spawn"):
                child = multiprocessing.get_context(method).Process(target=work, args=(method,))
                child.start(); child.join()
                assert child.exitcode == 0
        """
    )
    found = {one["description"] for one in annotations(running)}
    assert found == {"parent", "child fork", "child spawn"}


def test_marks_wait_for_an_agent_that_starts_later(node):
    program = node.spawn(
        """
        import pegel, time
        pegel.mark("early")
        print("sent")
        time.sleep(600)
        """
    )
    assert program.stdout.readline() == "sent\n"
    node.start()
    [one] = eventually("the mark", lambda: annotations(node))
    assert one["description"] == "early"
    program.kill()
    program.wait()


def test_without_an_agent_marks_are_counted(node):
    done = node.python(
        """
        import pegel
        for n in range(1100):
            pegel.mark("lost")
        from pegel import _sender
        _sender.sender.close()
        counts = pegel.dropped()
        assert sum(counts.values()) == 1100 and counts["queue_full"] > 0, counts
        """
    )
    assert done.stdout == ""


def test_texts_that_are_none_are_errors():
    for text in (None, 7, b"x"):
        with pytest.raises(TypeError, match="must be of type str"):
            pegel.mark(text)
        with pytest.raises(TypeError, match="must be of type str"):
            pegel.phase(text)
    for text in ("", "x" * 5000):
        with pytest.raises(ValueError, match="1 to 4096 characters"):
            pegel.mark(text)
