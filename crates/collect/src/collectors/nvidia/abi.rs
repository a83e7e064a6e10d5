//! The structures and return codes of NVML that are used.
//!
//! Sizes and order of the fields are part of the library's ABI and do not change; a changed
//! structure gets a new name.

use std::ffi::{CStr, c_char, c_void};

/// The return code of every NVML function.
pub(super) type NvmlReturn = u32;

/// The error of an NVML call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NvmlError {
    /// The driver is too old and does not have the function.
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
            NvmlError::MissingFunction => "the driver does not have this function",
            UNINITIALIZED => "the driver's library was shut down",
            NvmlError::Code(3) => "not supported",
            NvmlError::Code(4) => "not permitted",
            DRIVER_NOT_LOADED => "the driver is not loaded",
            GPU_LOST => "the GPU fell off the bus",
            RESET_REQUIRED => "the GPU requires a reset",
            VERSION_MISMATCH => "the versions of library and driver differ",
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

/// The library's handle of a GPU or MIG device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct NvmlDevice(*mut c_void);

impl Default for NvmlDevice {
    fn default() -> NvmlDevice {
        NvmlDevice(std::ptr::null_mut())
    }
}

// SAFETY: NVML is thread-safe and its handles are not bound to a thread; this crate never
// dereferences them.
unsafe impl Send for NvmlDevice {}

#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct NvmlEventSet(*mut c_void);

impl Default for NvmlEventSet {
    fn default() -> NvmlEventSet {
        NvmlEventSet(std::ptr::null_mut())
    }
}

// SAFETY: as for `NvmlDevice`.
unsafe impl Send for NvmlEventSet {}

/// Defines the structures that NVML fills in. All fields are plain numbers, so every bit pattern is
/// valid.
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
    // `version` combines the size of the structure and its version number, here and below.
    Memory2 { version: u32, total: u64, reserved: u64, free: u64, used: u64, }
    Bar1 { total: u64, free: u64, used: u64, }
    Margin { version: u32, celsius: i32, }
    Pci { bus_id_legacy: [c_char; 16], domain: u32, bus: u32, device: u32, device_id: u32, subsystem_id: u32, bus_id: [c_char; 32], }
    Process { pid: u32, memory: u64, gpu_instance: u32, compute_instance: u32, }
    // `kind` determines which part of the value is used.
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

/// Returns the text in a fixed-size field, up to the first NUL or the end.
pub(super) fn string_from_field(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().map(|&byte| byte as u8).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}
