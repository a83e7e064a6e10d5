"""A real agent for each test, with directories of its own."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import pegel

BINARY = os.environ.get("PEGEL_BINARY", "")
BOUND = 60.0


def eventually(what, check):
    """Returns the first true result of `check`; fails after a minute."""
    deadline = time.monotonic() + BOUND
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {BOUND:g} s: {what}; last result: {result!r}"
        time.sleep(0.02)


class Node:
    """Directories of a node, its agent, and programs that run on it."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home = home
        self.socket = home / "push.sock"
        self.lanes = home / "lanes"
        self.lanes.mkdir()
        self.process = None
        self.agent = pegel.Agent(str(self.socket))

    def environment(self, **more):
        kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
        return {
            **kept,
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home),
            "PEGEL_LANES": str(self.lanes),
            "PEGEL_SOCKET": str(self.socket),
            "PEGEL_IMDS_URL": "none",
            **more,
        }

    def start(self, *args, config="", **environment):
        """Starts the agent and waits until it answers."""
        path = self.home / "pegel.yaml"
        path.write_text("rate: 100ms\n" + config)
        command = [BINARY, "agent", "--dir", self.home / "store", "--socket", self.socket]
        command += ["--listen", "127.0.0.1:0", "--statsd", "udp:127.0.0.1:0", "--config", path, *args]
        log = open(self.home / "agent.log", "a")
        self.process = subprocess.Popen(
            command, env=self.environment(**environment), stdout=log, stderr=log, cwd=self.home
        )
        eventually("the agent answers", self.is_up)
        return self

    def is_up(self):
        text = (self.home / "agent.log").read_text()
        assert self.process.poll() is None, f"the agent ended: {text}"
        return self.agent.is_ready()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(BOUND)

    def python(self, text, *args, check=True, **environment):
        """Runs a Python program on this node; returns the finished process."""
        program = self.home / "program.py"
        program.write_text(textwrap.dedent(text))
        done = subprocess.run(
            [sys.executable, program, *args],
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=BOUND,
            cwd=self.home,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def spawn(self, text, **environment):
        """Starts a Python program on this node whose output can be read line by line."""
        program = self.home / "spawned.py"
        program.write_text(textwrap.dedent(text))
        return subprocess.Popen(
            [sys.executable, "-u", program],
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            text=True,
            cwd=self.home,
        )

    def values(self, match):
        """Returns the current values by series."""
        rows = self.agent.get("/api/v1/values", {"match": match})
        return {row["name"]: row["value"] for row in rows}

    def wait_for(self, expected):
        """Waits until the current values are as expected."""

        def found():
            return {name: self.values(f"{name.partition('{')[0]}*").get(name) for name in expected}

        eventually(expected, lambda: found() == expected or None)

    def samples(self, match):
        """Returns the stored values of each series that matches."""
        found = pegel.read(match, "-1h", agent=self.agent)
        return [list(one.values) for one in found]


@pytest.fixture
def node(tmp_path):
    """A node without an agent."""
    made = Node(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def running(node):
    """A node whose agent runs."""
    return node.start()


def status_input(agent, name):
    """Returns received, kept and dropped of an input."""
    rows = agent.get("/status")["inputs"]
    return next(row for row in rows if row["input"] == name)
