use crate::grafana::dashboard::{Dashboard, Panel, Row, highest, rate, value};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "agent",
    title: "Pegel / The agent itself",
    about: "What Pegel costs, what it was given and what it dropped, its store and its collectors.",
    variables: &[],
    rows: &[
        Row::open("Cost", COST),
        Row::open("Samples", SAMPLES),
        Row::closed("Drops", DROPS),
        Row::open("Store", STORE),
        Row::open("Collectors", COLLECTORS),
    ],
};

const COST: &[Panel] = &[
    Panel::new(
        "Processor",
        "percentunit",
        &[rate("pegel_cpu_seconds_total", &[])],
    )
    .limits(0.002, 0.01)
    .about("Share of one processor. The aim is 0.2 % at the default rate."),
    Panel::new(
        "Memory",
        "bytes",
        &[value("pegel_resident_memory_bytes", &[])],
    )
    .limits(20_971_520.0, 268_435_456.0)
    .about("The aim is 20 MiB at the default rate; programs' series come on top."),
    Panel::new("Open files", "short", &[value("pegel_open_fds", &[])]),
    Panel::new("Threads", "short", &[value("pegel_threads", &[])]),
];

const SAMPLES: &[Panel] = &[
    Panel::new(
        "Received",
        "cps",
        &[rate("pegel_received_total", &["input"])],
    )
    .about("By input. What is not kept is dropped, and counted under a reason."),
    Panel::new("Kept", "cps", &[rate("pegel_kept_total", &["input"])]),
    Panel::new(
        "Sampling",
        "short",
        &[
            value("pegel_samples_late_total", &[]).named("late"),
            value("pegel_samples_missed_total", &[]).named("missed"),
            value("pegel_clock_steps_total", &[]).named("clock set"),
        ],
    )
    .about("Since the agent was started."),
    Panel::new(
        "Messages lost",
        "short",
        &[value("pegel_log_lost_total", &[])],
    )
    .limits(1.0, 100.0)
    .about("Log messages that their place did not take in time."),
];

const DROPS: &[Panel] = &[
    Panel::new("Dropped", "short", &[value("pegel_dropped_total", &["input", "reason"])])
        .limits(1.0, 1000.0)
        .about("Since the agent was started. As long as nothing was ever dropped there is no such metric, and Grafana says so."),
    Panel::new("Dropped per second", "cps", &[rate("pegel_dropped_total", &["input", "reason"])]),
];

const STORE: &[Panel] = &[
    Panel::new("Series", "short", &[value("pegel_store_series", &[])]).third(),
    Panel::new("Memory", "bytes", &[value("pegel_store_memory_bytes", &[])]).third(),
    Panel::new(
        "Disk",
        "bytes",
        &[
            value("pegel_store_block_bytes", &[]).named("blocks"),
            value("pegel_store_log_bytes", &[]).named("log"),
        ],
    )
    .third(),
    Panel::new(
        "Trouble",
        "none",
        &[
            highest("pegel_store_degraded", &[]).named("degraded"),
            highest("pegel_store_set_aside", &[]).named("files set aside"),
        ],
    )
    .limits(1.0, 1.0)
    .about("Degraded is 1 while the store cannot write; it recovers by itself."),
    Panel::new(
        "Order",
        "cps",
        &[
            rate("pegel_store_out_of_order_total", &[]).named("out of order"),
            rate("pegel_store_duplicates_total", &[]).named("replaced"),
        ],
    ),
];

const COLLECTORS: &[Panel] = &[
    Panel::new(
        "Time",
        "percentunit",
        &[rate("pegel_collector_seconds_total", &["collector"])],
    )
    .about("Share of one processor, by collector."),
    Panel::new(
        "Failed",
        "none",
        &[highest("pegel_collector_failed", &["collector"])],
    )
    .limits(1.0, 1.0)
    .about("1 while a collector cannot read its source; /status says why."),
];
