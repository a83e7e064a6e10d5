"""Sends every kind of metric with OpenTelemetry's SDK: PROTOCOL ENDPOINT TEMPORALITY [HEADER=VALUE]."""

import sys

from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import (
    Counter,
    Histogram,
    MeterProvider,
    ObservableCounter,
    ObservableUpDownCounter,
    UpDownCounter,
)
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from opentelemetry.sdk.resources import Resource

protocol, endpoint, temporality = sys.argv[1:4]
headers = dict(pair.split("=", 1) for pair in sys.argv[4:])
chosen = AggregationTemporality[temporality.upper()]
kinds = (Counter, UpDownCounter, Histogram, ObservableCounter, ObservableUpDownCounter)
preferred = {kind: chosen for kind in kinds}
if protocol == "grpc":
    import grpc
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    options = {"insecure": endpoint.startswith("http:"), "compression": grpc.Compression.Gzip}
    headers = tuple(headers.items())
else:
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    endpoint += "/v1/metrics"
    options = {"compression": Compression.Gzip}
exporter = OTLPMetricExporter(
    endpoint=endpoint,
    headers=headers,
    preferred_temporality=preferred,
    timeout=10,
    **options,
)
failures = []


class CheckedExporter(type(exporter)):
    """Remembers failures, which the reader only logs."""

    def export(self, *args, **kwargs):
        result = super().export(*args, **kwargs)
        if result.name != "SUCCESS":
            failures.append(result.name)
        return result


exporter.__class__ = CheckedExporter
reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
resource = Resource.create({"service.name": "app", "service.instance.id": "i1", "site.zone": "north"})
views = [
    View(instrument_name="request.duration", aggregation=ExplicitBucketHistogramAggregation((0.1, 1, 10))),
    View(instrument_name="payload.size", aggregation=ExponentialBucketHistogramAggregation()),
]
provider = MeterProvider(metric_readers=[reader], resource=resource, views=views)
meter = provider.get_meter("lib", "1.2")

jobs = meter.create_counter("jobs.done", unit="{job}", description="Jobs.")
queue = meter.create_up_down_counter("queue.length")
temperature = meter.create_gauge("room.temperature", unit="Cel")
duration = meter.create_histogram("request.duration", unit="s", description="Requests.")
size = meter.create_histogram("payload.size", unit="By")
cpu = 0.0


def observe(_):
    yield Observation(cpu, {"mode": "user"})


meter.create_observable_counter("cpu.time", [observe], unit="s")
meter.create_observable_up_down_counter("pool.size", [lambda _: [Observation(3)]])
meter.create_observable_gauge("cpu.usage", [lambda _: [Observation(0.75)]], unit="1")

for amounts in ((5, 7, 21.5, 10.0), (2, -3, 22.5, 2.5)):
    count, change, degrees, seconds = amounts
    jobs.add(count, {"kind": "batch"})
    jobs.add(1, {"kind": "test.run", "http.method": "GET"})
    queue.add(change)
    temperature.set(degrees)
    for value in (0.05, 0.5, 5, 50):
        duration.record(value, {"route": "/a"})
    for value in (0, 1, 3, 1000):
        size.record(value)
    cpu += seconds
    assert provider.force_flush(), "not sent"
provider.shutdown()
assert not failures, failures
