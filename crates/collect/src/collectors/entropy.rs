//! The kernel's entropy pool, from `/proc/sys/kernel/random`.

use pegel_metric::{Family, Group, Kind};

use crate::procfile::{ProcFile, Shape};
use crate::single::Single;
use crate::{CollectError, Collector, Context, Entry, OpenError, Opened, Pace, Tier};

static AVAILABLE: Family = Family::new(
    "node_entropy_available_bits",
    Kind::Gauge,
    "bits",
    2,
    "Entropy available, in bits; always 256 since Linux 5.18.",
);
static POOL: Family = Family::new(
    "node_entropy_pool_size_bits",
    Kind::Gauge,
    "bits",
    2,
    "Size of the entropy pool, in bits.",
);

pub static ENTRY: Entry = Entry {
    name: "entropy",
    tier: Tier::Minute,
    pace: Pace::Here,
    level: 2,
    families: &[&AVAILABLE, &POOL],
    open,
};

#[derive(Debug)]
struct Entropy {
    available: ProcFile,
    pool: Option<ProcFile>,
    available_bits: Single,
    pool_bits: Single,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let folder = context.host.proc.join("sys/kernel/random");
    let path = folder.join("entropy_avail");
    let Some(available) = ProcFile::open(path.clone(), Shape::Whole)? else {
        return Ok(Opened::Absent { looked_for: path });
    };
    Ok(Opened::Active(Box::new(Entropy {
        available,
        pool: ProcFile::open(folder.join("poolsize"), Shape::Whole)?,
        available_bits: Single::new(&AVAILABLE),
        pool_bits: Single::new(&POOL),
    })))
}

impl Collector for Entropy {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        self.available_bits.set_from(&mut self.available, out)?;
        match &mut self.pool {
            Some(pool) => self.pool_bits.set_from(pool, out),
            None => Ok(()),
        }
    }
}
