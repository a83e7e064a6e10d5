"""Values for another statsd server."""

import socket

import pegel
import pytest

from conftest import BOUND


@pytest.fixture
def server():
    """A statsd server, which remembers nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.settimeout(BOUND)
        yield made


def address(server):
    return f"127.0.0.1:{server.getsockname()[1]}"


def lines(server):
    """Returns the lines of the next datagram."""
    datagram = server.recv(65_536)
    assert len(datagram) <= 1440
    return sorted(datagram.decode().splitlines())


def test_the_environment_names_a_server(node, server):
    node.python(
        """
        import pegel
        pegel.counter("py.steps", labels={"q": "main"}).add(3)
        pegel.gauge("py.loss").set(0.25)
        """,
        PEGEL_STATSD=address(server),
    )
    # Sent at the exit of the program, without an agent.
    assert lines(server) == ["py.loss:0.25|g", "py.steps.q.main:3|c"]


def test_sources_are_switched_while_the_program_runs(node, server):
    node.python(
        """
        import sys, pegel
        pegel.statsd.start(sys.argv[1])
        steps, io = pegel.counter("py.steps"), pegel.counter("py.io.bytes")
        steps.add(1); io.add(10)
        pegel.statsd.flush()
        pegel.statsd.switch("py.io.*", False)
        steps.add(1); io.add(20)
        pegel.statsd.flush()
        pegel.statsd.switch("py.io.*", True)
        io.add(40)
        pegel.statsd.flush()
        pegel.statsd.flush()                    # nothing changed
        assert pegel.statsd.counts() == {"lines": 4, "datagrams": 3, "errors": 0}
        """,
        address(server),
        PEGEL_STATSD_INTERVAL="86400",
    )
    assert lines(server) == ["py.io.bytes:10|c", "py.steps:1|c"]
    assert lines(server) == ["py.steps:1|c"]
    # What was counted while it was off is not sent later.
    assert lines(server) == ["py.io.bytes:40|c"]


def test_a_child_of_fork_goes_on_with_server_and_switches(node, server):
    node.python(
        """
        import os, sys, pegel
        pegel.statsd.start(sys.argv[1])
        c, quiet = pegel.counter("py.forked"), pegel.counter("py.quiet")
        pegel.statsd.switch("py.quiet", False)
        c.add(1); quiet.add(1)
        pegel.statsd.flush()
        if os.fork() == 0:
            c.add(10); quiet.add(1)
            pegel.statsd.flush()
            os._exit(0)
        os.wait()
        """,
        address(server),
        PEGEL_STATSD_INTERVAL="86400",
    )
    assert [lines(server), lines(server)] == [["py.forked:1|c"], ["py.forked:10|c"]]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_send_what_they_counted(node, server, method):
    node.python(
        """
        import multiprocessing, sys, pegel
        c = pegel.counter("py.work")
        def work(n):
            c.add(n)
        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[1])
            children = [context.Process(target=work, args=(n,)) for n in (1, 10, 100)]
            for child in children: child.start()
            for child in children: child.join()
        """,
        method,
        # A name, which each child has to resolve.
        PEGEL_STATSD=address(server).replace("127.0.0.1", "localhost"),
        PEGEL_STATSD_INTERVAL="86400",
    )
    # Each at its end, long before its interval.
    found = [line for _ in range(3) for line in lines(server)]
    assert sorted(found, key=len) == ["py.work:1|c", "py.work:10|c", "py.work:100|c"]


def test_a_short_program_sends_to_a_server_with_a_name(node, server):
    node.python(
        "import pegel; pegel.counter('py.short').add(1)",
        PEGEL_STATSD=address(server).replace("127.0.0.1", "localhost"),
    )
    assert lines(server) == ["py.short:1|c"]


def test_malformed_addresses_are_errors_and_a_missing_server_is_none(node):
    for bad in ("", "aggregator", "aggregator:", ":8125", "host:0", "host:99999", "unix:relative"):
        with pytest.raises(ValueError, match="HOST:PORT"):
            pegel.statsd.start(bad)
    with pytest.raises(TypeError):
        pegel.statsd.start(None)
    done = node.python(
        f"""
        import pegel
        pegel.statsd.start("unix:{node.home}/none.sock")
        pegel.counter("py.steps").add(1)
        pegel.statsd.flush()
        print(pegel.statsd.counts()["errors"])
        """,
        PEGEL_STATSD_INTERVAL="86400",
    )
    assert done.stdout == "1\n"
