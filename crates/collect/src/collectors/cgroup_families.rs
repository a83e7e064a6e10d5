//! The families of the collector `cgroup`, which both versions of control groups use.

use crate::families::families;

families! {
    CPU Counter 3 "node_cgroup_cpu_usage_seconds_total" "seconds" "Total CPU time used by the control group, in seconds.";
    CPU_USER Counter 3 "node_cgroup_cpu_user_seconds_total" "seconds" "Total CPU time used in user mode, in seconds.";
    CPU_SYSTEM Counter 3 "node_cgroup_cpu_system_seconds_total" "seconds" "Total CPU time used in kernel mode, in seconds.";
    CPU_PERIODS Counter 3 "node_cgroup_cpu_periods_total" "" "Total number of enforcement periods of the CPU limit.";
    CPU_THROTTLED Counter 3 "node_cgroup_cpu_throttled_periods_total" "" "Total number of enforcement periods in which the CPU limit was reached.";
    CPU_THROTTLED_TIME Counter 3 "node_cgroup_cpu_throttled_seconds_total" "seconds" "Total time that tasks were throttled by the CPU limit, in seconds.";
    CPU_LIMIT Gauge 3 "node_cgroup_cpu_limit_cores" "cores" "CPU limit in cores; absent if there is none.";
    CPUS Gauge 3 "node_cgroup_cpus" "" "Number of CPUs that the control group may use.";
    MEMORY Gauge 3 "node_cgroup_memory_usage_bytes" "bytes" "Memory in use including the page cache, in bytes.";
    MEMORY_PEAK Gauge 3 "node_cgroup_memory_peak_bytes" "bytes" "Highest memory usage so far, in bytes.";
    MEMORY_LIMIT Gauge 3 "node_cgroup_memory_limit_bytes" "bytes" "Memory limit in bytes; absent if there is none.";
    SWAP Gauge 3 "node_cgroup_memory_swap_bytes" "bytes" "Swap in use, in bytes.";
    MEMORY_PART Gauge 3 "node_cgroup_memory_<key>_bytes" "bytes" "Memory in use of the kind <key> of memory.stat, in bytes.";
    FAULTS Counter 3 "node_cgroup_memory_page_faults_total" "" "Total number of page faults.";
    MAJOR_FAULTS Counter 3 "node_cgroup_memory_major_page_faults_total" "" "Total number of page faults that required reading from a disk.";
    EVENTS Counter 3 "node_cgroup_memory_events_total" "" "Total number of times that a memory boundary was reached, by event.";
    OOM_KILLS Counter 3 "node_cgroup_memory_oom_kills_total" "" "Total number of processes killed because memory ran out.";
    READ Counter 3 "node_cgroup_io_read_bytes_total" "bytes" "Total number of bytes read from the device.";
    WRITTEN Counter 3 "node_cgroup_io_written_bytes_total" "bytes" "Total number of bytes written to the device.";
    READS Counter 3 "node_cgroup_io_reads_total" "" "Total number of reads from the device.";
    WRITES Counter 3 "node_cgroup_io_writes_total" "" "Total number of writes to the device.";
    PIDS Gauge 3 "node_cgroup_pids" "" "Number of tasks.";
    PIDS_PEAK Gauge 3 "node_cgroup_pids_peak" "" "Highest number of tasks so far.";
    PIDS_LIMIT Gauge 3 "node_cgroup_pids_limit" "" "Limit on the number of tasks; absent if there is none.";
    CPU_WAITING Counter 3 "node_cgroup_pressure_cpu_waiting_seconds_total" "seconds" "Total time in which some tasks waited for a CPU, in seconds.";
    CPU_STALLED Counter 3 "node_cgroup_pressure_cpu_stalled_seconds_total" "seconds" "Total time in which all tasks waited for a CPU, in seconds.";
    MEMORY_WAITING Counter 3 "node_cgroup_pressure_memory_waiting_seconds_total" "seconds" "Total time in which some tasks waited for memory, in seconds.";
    MEMORY_STALLED Counter 3 "node_cgroup_pressure_memory_stalled_seconds_total" "seconds" "Total time in which all tasks waited for memory, in seconds.";
    IO_WAITING Counter 3 "node_cgroup_pressure_io_waiting_seconds_total" "seconds" "Total time in which some tasks waited for I/O, in seconds.";
    IO_STALLED Counter 3 "node_cgroup_pressure_io_stalled_seconds_total" "seconds" "Total time in which all tasks waited for I/O, in seconds.";
    JOB Gauge 3 "node_cgroup_job_info" "" "ID of the Slurm job that the control group belongs to; always 1.";
}

/// The keys of `memory.stat` that are published: the name in version 2, and in version 1 (empty if
/// it has none).
pub(super) const MEMORY_PARTS: [(&str, &str); 12] = [
    ("anon", "total_rss"),
    ("file", "total_cache"),
    ("file_mapped", "total_mapped_file"),
    ("file_dirty", "total_dirty"),
    ("file_writeback", "total_writeback"),
    ("shmem", "total_shmem"),
    ("anon_thp", "total_rss_huge"),
    ("inactive_file", "total_inactive_file"),
    ("active_file", "total_active_file"),
    ("kernel", ""),
    ("slab", ""),
    ("sock", ""),
];
