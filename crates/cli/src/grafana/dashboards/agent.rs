//! Dashboard of the agent itself.

use crate::grafana::dashboard::{Dashboard, DashboardPanel, DashboardRow, max_value, rate, value};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "agent",
    title: "Pegel / Agent",
    description: "Resource usage of the agent, samples received and dropped, store and collectors.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("Resource usage", COST),
        DashboardRow::expanded("Samples", SAMPLES),
        DashboardRow::collapsed("Drops", DROPS),
        DashboardRow::expanded("Store", STORE),
        DashboardRow::expanded("Collectors", COLLECTORS),
    ],
};

const COST: &[DashboardPanel] = &[
    DashboardPanel::new(
        "CPU",
        "percentunit",
        &[rate("pegel_cpu_seconds_total", &[])],
    )
    .with_thresholds(0.002, 0.01)
    .with_description("Fraction of one CPU. The target is 0.2 % at the default rate."),
    DashboardPanel::new(
        "Memory",
        "bytes",
        &[value("pegel_resident_memory_bytes", &[])],
    )
    .with_thresholds(20_971_520.0, 268_435_456.0)
    .with_description(
        "The target is 20 MiB at the default rate, plus the memory for series of programs.",
    ),
    DashboardPanel::new("Open files", "short", &[value("pegel_open_fds", &[])]),
    DashboardPanel::new("Threads", "short", &[value("pegel_threads", &[])]),
];

const SAMPLES: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Received",
        "cps",
        &[rate("pegel_received_total", &["input"])],
    )
    .with_description("By input. Samples that are not kept are dropped and counted by reason."),
    DashboardPanel::new("Kept", "cps", &[rate("pegel_kept_total", &["input"])]),
    DashboardPanel::new(
        "Sampling",
        "short",
        &[
            value("pegel_samples_late_total", &[]).with_legend("late"),
            value("pegel_samples_missed_total", &[]).with_legend("missed"),
            value("pegel_clock_steps_total", &[]).with_legend("clock steps"),
        ],
    )
    .with_description("Since the agent started."),
    DashboardPanel::new(
        "Lost log messages",
        "short",
        &[value("pegel_log_lost_total", &[])],
    )
    .with_thresholds(1.0, 100.0)
    .with_description("Log messages that the destination did not accept in time."),
];

const DROPS: &[DashboardPanel] = &[
    DashboardPanel::new("Dropped", "short", &[value("pegel_dropped_total", &["input", "reason"])])
        .with_thresholds(1.0, 1000.0)
        .with_description("Since the agent started. The metric does not exist before the first drop, and Grafana then reports an error."),
    DashboardPanel::new("Dropped per second", "cps", &[rate("pegel_dropped_total", &["input", "reason"])]),
];

const STORE: &[DashboardPanel] = &[
    DashboardPanel::new("Series", "short", &[value("pegel_store_series", &[])]).third_width(),
    DashboardPanel::new("Memory", "bytes", &[value("pegel_store_memory_bytes", &[])]).third_width(),
    DashboardPanel::new(
        "Disk",
        "bytes",
        &[
            value("pegel_store_block_bytes", &[]).with_legend("blocks"),
            value("pegel_store_log_bytes", &[]).with_legend("log"),
        ],
    )
    .third_width(),
    DashboardPanel::new(
        "Problems",
        "none",
        &[
            max_value("pegel_store_degraded", &[]).with_legend("degraded"),
            max_value("pegel_store_set_aside", &[]).with_legend("quarantined files"),
        ],
    )
    .with_thresholds(1.0, 1.0)
    .with_description("Degraded is 1 while the store cannot write; it recovers by itself."),
    DashboardPanel::new(
        "Out-of-order and duplicate samples",
        "cps",
        &[
            rate("pegel_store_out_of_order_total", &[]).with_legend("out of order"),
            rate("pegel_store_duplicates_total", &[]).with_legend("replaced"),
        ],
    ),
];

const COLLECTORS: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Time",
        "percentunit",
        &[rate("pegel_collector_seconds_total", &["collector"])],
    )
    .with_description("Fraction of one CPU, by collector."),
    DashboardPanel::new(
        "Failed",
        "none",
        &[max_value("pegel_collector_failed", &["collector"])],
    )
    .with_thresholds(1.0, 1.0)
    .with_description("1 while a collector cannot read its source; /status shows the error."),
];
