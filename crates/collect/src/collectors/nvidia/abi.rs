//! The structures and codes of NVML that are used, as the driver's library has them.
//!
//! Sizes and order of the fields are part of the library's interface and do not change; what
//! changed got a new name.

use std::ffi::{CStr, c_char, c_void};

/// What every function returns.
pub(super) type NvmlReturn = u32;

/// Why NVML did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NvmlError {
    /// The driver is too old to be asked this.
    MissingFunction,
    Code(u32),
}

pub(super) const UNINITIALIZED: NvmlError = NvmlError::Code(1);
pub(super) const NOT_FOUND: NvmlError = NvmlError::Code(6);
pub(super) const INSUFFICIENT_SIZE: NvmlError = NvmlError::Code(7);
pub(super) const DRIVER_NOT_LOADED: NvmlError = NvmlError::Code(9);
pub(super) const TIMEOUT: NvmlError = NvmlError::Code(10);
pub(super) const GPU_LOST: NvmlError = NvmlError::Code(15);
pub(super) const RESET_REQUIRED: NvmlError = NvmlError::Code(16);
pub(super) const VERSION_MISMATCH: NvmlError = NvmlError::Code(18);
pub(super) const GPU_NOT_FOUND: NvmlError = NvmlError::Code(28);

impl std::fmt::Display for NvmlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match *self {
            NvmlError::MissingFunction => "the driver has no such function",
            UNINITIALIZED => "the driver's library was shut down",
            NvmlError::Code(3) => "not supported",
            NvmlError::Code(4) => "no permission",
            DRIVER_NOT_LOADED => "the driver is not loaded",
            GPU_LOST => "it fell off the bus",
            RESET_REQUIRED => "it needs a reset",
            VERSION_MISMATCH => "the library is of another version than the driver",
            GPU_NOT_FOUND => "no GPU was found",
            NvmlError::Code(code) => return write!(f, "NVML error {code}"),
        };
        f.write_str(text)
    }
}

pub(super) fn check(code: NvmlReturn) -> Result<(), NvmlError> {
    match code {
        0 => Ok(()),
        code => Err(NvmlError::Code(code)),
    }
}

/// A GPU or a MIG device, as the library names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct NvmlDevice(*mut c_void);

impl Default for NvmlDevice {
    fn default() -> NvmlDevice {
        NvmlDevice(std::ptr::null_mut())
    }
}

// SAFETY: NVML is thread-safe and its handles belong to no thread; nothing here looks behind them.
unsafe impl Send for NvmlDevice {}

#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct NvmlEventSet(*mut c_void);

impl Default for NvmlEventSet {
    fn default() -> NvmlEventSet {
        NvmlEventSet(std::ptr::null_mut())
    }
}

// SAFETY: as for `Device`.
unsafe impl Send for NvmlEventSet {}

/// The structures that NVML fills in: each is plain numbers, right whatever they are.
macro_rules! structures {
    ($($name:ident { $($field:ident: $type:ty,)* })*) => {
        $(#[derive(Debug, Clone, Copy, Default)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $type,)* })*
    };
}

structures! {
    Utilization { gpu: u32, memory: u32, }
    Memory { total: u64, free: u64, used: u64, }
    // `version` holds the size and the number of the version, here and below.
    Memory2 { version: u32, total: u64, reserved: u64, free: u64, used: u64, }
    Bar1 { total: u64, free: u64, used: u64, }
    Margin { version: u32, celsius: i32, }
    Pci { bus_id_legacy: [c_char; 16], domain: u32, bus: u32, device: u32, device_id: u32, subsystem_id: u32, bus_id: [c_char; 32], }
    Process { pid: u32, memory: u64, gpu_instance: u32, compute_instance: u32, }
    // The type says which part of the value is used.
    FieldValue { id: u32, scope: u32, timestamp: i64, latency: i64, kind: u32, code: u32, value: u64, }
    EventData { device: NvmlDevice, kind: u64, data: u64, gpu_instance: u32, compute_instance: u32, }
    Attributes {
        multiprocessors: u32, copy_engines: u32, decoders: u32, encoders: u32, jpegs: u32, ofas: u32,
        gpu_slices: u32, compute_slices: u32, memory_mib: u64,
    }
}

impl Memory2 {
    pub(super) fn request() -> Memory2 {
        let version = size_of::<Memory2>() as u32 | 2 << 24;
        Memory2 {
            version,
            ..Memory2::default()
        }
    }
}

impl Margin {
    pub(super) fn request() -> Margin {
        let version = size_of::<Margin>() as u32 | 1 << 24;
        Margin {
            version,
            ..Margin::default()
        }
    }
}

/// The text in a fixed field: up to the first zero, or all of it.
pub(super) fn string_from_field(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&byte| byte as u8).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}
