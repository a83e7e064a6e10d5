//! NVIDIA GPUs, asked through the driver's own library, `libnvidia-ml.so.1`.
//!
//! The library is opened at run time, never linked: a node without it, without the driver or
//! without a GPU is merely without these series. Its calls may block, so that the collector runs
//! aside. What a GPU or driver does not support is absent, and not asked again for a minute. A GPU
//! that falls off the bus fails alone: the others are read on, and it is looked for each minute.
//!
//! Started, the library takes 15 to 19 MB of the agent's memory (driver 580) and a thread of its
//! own, whatever is asked of it.

mod abi;
mod dynamic_library;
mod families;
mod fields;
mod functions;
mod gpu;
mod gpu_readings;
mod links;
mod mig;
mod processes;
mod queries;
mod query_interval;
mod xids;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_metric::{Clock, Group};

use crate::{CollectError, Collector, Context, Entry, Note, OpenError, Opened, Pace, Tier};

use abi::{DRIVER_NOT_LOADED, GPU_NOT_FOUND};
use dynamic_library::DynamicLibrary;
use functions::Functions;
use gpu::{NvidiaDriverInfo, NvidiaGpu};
use gpu_readings::GpuError;
use query_interval::PassBudget;
use xids::XidEvents;

/// More than any node has.
const GPUS_MAX: u32 = 64;

pub static ENTRY: Entry = Entry {
    name: "nvidia",
    tier: Tier::Fast,
    pace: Pace::Aside,
    level: 3,
    families: families::ALL,
    open,
};

#[derive(Debug)]
struct NvidiaCollector {
    nvml: NvmlSession,
    clock: Arc<dyn Clock>,
    operation: Note,
    driver_info: NvidiaDriverInfo,
    events: XidEvents,
    gpus: Vec<NvidiaGpu>,
    /// Which GPUs do not answer, and why.
    failure: Option<String>,
}

/// The library, started; shut down when this goes.
#[derive(Debug)]
struct NvmlSession {
    path: PathBuf,
    functions: Functions,
}

fn open(context: &Context) -> Result<Opened, OpenError> {
    let absent = |path: &Path| {
        Ok(Opened::Absent {
            looked_for: path.to_owned(),
        })
    };
    for path in &context.host.nvml {
        context.note.set(&path.display().to_string());
        let library = DynamicLibrary::open(path).map_err(CollectError::Device)?;
        let Some(library) = library else { continue };
        let Some(nvml) = NvmlSession::start(&library)? else {
            return absent(path);
        };
        let count = nvml.functions.count.query(0);
        let count = count.map_err(|refusal| device_error(path, &refusal.to_string()))?;
        if count == 0 {
            return absent(path);
        }
        return Ok(Opened::Active(Box::new(NvidiaCollector {
            clock: context.clock.clone(),
            operation: context.note.clone(),
            driver_info: NvidiaDriverInfo::query(&nvml.functions),
            events: XidEvents::new(&nvml.functions),
            gpus: (0..count.min(GPUS_MAX)).map(NvidiaGpu::new).collect(),
            failure: None,
            nvml,
        })));
    }
    absent(
        context
            .host
            .nvml
            .first()
            .map_or(Path::new("libnvidia-ml.so.1"), PathBuf::as_path),
    )
}

fn device_error(what: impl AsRef<Path>, reason: &str) -> CollectError {
    CollectError::Device(format!("{}: {reason}", what.as_ref().display()))
}

impl NvmlSession {
    /// Nothing when there is a library but no driver, as in many container images.
    fn start(library: &DynamicLibrary) -> Result<Option<NvmlSession>, CollectError> {
        // SAFETY: the names are NVML's own; a library that has others under them is none that a
        // user would put there.
        let functions = unsafe { Functions::load(library) };
        if functions.init.is_missing() || functions.count.is_missing() {
            return Err(device_error(
                library.path(),
                "this is not NVML: it has no nvmlInit_v2",
            ));
        }
        match functions.init.call() {
            Ok(()) => Ok(Some(NvmlSession {
                path: library.path().to_owned(),
                functions,
            })),
            Err(DRIVER_NOT_LOADED | GPU_NOT_FOUND) => Ok(None),
            Err(refusal) => Err(device_error(library.path(), &refusal.to_string())),
        }
    }
}

impl Drop for NvmlSession {
    fn drop(&mut self) {
        let _ = self.functions.shutdown.call();
    }
}

impl Collector for NvidiaCollector {
    fn collect(&mut self, out: &mut Group) -> Result<(), CollectError> {
        let nvml = &self.nvml.functions;
        let mut pass = PassBudget {
            now: self.clock.monotonic(),
            allows_blocking: true,
        };
        self.operation.set("the driver's events");
        let gpus = &mut self.gpus;
        // A set that fails tells nothing more; that a GPU is gone shows in its own readings.
        let _ = self.events.drain(nvml, |device, number| {
            if let Some(gpu) = gpus.iter_mut().find(|gpu| gpu.has_handle(device)) {
                gpu.record_xid(number);
            }
        });
        for gpu in gpus.iter_mut() {
            self.operation.set(gpu.name());
            let result = gpu.collect(nvml, &self.driver_info, &self.events, &mut pass, out);
            result.map_err(|trouble| match trouble {
                GpuError::GpuLost(refusal) => device_error(gpu.name(), &refusal.to_string()),
                GpuError::DriverLost(refusal) => {
                    device_error(&self.nvml.path, &refusal.to_string())
                }
                GpuError::Series(source) => CollectError::Series {
                    path: self.nvml.path.clone(),
                    source,
                },
            })?;
        }
        let missing = |gpu: &NvidiaGpu| Some(format!("{}: {}", gpu.name(), gpu.lost_reason()?));
        let missing: Vec<String> = gpus.iter().filter_map(missing).collect();
        self.failure = (!missing.is_empty()).then(|| missing.join("; "));
        match &self.failure {
            // With none left, the library is opened anew.
            Some(reason) if missing.len() == gpus.len() => {
                Err(CollectError::Device(reason.clone()))
            }
            _ => Ok(()),
        }
    }

    fn trouble(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

impl Drop for NvidiaCollector {
    fn drop(&mut self) {
        self.events.free(&self.nvml.functions);
    }
}
