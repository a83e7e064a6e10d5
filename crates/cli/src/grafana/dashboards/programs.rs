//! Dashboard of MPI and system calls, counted by `pegel run`.

use crate::grafana::dashboard::{Dashboard, DashboardRow, panel};

#[rustfmt::skip]
pub(super) const DASHBOARD: Dashboard = Dashboard {
    name: "programs",
    title: "Pegel / Programs: MPI and system calls",
    description: "MPI calls and system calls of programs started with pegel run -m and -s, summed over the processes of each node. A metric exists after the first call.",
    variables: &[],
    rows: &[
        DashboardRow::expanded("MPI", &[
            panel("Time in MPI", "short", &["rate(mpi_time_total) by call"])
                .with_description("Seconds per second, over all processes of the node: 8 means that eight processes spent all their time in MPI."),
            panel("MPI calls", "ops", &["rate(mpi_hits_total) by call"]),
            panel("MPI data", "Bps", &["rate(mpi_size_total) by call"]),
        ]),
        DashboardRow::expanded("System calls", &[
            panel("Time in system calls", "short", &["rate(strace_time_total) by scall"])
                .with_description("Seconds per second, over all processes of the node."),
            panel("System calls", "ops", &["rate(strace_hits_total) by scall"]),
            panel("Data of system calls", "Bps", &["rate(strace_size_total) by scall"]),
            panel("Programs started", "cps", &["rate(tau_metric_proxy_run_total) by operation"]),
        ]),
        DashboardRow::collapsed("By job", &[
            panel("Time in MPI, by job", "short", &["rate(mpi_time_total) by jobid"])
                .with_description("Only programs that ran under a batch system have a job."),
            panel("Time in system calls, by job", "short", &["rate(strace_time_total) by jobid"]),
        ]),
    ],
};
