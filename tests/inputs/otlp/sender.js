// Sends every kind of metric with OpenTelemetry's SDK, as JSON: ENDPOINT TEMPORALITY.
const {
  AggregationTemporality, AggregationType, MeterProvider, PeriodicExportingMetricReader,
} = require("@opentelemetry/sdk-metrics");
const { OTLPMetricExporter, AggregationTemporalityPreference } = require("@opentelemetry/exporter-metrics-otlp-http");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const { diag, DiagLogLevel } = require("@opentelemetry/api");

const [endpoint, temporality] = process.argv.slice(2);
const fail = (...words) => { console.error(...words); process.exitCode = 1; };
const silent = () => {};
diag.setLogger({ error: fail, warn: fail, info: silent, debug: silent, verbose: silent }, DiagLogLevel.WARN);

const exporter = new OTLPMetricExporter({
  url: `${endpoint}/v1/metrics`,
  temporalityPreference: AggregationTemporalityPreference[temporality.toUpperCase()],
});
const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
const provider = new MeterProvider({
  readers: [reader],
  resource: resourceFromAttributes({ "service.name": "app", "service.instance.id": "i1", "site.zone": "north" }),
  views: [
    {
      instrumentName: "request.duration",
      aggregation: { type: AggregationType.EXPLICIT_BUCKET_HISTOGRAM, options: { boundaries: [0.1, 1, 10] } },
    },
    { instrumentName: "payload.size", aggregation: { type: AggregationType.EXPONENTIAL_HISTOGRAM } },
  ],
});
const meter = provider.getMeter("lib", "1.2");
const jobs = meter.createCounter("jobs.done", { unit: "{job}", description: "Jobs." });
const queue = meter.createUpDownCounter("queue.length");
const temperature = meter.createGauge("room.temperature", { unit: "Cel" });
const duration = meter.createHistogram("request.duration", { unit: "s", description: "Requests." });
const size = meter.createHistogram("payload.size", { unit: "By" });
let cpu = 0;
meter.createObservableCounter("cpu.time", { unit: "s" }).addCallback((result) => result.observe(cpu, { mode: "user" }));
meter.createObservableUpDownCounter("pool.size").addCallback((result) => result.observe(3));
meter.createObservableGauge("cpu.usage", { unit: "1" }).addCallback((result) => result.observe(0.75));

(async () => {
  for (const [count, change, degrees, seconds] of [[5, 7, 21.5, 10.0], [2, -3, 22.5, 2.5]]) {
    jobs.add(count, { kind: "batch" });
    jobs.add(1, { kind: "test.run", "http.method": "GET" });
    queue.add(change);
    temperature.record(degrees);
    for (const value of [0.05, 0.5, 5, 50]) duration.record(value, { route: "/a" });
    for (const value of [0, 1, 3, 1000]) size.record(value);
    cpu += seconds;
    await provider.forceFlush();
  }
  await provider.shutdown();
})().catch(fail);
