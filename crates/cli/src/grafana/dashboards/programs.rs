use crate::grafana::dashboard::{Dashboard, Panel, Row, rate};

pub const DASHBOARD: Dashboard = Dashboard {
    name: "programs",
    title: "Pegel / Programs: MPI and system calls",
    about: "What programs do that were started with pegel run -m (MPI) and -s (system calls), summed over the processes of each node. The agent knows a metric from its first call on.",
    variables: &[],
    rows: &[
        Row::open("MPI", MPI),
        Row::open("System calls", SYSTEM_CALLS),
        Row::closed("By job", JOBS),
    ],
};

const MPI: &[Panel] = &[
    Panel::new("Time in MPI", "short", &[rate("mpi_time_total", &["call"])])
        .about("Seconds per second, over all processes of the node: 8 means that eight processes did nothing else."),
    Panel::new("Calls", "ops", &[rate("mpi_hits_total", &["call"])]),
    Panel::new("Data", "Bps", &[rate("mpi_size_total", &["call"])]),
];

const SYSTEM_CALLS: &[Panel] = &[
    Panel::new(
        "Time in system calls",
        "short",
        &[rate("strace_time_total", &["scall"])],
    )
    .about("Seconds per second, over all processes of the node."),
    Panel::new("Calls", "ops", &[rate("strace_hits_total", &["scall"])]),
    Panel::new("Data", "Bps", &[rate("strace_size_total", &["scall"])]),
    Panel::new(
        "Programs started",
        "cps",
        &[rate("tau_metric_proxy_run_total", &["operation"])],
    ),
];

const JOBS: &[Panel] = &[
    Panel::new(
        "Time in MPI",
        "short",
        &[rate("mpi_time_total", &["jobid"])],
    )
    .about("Only what ran under a batch system has a job."),
    Panel::new(
        "Time in system calls",
        "short",
        &[rate("strace_time_total", &["jobid"])],
    ),
];
