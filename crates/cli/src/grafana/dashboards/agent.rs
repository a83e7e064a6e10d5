//! Dashboard of the agent itself.

use crate::grafana::dashboard::{Dashboard, DashboardRow, panel};

#[rustfmt::skip]
pub(super) const DASHBOARD: Dashboard = Dashboard {
    name: "agent",
    title: "Pegel / Agent",
    description: "Resource usage of the agent, samples received and dropped, store and collectors.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("Resource usage", &[
            panel("CPU usage of the agent", "percentunit", &["rate(pegel_cpu_seconds_total)"]).with_thresholds(0.002, 0.01)
                .with_description("Fraction of one CPU. The target is 0.2 % at the default rate."),
            panel("Memory of the agent", "bytes", &["pegel_resident_memory_bytes"]).with_thresholds(20_971_520.0, 268_435_456.0)
                .with_description("The target is 20 MiB at the default rate, plus the memory for series of programs."),
            panel("Open files of the agent", "short", &["pegel_open_fds"]),
            panel("Threads of the agent", "short", &["pegel_threads"]),
        ]),
        DashboardRow::expanded("Samples", &[
            panel("Samples received", "cps", &["rate(pegel_received_total) by input"])
                .with_description("By input. Samples that are not kept are dropped and counted by reason."),
            panel("Samples kept", "cps", &["rate(pegel_kept_total) by input"]),
            panel("Late and missed samples", "short", &[
                "pegel_samples_late_total as late",
                "pegel_samples_missed_total as missed",
                "pegel_clock_steps_total as clock steps",
            ])
                .with_thresholds(1.0, 100.0)
                .with_description("Since the agent started."),
            panel("Lost log messages", "short", &["pegel_log_lost_total"]).with_thresholds(1.0, 100.0)
                .with_description("Log messages that the destination did not accept in time."),
        ]),
        DashboardRow::collapsed("Drops", &[
            panel("Samples dropped", "short", &["pegel_dropped_total by input, reason"]).with_thresholds(1.0, 1000.0)
                .with_description("Since the agent started. The metric does not exist before the first drop, and Grafana then reports an error."),
            panel("Samples dropped per second", "cps", &["rate(pegel_dropped_total) by input, reason"])
                .with_thresholds(0.1, 100.0),
        ]),
        DashboardRow::expanded("Store", &[
            panel("Series in the store", "short", &["pegel_store_series"]).third_width(),
            panel("Memory of the store", "bytes", &["pegel_store_memory_bytes"]).third_width(),
            panel("Disk usage of the store", "bytes", &[
                "pegel_store_block_bytes as blocks",
                "pegel_store_log_bytes as log",
            ]).third_width(),
            panel("Problems of the store", "none", &[
                "max(pegel_store_degraded) as degraded",
                "max(pegel_store_set_aside) as quarantined files",
            ]).with_thresholds(1.0, 1.0)
                .with_description("Degraded is 1 while the store cannot write; it recovers by itself."),
            panel("Out-of-order and duplicate samples", "cps", &[
                "rate(pegel_store_out_of_order_total) as out of order",
                "rate(pegel_store_duplicates_total) as replaced",
            ]),
        ]),
        DashboardRow::expanded("Collectors", &[
            panel("Time of collectors", "percentunit", &["rate(pegel_collector_seconds_total) by collector"])
                .with_description("Fraction of one CPU, by collector."),
            panel("Failed collectors", "none", &["max(pegel_collector_failed) by collector"]).with_thresholds(1.0, 1.0)
                .with_description("1 while a collector cannot read its source; /status shows the error."),
        ]),
    ],
};
