//! Limits on processes and threads and the number of hung tasks, from `/proc/sys/kernel`, and the number of threads, from
//! `/proc/loadavg`.

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::proc_file::{ProcFile, ReadMode};
use crate::proc_parse::{ProcParseError, Words, non_empty_lines, parse_u64};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

static MAX_PROCESSES: Family = Family::new(
    "node_processes_max_processes",
    MetricKind::Gauge,
    "",
    2,
    "Maximum process ID, and so the maximum number of processes and threads.",
);
static MAX_THREADS: Family = Family::new(
    "node_processes_max_threads",
    MetricKind::Gauge,
    "",
    2,
    "Maximum number of threads.",
);
static THREADS: Family = Family::new(
    "node_processes_threads",
    MetricKind::Gauge,
    "",
    2,
    "Number of threads.",
);
static HUNG: Family = Family::new(
    "node_kernel_hung_tasks",
    MetricKind::Counter,
    "",
    2,
    "Number of tasks that the kernel found hung for two minutes; Linux 6.13 and later.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "processes",
    tier: Tier::FiveSeconds,
    execution: Execution::Inline,
    level: 2,
    families: &[&MAX_PROCESSES, &MAX_THREADS, &THREADS, &HUNG],
    open,
};

#[derive(Debug)]
struct ProcessLimits {
    loadavg: ProcFile,
    limits: Vec<(ProcFile, UnlabelledSeries)>,
    threads: UnlabelledSeries,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let path = context.host.proc.join("loadavg");
    let Some(loadavg) = ProcFile::open(path.clone(), ReadMode::SingleRead)? else {
        return Ok(OpenOutcome::Absent { looked_for: path });
    };
    let kernel = context.host.proc.join("sys/kernel");
    let mut limits = Vec::new();
    let files = [
        ("pid_max", &MAX_PROCESSES),
        ("threads-max", &MAX_THREADS),
        ("hung_task_detect_count", &HUNG),
    ];
    for (name, family) in files {
        let file = ProcFile::open(kernel.join(name), ReadMode::SingleRead)?;
        limits.extend(file.map(|file| (file, UnlabelledSeries::new(family))));
    }
    Ok(OpenOutcome::Active(Box::new(ProcessLimits {
        loadavg,
        limits,
        threads: UnlabelledSeries::new(&THREADS),
    })))
}

impl Collector for ProcessLimits {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        for (file, single) in &mut self.limits {
            single.set_from_file(file, out)?;
        }
        let threads = thread_count(self.loadavg.read()?);
        let set = threads.and_then(|count| Ok(self.threads.set(out, count as f64)?));
        set.map_err(|fault| fault.at_path(self.loadavg.path()))
    }
}

/// Returns the number of threads in `0.07 0.12 0.09 1/200 4711`, where one of 200 threads is running.
fn thread_count(text: &[u8]) -> Result<u64, ProcParseError> {
    let line = non_empty_lines(text)?
        .next()
        .map_or(&[][..], |(_, line)| line);
    let count = Words(line).nth(3).and_then(|word| {
        let slash = word.iter().position(|&byte| byte == b'/')?;
        parse_u64(&word[slash + 1..])
    });
    count.ok_or(ProcParseError::Malformed {
        line: 1,
        what: "missing number of threads",
    })
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
                ("", 0, "the file is empty"),
                ("0.07 0.12 0.09\n", 1, "missing number of threads"),
                ("0.07 0.12 0.09 200 4711\n", 1, "missing number of threads"),
                ("0.07 0.12 0.09 1/x 4711\n", 1, "missing number of threads"),
            ],
        );
    }
}
