"""The examples run, and their metrics arrive."""

import pathlib
import re
import subprocess
import sys

import pegel
import pytest

from conftest import BINARY, BOUND, eventually

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
DRAGON = EXAMPLES.parent.parent.parent / "config" / "dragon.yaml"


def run(node, name, *args):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *args],
        env=node.environment(), capture_output=True, text=True, timeout=BOUND, cwd=node.home,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def descriptions(node):
    """Returns the texts of the annotations that every chart shows."""
    body = {"start": "1h-ago", "queries": [{"metric": "node_load1", "aggregator": "sum"}]}
    found = node.agent.request("POST", "/api/query", body={**body, "globalAnnotations": True})
    return sorted(one["description"] for one in found[0]["globalAnnotations"])


def test_workers_of_a_pool(running):
    pytest.importorskip("numpy")
    printed = run(running, "scale_work.py", "--num_workers=2", "--iterations=3", "--images=8", "--size=32")
    assert printed.startswith("3 iterations, ")
    running.wait_for({"filter_seconds_count": 24})
    by_worker = running.values("images_total*")
    # The parent, which counts nothing, and the workers that had work.
    assert sum(by_worker.values()) == 24 and 2 <= len(by_worker) <= 3
    eventually("three times", lambda: len(running.samples("iteration_time")[0]) == 3)
    assert running.samples("iteration") == [[0, 1, 2]]
    assert running.samples("pool_start_time")[0][0] > 0
    assert descriptions(running) == ["iteration 0", "iteration 1", "iteration 2"]


def test_a_training_loop(running):
    pytest.importorskip("numpy")
    printed = run(running, "training.py", "--epochs=3", "--steps=200")
    assert printed.startswith("accuracy 0.") and printed.endswith("after 600 steps\n")
    running.wait_for(
        {"train_steps_total": 600, "train_gradient_norm_count": 600, "train_epoch_seconds_count": 3}
    )
    accuracy = eventually("three epochs", lambda: [v for v in running.samples("train_accuracy") if len(v) == 3])
    assert all(0.5 < value <= 1 for value in accuracy[0])
    assert descriptions(running) == ["checkpoint 0", "checkpoint 1", "checkpoint 2", "training"]


def test_a_program_of_dragons_with_a_configuration_of_dragons(node):
    """The shipped file as it is, except for ports and directory, which a test has of its own."""
    text = DRAGON.read_text()
    for key, value in (("aggregator_port", 0), ("tsdb_server_port", 0), ("default_tmdb_dir", node.home)):
        text, count = re.subn(rf"^{key}: \S+", f"{key}: {value}", text, flags=re.MULTILINE)
        assert count == 1, key
    (node.home / "dragon.yaml").write_text(text)
    command = [BINARY, "agent", "--socket", node.socket, "--listen", "127.0.0.1:0", "--statsd", "udp:127.0.0.1:0"]
    environment = node.environment(
        DRAGON_TELEMETRY_CONFIG=str(node.home / "dragon.yaml"), DRAGON_TELEMETRY_LEVEL="3"
    )
    log = open(node.home / "agent.log", "a")
    node.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=node.home)
    eventually("the agent answers", node.is_up)
    [store] = node.home.glob("pegel-*")
    program = """
        from pegel import AnalysisClient, Telemetry
        t = Telemetry(timeout=60)
        assert t.level == 3
        t.add_data("iteration_time", 0.5, telemetry_level=2)
        client = AnalysisClient()
        client.connect(timeout=60)
        import time
        deadline = time.monotonic() + 60
        while not client.get_data("iteration_time") and time.monotonic() < deadline:
            time.sleep(0.05)
        [row] = client.get_data("iteration_time")
        print(list(row["dps"].values()), "load_average" in client.get_metrics())
        t.finalize()
    """
    assert node.python(program, DRAGON_TELEMETRY_LEVEL="3").stdout == "[0.5] True\n"
    # The only participant is done: the agent of the job stops, and removes its store.
    assert node.process.wait(BOUND) == 0
    assert not store.exists()


def test_a_notebook_runs_headless(running, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("pandas")
    for key, value in running.environment().items():
        monkeypatch.setenv(key, value)
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=int(BOUND), kernel_name="python3").execute()
    outputs = [cell["outputs"] for cell in notebook.cells if cell["cell_type"] == "code"]
    data = [output[0]["data"] for output in outputs if output]
    assert "notebook_loss" in data[0]["text/html"] and "100" in data[0]["text/plain"]
    assert "<th>metric</th>" in data[1]["text/html"] and "notebook_steps_total" in data[1]["text/plain"]
    assert "<iframe src=" in data[2]["text/html"] and "chart=notebook_loss" in data[2]["text/html"]
    assert pegel.read("notebook_loss", "-1h", agent=running.agent)[0].values[0] == 1
