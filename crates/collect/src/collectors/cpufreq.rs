//! Frequencies and thermal throttling of the CPUs, from `/sys/devices/system/cpu`.
//!
//! Current frequencies are read in every pass; limits and topology only every
//! `TOPOLOGY_EVERY_PASSES` passes, because a large node has thousands of such files.

use std::collections::BTreeSet;

use pegel_metric::Family;

use crate::dynamic_series::SeriesWriter;
use crate::families::families;
use crate::proc_parse::{ProcParseError, parse_u64};
use crate::sysfs_dir::SysfsDir;
use crate::sysfs_walk::{SysfsWalk, open_walk};
use crate::{CollectorEntry, Tier};

families! {
    HERTZ Gauge 3 "node_cpu_frequency_hertz" "hertz" "Current CPU frequency reported by the hardware, in hertz.";
    HERTZ_MIN Gauge 3 "node_cpu_frequency_min_hertz" "hertz" "Minimum CPU frequency of the hardware, in hertz.";
    HERTZ_MAX Gauge 3 "node_cpu_frequency_max_hertz" "hertz" "Maximum CPU frequency of the hardware, in hertz.";
    SCALING Gauge 3 "node_cpu_scaling_frequency_hertz" "hertz" "Current CPU frequency reported by the kernel, in hertz.";
    SCALING_MIN Gauge 3 "node_cpu_scaling_frequency_min_hertz" "hertz" "Minimum CPU frequency that the kernel may choose, in hertz.";
    SCALING_MAX Gauge 3 "node_cpu_scaling_frequency_max_hertz" "hertz" "Maximum CPU frequency that the kernel may choose, in hertz.";
    CORE_THROTTLES Counter 3 "node_cpu_core_throttles_total" "" "Total number of times that the core was throttled because of heat.";
    PACKAGE_THROTTLES Counter 3 "node_cpu_package_throttles_total" "" "Total number of times that the package was throttled because of heat.";
    CORE_SECONDS Counter 3 "node_cpu_core_throttle_seconds_total" "seconds" "Total time that the core was throttled because of heat, in seconds.";
    PACKAGE_SECONDS Counter 3 "node_cpu_package_throttle_seconds_total" "seconds" "Total time that the package was throttled because of heat, in seconds.";
}

/// Frequencies that change all the time; the limits below seldom do.
static CURRENT: [(&Family, &str); 2] = [
    (&HERTZ, "cpufreq/cpuinfo_cur_freq"),
    (&SCALING, "cpufreq/scaling_cur_freq"),
];
static LIMITS: [(&Family, &str); 4] = [
    (&HERTZ_MIN, "cpufreq/cpuinfo_min_freq"),
    (&HERTZ_MAX, "cpufreq/cpuinfo_max_freq"),
    (&SCALING_MIN, "cpufreq/scaling_min_freq"),
    (&SCALING_MAX, "cpufreq/scaling_max_freq"),
];

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("cpufreq", Tier::FiveSeconds, FAMILIES, |context| {
        open_walk(context, "sys/devices/system/cpu", CpufreqWalk::default())
    });

/// The limits and the topology are read once in this number of passes: they hardly ever change, and
/// a large node has thousands of such files.
const TOPOLOGY_EVERY_PASSES: u64 = 12;

#[derive(Debug, Default)]
struct CpufreqWalk {
    pass: u64,
    names: Vec<String>,
    cpus: Vec<CpufreqCpu>,
}

/// The topology of a CPU, as of the last time it was read.
#[derive(Debug)]
struct CpufreqCpu {
    number: String,
    limits: [Option<f64>; LIMITS.len()],
    /// Which files of [`CURRENT`] the CPU has.
    has_current: [bool; CURRENT.len()],
    /// Core and package, only for the first CPU of each core: the others have the same counters.
    core: Option<(String, String)>,
    /// The package, only for the first CPU of each package.
    package: Option<String>,
}

impl SysfsWalk for CpufreqWalk {
    fn walk(
        &mut self,
        system: &SysfsDir,
        put: &mut SeriesWriter<'_>,
    ) -> Result<(), ProcParseError> {
        let names = system.names();
        if names != self.names || self.pass.is_multiple_of(TOPOLOGY_EVERY_PASSES) {
            self.cpus = read_topology(system, &names);
            self.names = names;
        }
        self.pass += 1;
        for cpu in &self.cpus {
            cpu.walk(system, put)?;
        }
        Ok(())
    }
}

fn read_topology(system: &SysfsDir, names: &[String]) -> Vec<CpufreqCpu> {
    let (mut cores, mut packages) = (BTreeSet::new(), BTreeSet::new());
    let numbers = names.iter().filter_map(|name| {
        let number = name.strip_prefix("cpu")?;
        parse_u64(number.as_bytes())?;
        Some(number.to_owned())
    });
    let cpu = |number: String| {
        let hertz = |(_, file): (&Family, &str)| hertz(system, &number, file);
        let topology = |file| system.text(&format!("cpu{number}/topology/{file}"));
        let (package, core) = (topology("physical_package_id"), topology("core_id"));
        let core = core.zip(package.clone());
        CpufreqCpu {
            limits: LIMITS.map(hertz),
            has_current: CURRENT.map(|current| hertz(current).is_some()),
            core: core.filter(|core| cores.insert(core.clone())),
            package: package.filter(|package| packages.insert(package.clone())),
            number,
        }
    };
    numbers.map(cpu).collect()
}

fn hertz(system: &SysfsDir, cpu: &str, file: &str) -> Option<f64> {
    let kilohertz = system.number(&format!("cpu{cpu}/{file}"));
    kilohertz.map(|kilohertz| kilohertz * 1e3)
}

impl CpufreqCpu {
    fn walk(&self, system: &SysfsDir, put: &mut SeriesWriter<'_>) -> Result<(), ProcParseError> {
        let labels = [("cpu", &*self.number)];
        for ((family, file), has) in CURRENT.into_iter().zip(self.has_current) {
            if has {
                put.set_if_some(family, &labels, hertz(system, &self.number, file))?;
            }
        }
        for ((family, _), limit) in LIMITS.into_iter().zip(self.limits) {
            put.set_if_some(family, &labels, limit)?;
        }
        let throttle = |file| system.number(&format!("cpu{}/thermal_throttle/{file}", self.number));
        let seconds = |file| throttle(file).map(|millis| millis / 1e3);
        if let Some((core, package)) = &self.core {
            let labels = [("core", &**core), ("package", &**package)];
            let count = throttle("core_throttle_count");
            put.set_if_some(&CORE_THROTTLES, &labels, count)?;
            if count.is_some() {
                let time = seconds("core_throttle_total_time_ms");
                put.set_if_some(&CORE_SECONDS, &labels, time)?;
            }
        }
        if let Some(package) = &self.package {
            let labels = [("package", &**package)];
            put.set_if_some(
                &PACKAGE_THROTTLES,
                &labels,
                throttle("package_throttle_count"),
            )?;
            let time = seconds("package_throttle_total_time_ms");
            put.set_if_some(&PACKAGE_SECONDS, &labels, time)?;
        }
        Ok(())
    }
}
