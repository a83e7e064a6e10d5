//! Limits on processes and threads and the number of hung tasks, from `/proc/sys/kernel`, and the
//! number of threads, from `/proc/loadavg`.

use pegel_metric::SampleGroup;

use crate::families::families;
use crate::file_collector::{FileParser, FirstNumberParser, open_files, parsed_file};
use crate::proc_file::ReadMode;
use crate::proc_parse::{ProcParseError, Words, first_line, parse_u64};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{CollectorEntry, Context, OpenResult, Tier};

families! {
    MAX_PROCESSES Gauge 2 "node_processes_max_processes" "" "Maximum process ID, and so the maximum number of processes and threads.";
    MAX_THREADS Gauge 2 "node_processes_max_threads" "" "Maximum number of threads.";
    THREADS Gauge 2 "node_processes_threads" "" "Number of threads.";
    HUNG Counter 2 "node_kernel_hung_tasks" "" "Number of tasks that the kernel found hung for two minutes; Linux 6.13 and later.";
}

pub static ENTRY: CollectorEntry =
    CollectorEntry::inline("processes", Tier::FiveSeconds, FAMILIES, open);

fn open(context: &Context) -> OpenResult {
    let limit = |path, family| FirstNumberParser::file(context, path, family);
    let threads = ThreadCount(UnlabelledSeries::new(&THREADS));
    open_files([
        limit("proc/sys/kernel/pid_max", &MAX_PROCESSES),
        limit("proc/sys/kernel/threads-max", &MAX_THREADS),
        limit("proc/sys/kernel/hung_task_detect_count", &HUNG),
        parsed_file(context, "proc/loadavg", ReadMode::SingleRead, threads),
    ])
}

#[derive(Debug)]
struct ThreadCount(UnlabelledSeries);

impl FileParser for ThreadCount {
    fn update(&mut self, text: &[u8], out: &mut SampleGroup) -> Result<(), ProcParseError> {
        Ok(self.0.set(out, thread_count(text)? as f64)?)
    }
}

/// Returns the number of threads in `0.07 0.12 0.09 1/200 4711`, where one of 200 threads is
/// running.
fn thread_count(text: &[u8]) -> Result<u64, ProcParseError> {
    let count = Words(first_line(text)?).nth(3).and_then(|word| {
        let slash = word.iter().position(|&byte| byte == b'/')?;
        parse_u64(&word[slash + 1..])
    });
    count.ok_or(ProcParseError::at_line(1, "missing number of threads"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectors::testing::update_fails;

    #[test]
    fn threads_follow_the_slash() {
        assert_eq!(thread_count(b"0.07 0.12 0.09 1/200 4711\n"), Ok(200));
        update_fails(
            |text| thread_count(text).map(|_| ()),
            &[
                ("", 0, "empty file"),
                ("0.07 0.12 0.09\n", 1, "missing number of threads"),
                ("0.07 0.12 0.09 200 4711\n", 1, "missing number of threads"),
                ("0.07 0.12 0.09 1/x 4711\n", 1, "missing number of threads"),
            ],
        );
    }
}
