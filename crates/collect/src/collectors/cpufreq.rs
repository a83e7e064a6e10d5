//! Frequencies of the CPUs and how often heat slowed them down, from `/sys/devices/system/cpu`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pegel_metric::Family;

use crate::folder::Folder;
use crate::scan::Fault;
use crate::sheet::{counter, gauge};
use crate::walk::{Put, Walk, open_walk};
use crate::{Context, Entry, OpenError, Opened, Pace, Tier};

static HERTZ: Family = gauge(
    "node_cpu_frequency_hertz",
    "hertz",
    "Frequency that the hardware reports, in hertz.",
);
static HERTZ_MIN: Family = gauge(
    "node_cpu_frequency_min_hertz",
    "hertz",
    "Lowest frequency of the hardware, in hertz.",
);
static HERTZ_MAX: Family = gauge(
    "node_cpu_frequency_max_hertz",
    "hertz",
    "Highest frequency of the hardware, in hertz.",
);
static SCALING: Family = gauge(
    "node_cpu_scaling_frequency_hertz",
    "hertz",
    "Frequency as the kernel sees it, in hertz.",
);
static SCALING_MIN: Family = gauge(
    "node_cpu_scaling_frequency_min_hertz",
    "hertz",
    "Lowest frequency that the kernel may choose, in hertz.",
);
static SCALING_MAX: Family = gauge(
    "node_cpu_scaling_frequency_max_hertz",
    "hertz",
    "Highest frequency that the kernel may choose, in hertz.",
);
static CORE_THROTTLES: Family = counter(
    "node_cpu_core_throttles_total",
    "",
    "Times that a core was slowed down by heat.",
);
static PACKAGE_THROTTLES: Family = counter(
    "node_cpu_package_throttles_total",
    "",
    "Times that a package was slowed down by heat.",
);
static CORE_SECONDS: Family = counter(
    "node_cpu_core_throttle_seconds_total",
    "seconds",
    "Time in which a core was slowed down by heat.",
);
static PACKAGE_SECONDS: Family = counter(
    "node_cpu_package_throttle_seconds_total",
    "seconds",
    "Time in which a package was slowed down by heat.",
);

/// Those that change, and the limits, which seldom do.
static CURRENT: [(&Family, &str); 2] =
    [(&HERTZ, "cpuinfo_cur_freq"), (&SCALING, "scaling_cur_freq")];
static LIMITS: [(&Family, &str); 4] = [
    (&HERTZ_MIN, "cpuinfo_min_freq"),
    (&HERTZ_MAX, "cpuinfo_max_freq"),
    (&SCALING_MIN, "scaling_min_freq"),
    (&SCALING_MAX, "scaling_max_freq"),
];

pub static ENTRY: Entry = Entry {
    name: "cpufreq",
    tier: Tier::FiveSeconds,
    pace: Pace::Aside,
    level: 3,
    families: &[
        &HERTZ,
        &HERTZ_MIN,
        &HERTZ_MAX,
        &SCALING,
        &SCALING_MIN,
        &SCALING_MAX,
        &CORE_THROTTLES,
        &PACKAGE_THROTTLES,
        &CORE_SECONDS,
        &PACKAGE_SECONDS,
    ],
    open,
};

/// In how many passes the limits are read once: a large node has a thousand files of them.
const LIMITS_EVERY: u64 = 12;

#[derive(Debug)]
struct Frequencies {
    system: PathBuf,
    pass: u64,
    /// By CPU: the limits as they were read last.
    limits: Vec<(String, [Option<f64>; 4])>,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let system = context.host.sys.join("devices/system/cpu");
    let walk = Frequencies {
        system: system.clone(),
        pass: 0,
        limits: Vec::new(),
    };
    open_walk(context, system, walk)
}

impl Walk for Frequencies {
    fn walk(&mut self, put: &mut Put<'_>) -> Result<(), Fault> {
        let Some(system) = Folder::open(&self.system) else {
            return Ok(());
        };
        let cpus = system.numbered("cpu");
        self.read_limits(&cpus);
        let (mut cores, mut packages) = (BTreeSet::new(), BTreeSet::new());
        for ((cpu, folder), (_, limits)) in cpus.iter().zip(&self.limits) {
            put.touch(folder.path());
            let labels = [("cpu", &**cpu)];
            if let Some(frequency) = folder.folder("cpufreq") {
                for (family, name) in CURRENT {
                    put.maybe(family, &labels, hertz(&frequency, name))?;
                }
                for ((family, _), limit) in LIMITS.iter().zip(limits) {
                    put.maybe(family, &labels, *limit)?;
                }
            }
            walk_throttles(folder, &mut cores, &mut packages, put)?;
        }
        Ok(())
    }
}

impl Frequencies {
    fn read_limits(&mut self, cpus: &[(String, Folder)]) {
        let is_same = self.limits.len() == cpus.len()
            && self.limits.iter().zip(cpus).all(|(a, b)| a.0 == b.0);
        if !is_same || self.pass.is_multiple_of(LIMITS_EVERY) {
            let limits = cpus.iter().map(|(cpu, folder)| {
                let folder = folder.folder("cpufreq");
                let read = |(_, name): (&Family, &str)| hertz(folder.as_ref()?, name);
                (cpu.clone(), LIMITS.map(read))
            });
            self.limits = limits.collect();
        }
        self.pass += 1;
    }
}

fn hertz(folder: &Folder, name: &str) -> Option<f64> {
    folder.number(name).map(|kilohertz| kilohertz * 1e3)
}

/// Every CPU of a core, and of a package, says the same.
fn walk_throttles(
    cpu: &Folder,
    cores: &mut BTreeSet<(String, String)>,
    packages: &mut BTreeSet<String>,
    put: &mut Put<'_>,
) -> Result<(), Fault> {
    let (Some(throttle), Some(topology)) = (cpu.folder("thermal_throttle"), cpu.folder("topology"))
    else {
        return Ok(());
    };
    let text = |name| topology.text(name);
    let (Some(package), Some(core)) = (text("physical_package_id"), text("core_id")) else {
        return Ok(());
    };
    let seconds = |name| throttle.number(name).map(|value| value / 1e3);
    if cores.insert((package.clone(), core.clone())) {
        let labels = [("core", &*core), ("package", &*package)];
        put.maybe(
            &CORE_THROTTLES,
            &labels,
            throttle.number("core_throttle_count"),
        )?;
        put.maybe(
            &CORE_SECONDS,
            &labels,
            seconds("core_throttle_total_time_ms"),
        )?;
    }
    if packages.insert(package.clone()) {
        let labels = [("package", &*package)];
        let count = throttle.number("package_throttle_count");
        put.maybe(&PACKAGE_THROTTLES, &labels, count)?;
        put.maybe(
            &PACKAGE_SECONDS,
            &labels,
            seconds("package_throttle_total_time_ms"),
        )?;
    }
    Ok(())
}
