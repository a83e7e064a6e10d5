"""Measures updates: prints `name TAB nanoseconds of CPU time` for each.

    updates.py HOST:PORT COUNT
"""

import http.client
import json
import sys
import time

import pegel

ADDRESS, COUNT = sys.argv[1], int(sys.argv[2])


def cost(call, count=COUNT):
    """Returns the CPU time of one call, without that of the loop."""
    before = time.process_time_ns()
    for _ in range(count):
        call()
    total = time.process_time_ns() - before
    before = time.process_time_ns()
    for _ in range(count):
        pass
    return (total - (time.process_time_ns() - before)) / count


def row(name, nanos):
    print(f"{name}\t{nanos:.1f}")


counter = pegel.counter("bench_total")
gauge = pegel.gauge("bench")
histogram = pegel.histogram("bench_size")
telemetry = pegel.Telemetry()
assert pegel.is_published(), "the lanes are private memory: the updates would not be those of users"


# Each statement has a loop of its own: a function around it would cost as much as the update.
def loop(statement):
    source = f"""
def run(count):
    before = now()
    for _ in numbers:
        {statement}
    total = now() - before
    before = now()
    for _ in numbers:
        pass
    return (total - (now() - before)) / count
"""
    scope = {
        "now": time.process_time_ns,
        "numbers": range(COUNT),
        "counter": counter,
        "gauge": gauge,
        "histogram": histogram,
        "telemetry": telemetry,
        "empty": [],
        "timed": pegel.timed,
        "start": int(time.time()),
    }
    exec(source, scope)
    scope["run"](COUNT)
    return scope["run"](COUNT)


row("an empty call of a built-in method", loop("empty.clear()"))
row("counter.add(1)", loop("counter.add(1)"))
row("gauge.set(0.5)", loop("gauge.set(0.5)"))
row("histogram.record(0.5)", loop("histogram.record(0.5)"))
row("add_data(name, value)", loop("telemetry.add_data('bench_data', 0.5)"))
row("add_data with a tag and a time", loop("telemetry.add_data('bench_tagged', 0.5, start, 1, 'gpu', 3)"))


def plain():
    pass


row("a function with @timed, added", cost(pegel.timed("bench_timed")(plain)) - cost(plain))
row("with timed(name)", loop("with timed('bench_with'): pass"))


def post():
    """Sends one value as Dragon's client does: a new connection for each."""
    host, _, port = ADDRESS.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port))
    body = {"dps": [{"metric": "bench_post", "value": 0.5}], "timestamp": int(time.time())}
    connection.request(
        "POST", "/api/metrics", json.dumps(body), {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 201, answer.status
    connection.close()


row("POST /api/metrics", cost(post, max(20, COUNT // 1000)))
