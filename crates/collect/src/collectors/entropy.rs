//! The kernel's entropy pool, from `/proc/sys/kernel/random`.

use pegel_metric::{Family, MetricKind, SampleGroup};

use crate::proc_file::{ProcFile, ReadMode};
use crate::unlabelled_series::UnlabelledSeries;
use crate::{
    CollectError, Collector, CollectorEntry, CollectorOpenError, Context, Execution, OpenOutcome,
    Tier,
};

static AVAILABLE: Family = Family::new(
    "node_entropy_available_bits",
    MetricKind::Gauge,
    "bits",
    2,
    "Entropy available, in bits; always 256 since Linux 5.18.",
);
static POOL: Family = Family::new(
    "node_entropy_pool_size_bits",
    MetricKind::Gauge,
    "bits",
    2,
    "Size of the entropy pool, in bits.",
);

pub static ENTRY: CollectorEntry = CollectorEntry {
    name: "entropy",
    tier: Tier::Minute,
    execution: Execution::Inline,
    level: 2,
    families: &[&AVAILABLE, &POOL],
    open,
};

#[derive(Debug)]
struct Entropy {
    available: ProcFile,
    pool: Option<ProcFile>,
    available_bits: UnlabelledSeries,
    pool_bits: UnlabelledSeries,
}

fn open(context: &Context) -> Result<OpenOutcome, CollectorOpenError> {
    let folder = context.host.proc.join("sys/kernel/random");
    let path = folder.join("entropy_avail");
    let Some(available) = ProcFile::open(path.clone(), ReadMode::SingleRead)? else {
        return Ok(OpenOutcome::Absent { looked_for: path });
    };
    Ok(OpenOutcome::Active(Box::new(Entropy {
        available,
        pool: ProcFile::open(folder.join("poolsize"), ReadMode::SingleRead)?,
        available_bits: UnlabelledSeries::new(&AVAILABLE),
        pool_bits: UnlabelledSeries::new(&POOL),
    })))
}

impl Collector for Entropy {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        self.available_bits
            .set_from_file(&mut self.available, out)?;
        match &mut self.pool {
            Some(pool) => self.pool_bits.set_from_file(pool, out),
            None => Ok(()),
        }
    }
}
