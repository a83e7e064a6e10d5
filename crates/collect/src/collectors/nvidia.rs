//! NVIDIA GPUs, queried through the driver's library NVML, `libnvidia-ml.so.1`.
//!
//! The library is opened at run time and never linked: on a node without it, without the driver or
//! without a GPU the collector is absent. Its calls may block, so the collector runs on a thread of
//! its own. Values that a GPU or driver does not support are absent, and retried after a minute. A
//! GPU that falls off the bus fails alone: the others are still read, and the lost one is searched
//! for every minute.
//!
//! Once initialized, the library takes 15 to 19 MB of the agent's memory (driver 580) and a thread,
//! independent of the queries.

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

use abi::{DRIVER_NOT_LOADED, GPU_NOT_FOUND};
use dynamic_library::DynamicLibrary;
use functions::Functions;
use gpu::{NvidiaDriverInfo, NvidiaGpu};
use gpu_readings::GpuError;
use pegel_metric::{Clock, SampleGroup};
use query_interval::PassBudget;
use xids::XidEvents;

use crate::{
    CollectError, Collector, CollectorEntry, Context, CurrentOperation, LiveProcesses, OpenOutcome,
    OpenResult, Tier,
};

/// More GPUs than any node has.
const GPUS_MAX: u32 = 64;

pub static ENTRY: CollectorEntry =
    CollectorEntry::threaded("nvidia", Tier::Fast, families::FAMILIES, open);

#[derive(Debug)]
struct NvidiaCollector {
    nvml: NvmlSession,
    clock: Arc<dyn Clock>,
    operation: CurrentOperation,
    live_processes: Arc<LiveProcesses>,
    driver_info: NvidiaDriverInfo,
    events: XidEvents,
    gpus: Vec<NvidiaGpu>,
    /// Which GPUs do not respond, and why.
    failure: Option<String>,
}

/// The initialized library; dropping it shuts the library down.
#[derive(Debug)]
struct NvmlSession {
    path: PathBuf,
    functions: Functions,
}

fn open(context: &Context) -> OpenResult {
    let absent = |path: &Path| OpenOutcome::absent(path.to_owned());
    for path in &context.host.nvml {
        context.operation.set(&path.display().to_string());
        let library = DynamicLibrary::open(path).map_err(CollectError::Device)?;
        let Some(library) = library else { continue };
        let Some(nvml) = NvmlSession::start(&library)? else {
            return absent(path);
        };
        let count = nvml.functions.count.query(0);
        let count = count.map_err(|error| device_error(path, &error.to_string()))?;
        if count == 0 {
            return absent(path);
        }
        return OpenOutcome::active(NvidiaCollector {
            clock: context.clock.clone(),
            operation: context.operation.clone(),
            live_processes: context.live_processes.clone(),
            driver_info: NvidiaDriverInfo::query(&nvml.functions),
            events: XidEvents::new(&nvml.functions),
            gpus: (0..count.min(GPUS_MAX)).map(NvidiaGpu::new).collect(),
            failure: None,
            nvml,
        });
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
    /// Initializes the library. Returns `None` if there is a library but no driver, as in many
    /// container images.
    fn start(library: &DynamicLibrary) -> Result<Option<NvmlSession>, CollectError> {
        // SAFETY: the symbols are NVML's, with the signatures of its header. The path comes from
        // the administrator, who vouches that the library is NVML.
        let functions = unsafe { Functions::load(library) };
        if functions.init.is_missing() || functions.count.is_missing() {
            return Err(device_error(
                library.path(),
                "not the NVML library: missing symbol nvmlInit_v2",
            ));
        }
        match functions.init.call() {
            Ok(()) => Ok(Some(NvmlSession {
                path: library.path().to_owned(),
                functions,
            })),
            Err(DRIVER_NOT_LOADED | GPU_NOT_FOUND) => Ok(None),
            Err(error) => Err(device_error(library.path(), &error.to_string())),
        }
    }
}

impl Drop for NvmlSession {
    fn drop(&mut self) {
        let _ = self.functions.shutdown.call();
    }
}

impl Collector for NvidiaCollector {
    fn collect(&mut self, out: &mut SampleGroup) -> Result<(), CollectError> {
        let nvml = &self.nvml.functions;
        let mut pass = PassBudget {
            now: self.clock.monotonic(),
            allows_blocking: true,
        };
        self.operation.set("driver events");
        let gpus = &mut self.gpus;
        // Ignore errors of the event set: a lost GPU shows in its own readings.
        let _ = self.events.drain(nvml, |device, number| {
            if let Some(gpu) = gpus.iter_mut().find(|gpu| gpu.has_handle(device)) {
                gpu.record_xid(number);
            }
        });
        for gpu in gpus.iter_mut() {
            self.operation.set(gpu.name());
            let result = gpu.collect(nvml, &self.driver_info, &self.events, &mut pass, out);
            result.map_err(|error| match error {
                GpuError::GpuLost(cause) => device_error(gpu.name(), &cause.to_string()),
                GpuError::DriverLost(cause) => device_error(&self.nvml.path, &cause.to_string()),
                GpuError::Series(source) => CollectError::Series {
                    path: self.nvml.path.clone(),
                    source,
                },
            })?;
            gpu.publish_processes(&self.live_processes);
        }
        let lost = |gpu: &NvidiaGpu| Some(format!("{}: {}", gpu.name(), gpu.lost_reason()?));
        let lost: Vec<String> = gpus.iter().filter_map(lost).collect();
        self.failure = (!lost.is_empty()).then(|| lost.join("; "));
        match &self.failure {
            // With no GPU left, fail, so that the library is opened again.
            Some(reason) if lost.len() == gpus.len() => Err(CollectError::Device(reason.clone())),
            _ => Ok(()),
        }
    }

    fn partial_failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}

impl Drop for NvidiaCollector {
    fn drop(&mut self) {
        self.events.free(&self.nvml.functions);
        for gpu in &self.gpus {
            gpu.withdraw_processes(&self.live_processes);
        }
    }
}
