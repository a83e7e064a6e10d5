use crate::grafana::dashboard::{Dashboard, DashboardPanel, DashboardRow, max_value, rate, value};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "agent",
    title: "Pegel / The agent itself",
    description: "What Pegel costs, what it was given and what it dropped, its store and its collectors.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("Cost", COST),
        DashboardRow::expanded("Samples", SAMPLES),
        DashboardRow::collapsed("Drops", DROPS),
        DashboardRow::expanded("Store", STORE),
        DashboardRow::expanded("Collectors", COLLECTORS),
    ],
};

const COST: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Processor",
        "percentunit",
        &[rate("pegel_cpu_seconds_total", &[])],
    )
    .with_thresholds(0.002, 0.01)
    .with_description("Share of one processor. The aim is 0.2 % at the default rate."),
    DashboardPanel::new(
        "Memory",
        "bytes",
        &[value("pegel_resident_memory_bytes", &[])],
    )
    .with_thresholds(20_971_520.0, 268_435_456.0)
    .with_description("The aim is 20 MiB at the default rate; programs' series come on top."),
    DashboardPanel::new("Open files", "short", &[value("pegel_open_fds", &[])]),
    DashboardPanel::new("Threads", "short", &[value("pegel_threads", &[])]),
];

const SAMPLES: &[DashboardPanel] = &[
    DashboardPanel::new(
        "Received",
        "cps",
        &[rate("pegel_received_total", &["input"])],
    )
    .with_description("By input. What is not kept is dropped, and counted under a reason."),
    DashboardPanel::new("Kept", "cps", &[rate("pegel_kept_total", &["input"])]),
    DashboardPanel::new(
        "Sampling",
        "short",
        &[
            value("pegel_samples_late_total", &[]).with_legend("late"),
            value("pegel_samples_missed_total", &[]).with_legend("missed"),
            value("pegel_clock_steps_total", &[]).with_legend("clock set"),
        ],
    )
    .with_description("Since the agent was started."),
    DashboardPanel::new(
        "Messages lost",
        "short",
        &[value("pegel_log_lost_total", &[])],
    )
    .with_thresholds(1.0, 100.0)
    .with_description("Log messages that their place did not take in time."),
];

const DROPS: &[DashboardPanel] = &[
    DashboardPanel::new("Dropped", "short", &[value("pegel_dropped_total", &["input", "reason"])])
        .with_thresholds(1.0, 1000.0)
        .with_description("Since the agent was started. As long as nothing was ever dropped there is no such metric, and Grafana says so."),
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
        "Trouble",
        "none",
        &[
            max_value("pegel_store_degraded", &[]).with_legend("degraded"),
            max_value("pegel_store_set_aside", &[]).with_legend("files set aside"),
        ],
    )
    .with_thresholds(1.0, 1.0)
    .with_description("Degraded is 1 while the store cannot write; it recovers by itself."),
    DashboardPanel::new(
        "Order",
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
    .with_description("Share of one processor, by collector."),
    DashboardPanel::new(
        "Failed",
        "none",
        &[max_value("pegel_collector_failed", &["collector"])],
    )
    .with_thresholds(1.0, 1.0)
    .with_description("1 while a collector cannot read its source; /status says why."),
];
