//! The families of the collector `cgroup`, and parsers for formats that both versions of control groups use.

use pegel_metric::Family;

use crate::dynamic_series::{counter, gauge};

macro_rules! families {
    ($($static:ident $make:ident $name:literal $unit:literal $help:literal;)*) => {
        $(pub(super) static $static: Family = $make(concat!("node_cgroup_", $name), $unit, $help);)*
        pub(super) static ALL: &[&Family] = &[$(&$static),*];
    };
}

families! {
    CPU counter "cpu_usage_seconds_total" "seconds" "Total CPU time used by the control group, in seconds.";
    CPU_USER counter "cpu_user_seconds_total" "seconds" "Total CPU time used in user mode, in seconds.";
    CPU_SYSTEM counter "cpu_system_seconds_total" "seconds" "Total CPU time used in kernel mode, in seconds.";
    CPU_PERIODS counter "cpu_periods_total" "" "Total number of enforcement periods of the CPU limit.";
    CPU_THROTTLED counter "cpu_throttled_periods_total" "" "Total number of enforcement periods in which the CPU limit was reached.";
    CPU_THROTTLED_TIME counter "cpu_throttled_seconds_total" "seconds" "Total time that tasks were throttled by the CPU limit, in seconds.";
    CPU_LIMIT gauge "cpu_limit_cores" "cores" "CPU limit in cores; absent if there is none.";
    CPUS gauge "cpus" "" "Number of CPUs that the control group may use.";
    MEMORY gauge "memory_usage_bytes" "bytes" "Memory in use including the page cache, in bytes.";
    MEMORY_PEAK gauge "memory_peak_bytes" "bytes" "Highest memory usage so far, in bytes.";
    MEMORY_LIMIT gauge "memory_limit_bytes" "bytes" "Memory limit in bytes; absent if there is none.";
    SWAP gauge "memory_swap_bytes" "bytes" "Swap in use, in bytes.";
    MEMORY_PART gauge "memory_<key>_bytes" "bytes" "Memory in use of the kind <key> of memory.stat, in bytes.";
    FAULTS counter "memory_page_faults_total" "" "Total number of page faults.";
    MAJOR_FAULTS counter "memory_major_page_faults_total" "" "Total number of page faults that required reading from a disk.";
    EVENTS counter "memory_events_total" "" "Total number of times that a memory boundary was reached, by event.";
    OOM_KILLS counter "memory_oom_kills_total" "" "Total number of processes killed because memory ran out.";
    READ counter "io_read_bytes_total" "bytes" "Total number of bytes read from the device.";
    WRITTEN counter "io_written_bytes_total" "bytes" "Total number of bytes written to the device.";
    READS counter "io_reads_total" "" "Total number of reads from the device.";
    WRITES counter "io_writes_total" "" "Total number of writes to the device.";
    PIDS gauge "pids" "" "Number of tasks.";
    PIDS_PEAK gauge "pids_peak" "" "Highest number of tasks so far.";
    PIDS_LIMIT gauge "pids_limit" "" "Limit on the number of tasks; absent if there is none.";
    CPU_WAITING counter "pressure_cpu_waiting_seconds_total" "seconds" "Total time in which some tasks waited for a CPU, in seconds.";
    CPU_STALLED counter "pressure_cpu_stalled_seconds_total" "seconds" "Total time in which all tasks waited for a CPU, in seconds.";
    MEMORY_WAITING counter "pressure_memory_waiting_seconds_total" "seconds" "Total time in which some tasks waited for memory, in seconds.";
    MEMORY_STALLED counter "pressure_memory_stalled_seconds_total" "seconds" "Total time in which all tasks waited for memory, in seconds.";
    IO_WAITING counter "pressure_io_waiting_seconds_total" "seconds" "Total time in which some tasks waited for I/O, in seconds.";
    IO_STALLED counter "pressure_io_stalled_seconds_total" "seconds" "Total time in which all tasks waited for I/O, in seconds.";
    JOB gauge "job_info" "" "ID of the Slurm job that the control group belongs to; always 1.";
}

/// The keys of `memory.stat` that are published: the name in version 2, and in version 1 (empty if it has none).
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

/// Parses lines of the form `key value`; skips all others.
pub(super) fn key_value_lines(text: &[u8]) -> impl Iterator<Item = (&str, u64)> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut words = crate::proc_parse::Words(line);
        let key = std::str::from_utf8(words.next()?).ok()?;
        Some((key, crate::proc_parse::parse_u64(words.next()?)?))
    })
}

/// Returns the number of CPUs in a list such as `0-3,8`.
pub(super) fn cpu_list_count(list: &str) -> Option<f64> {
    let mut count = 0;
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        count += last.checked_sub(first)?.checked_add(1)?;
    }
    Some(count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!(cpu_list_count("0-3,8"), Some(5.0));
        assert_eq!(cpu_list_count("7"), Some(1.0));
        for bad in ["", "3-1", "a", "1,", "0-18446744073709551615"] {
            assert_eq!(cpu_list_count(bad), None, "{bad}");
        }
    }

    #[test]
    fn lines_without_a_number_are_skipped() {
        let found: Vec<(&str, u64)> =
            key_value_lines(b"anon 5\nx\nfile y\n\nshmem 7 8\n").collect();
        assert_eq!(found, [("anon", 5), ("shmem", 7)]);
    }
}
