use pegel_metric::Family;

use crate::sheet::{counter, gauge};

macro_rules! families {
    ($($static:ident $make:ident $name:literal $unit:literal $help:literal;)*) => {
        $(pub(super) static $static: Family = $make(concat!("node_cgroup_", $name), $unit, $help);)*
        pub(super) static ALL: &[&Family] = &[$(&$static),*];
    };
}

families! {
    CPU counter "cpu_usage_seconds_total" "seconds" "Processor time used.";
    CPU_USER counter "cpu_user_seconds_total" "seconds" "Processor time used by programs themselves.";
    CPU_SYSTEM counter "cpu_system_seconds_total" "seconds" "Processor time used by the kernel for them.";
    CPU_PERIODS counter "cpu_periods_total" "" "Periods in which a limit of processor time was checked.";
    CPU_THROTTLED counter "cpu_throttled_periods_total" "" "Periods in which the limit was reached.";
    CPU_THROTTLED_TIME counter "cpu_throttled_seconds_total" "seconds" "Time spent waiting because of the limit.";
    CPU_LIMIT gauge "cpu_limit_cores" "cores" "Limit of processor time, in cores; absent when there is none.";
    CPUS gauge "cpus" "" "Processors that may be used.";
    MEMORY gauge "memory_usage_bytes" "bytes" "Memory in use, with the page cache.";
    MEMORY_PEAK gauge "memory_peak_bytes" "bytes" "The most memory that was ever in use.";
    MEMORY_LIMIT gauge "memory_limit_bytes" "bytes" "Limit of memory; absent when there is none.";
    SWAP gauge "memory_swap_bytes" "bytes" "Swap in use.";
    MEMORY_PART gauge "memory_<key>_bytes" "bytes" "The part <key> of the memory in use.";
    FAULTS counter "memory_page_faults_total" "" "Page faults.";
    MAJOR_FAULTS counter "memory_major_page_faults_total" "" "Page faults that had to wait for a disk.";
    EVENTS counter "memory_events_total" "" "Times that a limit of memory was felt, by kind of event.";
    OOM_KILLS counter "memory_oom_kills_total" "" "Processes killed for want of memory.";
    READ counter "io_read_bytes_total" "bytes" "Data read from a device.";
    WRITTEN counter "io_written_bytes_total" "bytes" "Data written to a device.";
    READS counter "io_reads_total" "" "Reads from a device.";
    WRITES counter "io_writes_total" "" "Writes to a device.";
    PIDS gauge "pids" "" "Tasks.";
    PIDS_PEAK gauge "pids_peak" "" "The most tasks that ever were.";
    PIDS_LIMIT gauge "pids_limit" "" "Limit of tasks; absent when there is none.";
    CPU_WAITING counter "pressure_cpu_waiting_seconds_total" "seconds" "Time in which some tasks waited for a processor.";
    CPU_STALLED counter "pressure_cpu_stalled_seconds_total" "seconds" "Time in which all tasks waited for a processor.";
    MEMORY_WAITING counter "pressure_memory_waiting_seconds_total" "seconds" "Time in which some tasks waited for memory.";
    MEMORY_STALLED counter "pressure_memory_stalled_seconds_total" "seconds" "Time in which all tasks waited for memory.";
    IO_WAITING counter "pressure_io_waiting_seconds_total" "seconds" "Time in which some tasks waited for input or output.";
    IO_STALLED counter "pressure_io_stalled_seconds_total" "seconds" "Time in which all tasks waited for input or output.";
    JOB gauge "job_info" "" "1, with the number of the Slurm job that a group belongs to.";
}

/// The parts of `memory.stat` that are published, and what the first version calls them.
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

/// The lines of a file with `key value` in each.
pub(super) fn key_value_lines(text: &[u8]) -> impl Iterator<Item = (&str, u64)> {
    text.split(|&byte| byte == b'\n').filter_map(|line| {
        let mut words = crate::scan::Words(line);
        let key = std::str::from_utf8(words.next()?).ok()?;
        Some((key, crate::scan::integer(words.next()?)?))
    })
}

/// How many processors a list such as `0-3,8` names.
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
    fn lists_of_processors_are_counted() {
        assert_eq!(cpu_list_count("0-3,8"), Some(5.0));
        assert_eq!(cpu_list_count("7"), Some(1.0));
        for bad in ["", "3-1", "a", "1,", "0-18446744073709551615"] {
            assert_eq!(cpu_list_count(bad), None, "{bad}");
        }
    }

    #[test]
    fn lines_without_a_number_are_left_out() {
        let found: Vec<(&str, u64)> =
            key_value_lines(b"anon 5\nx\nfile y\n\nshmem 7 8\n").collect();
        assert_eq!(found, [("anon", 5), ("shmem", 7)]);
    }
}
