//! The NVML functions that are used, with safe wrappers. Each may be missing: old drivers do not
//! have the newer ones.

use std::ffi::c_char;

use super::abi::{
    Attributes, Bar1, EventData, FieldValue, INSUFFICIENT_SIZE, Margin, Memory, Memory2,
    NvmlDevice, NvmlError, NvmlEventSet, NvmlReturn, Pci, Process, TIMEOUT, Utilization, check,
    string_from_field,
};
use super::dynamic_library::DynamicLibrary;

/// A function of the library, if the library has it. Created only by [`Functions::load`].
#[derive(Debug, Clone, Copy)]
pub(super) struct NvmlFunction<F>(Option<F>);

impl<F: Copy> NvmlFunction<F> {
    fn get(self) -> Result<F, NvmlError> {
        self.0.ok_or(NvmlError::MissingFunction)
    }

    pub(super) fn is_missing(self) -> bool {
        self.0.is_none()
    }
}

type PlainFn = unsafe extern "C" fn() -> NvmlReturn;
type SystemFn<T> = unsafe extern "C" fn(*mut T) -> NvmlReturn;
type SystemTextFn = unsafe extern "C" fn(*mut c_char, u32) -> NvmlReturn;
type HandleFn = unsafe extern "C" fn(u32, *mut NvmlDevice) -> NvmlReturn;
type DeviceFn<T> = unsafe extern "C" fn(NvmlDevice, *mut T) -> NvmlReturn;
type SelectFn<T> = unsafe extern "C" fn(NvmlDevice, u32, *mut T) -> NvmlReturn;
type SelectTwoFn = unsafe extern "C" fn(NvmlDevice, u32, u32, *mut u64) -> NvmlReturn;
type PairFn = unsafe extern "C" fn(NvmlDevice, *mut u32, *mut u32) -> NvmlReturn;
type DeviceTextFn = unsafe extern "C" fn(NvmlDevice, *mut c_char, u32) -> NvmlReturn;
type FieldsFn = unsafe extern "C" fn(NvmlDevice, i32, *mut FieldValue) -> NvmlReturn;
type ProcessesFn = unsafe extern "C" fn(NvmlDevice, *mut u32, *mut Process) -> NvmlReturn;
type RegisterEventsFn = unsafe extern "C" fn(NvmlDevice, u64, NvmlEventSet) -> NvmlReturn;
type WaitEventFn = unsafe extern "C" fn(NvmlEventSet, *mut EventData, u32) -> NvmlReturn;
type FreeEventSetFn = unsafe extern "C" fn(NvmlEventSet) -> NvmlReturn;

macro_rules! functions {
    ($($name:ident: $type:ty = $($symbol:literal)|+;)*) => {
        #[derive(Debug)]
        pub(super) struct Functions { $(pub(super) $name: NvmlFunction<$type>,)* }

        impl Functions {
            /// Looks up all functions.
            ///
            /// # Safety
            ///
            /// The library's symbols of these names must be NVML's.
            pub(super) unsafe fn load(library: &DynamicLibrary) -> Functions {
                Functions {
                    // SAFETY: these are the signatures of NVML's header; the caller guarantees that
                    // the library is NVML.
                    $($name: NvmlFunction(unsafe { library.function(&[$($symbol),+]) }),)*
                }
            }
        }
    };
}

functions! {
    init: PlainFn = c"nvmlInit_v2" | c"nvmlInit";
    shutdown: PlainFn = c"nvmlShutdown";
    driver_version: SystemTextFn = c"nvmlSystemGetDriverVersion";
    cuda_version: SystemFn<i32> = c"nvmlSystemGetCudaDriverVersion_v2" | c"nvmlSystemGetCudaDriverVersion";
    count: SystemFn<u32> = c"nvmlDeviceGetCount_v2" | c"nvmlDeviceGetCount";
    handle: HandleFn = c"nvmlDeviceGetHandleByIndex_v2" | c"nvmlDeviceGetHandleByIndex";
    name: DeviceTextFn = c"nvmlDeviceGetName";
    uuid: DeviceTextFn = c"nvmlDeviceGetUUID";
    vbios: DeviceTextFn = c"nvmlDeviceGetVbiosVersion";
    pci: DeviceFn<Pci> = c"nvmlDeviceGetPciInfo_v3";
    minor: DeviceFn<u32> = c"nvmlDeviceGetMinorNumber";
    utilization: DeviceFn<Utilization> = c"nvmlDeviceGetUtilizationRates";
    encoder: PairFn = c"nvmlDeviceGetEncoderUtilization";
    decoder: PairFn = c"nvmlDeviceGetDecoderUtilization";
    jpeg: PairFn = c"nvmlDeviceGetJpgUtilization";
    ofa: PairFn = c"nvmlDeviceGetOfaUtilization";
    memory: DeviceFn<Memory> = c"nvmlDeviceGetMemoryInfo";
    memory2: DeviceFn<Memory2> = c"nvmlDeviceGetMemoryInfo_v2";
    bar1: DeviceFn<Bar1> = c"nvmlDeviceGetBAR1MemoryInfo";
    power: DeviceFn<u32> = c"nvmlDeviceGetPowerUsage";
    power_limit: DeviceFn<u32> = c"nvmlDeviceGetEnforcedPowerLimit";
    energy: DeviceFn<u64> = c"nvmlDeviceGetTotalEnergyConsumption";
    temperature: SelectFn<u32> = c"nvmlDeviceGetTemperature";
    margin: DeviceFn<Margin> = c"nvmlDeviceGetMarginTemperature";
    clock: SelectFn<u32> = c"nvmlDeviceGetClockInfo";
    clock_max: SelectFn<u32> = c"nvmlDeviceGetMaxClockInfo";
    clock_events: DeviceFn<u64> = c"nvmlDeviceGetCurrentClocksEventReasons" | c"nvmlDeviceGetCurrentClocksThrottleReasons";
    performance_state: DeviceFn<u32> = c"nvmlDeviceGetPerformanceState";
    fan: DeviceFn<u32> = c"nvmlDeviceGetFanSpeed";
    pcie_generation: DeviceFn<u32> = c"nvmlDeviceGetCurrPcieLinkGeneration";
    pcie_width: DeviceFn<u32> = c"nvmlDeviceGetCurrPcieLinkWidth";
    pcie_generation_max: DeviceFn<u32> = c"nvmlDeviceGetMaxPcieLinkGeneration";
    pcie_width_max: DeviceFn<u32> = c"nvmlDeviceGetMaxPcieLinkWidth";
    pcie_throughput: SelectFn<u32> = c"nvmlDeviceGetPcieThroughput";
    pcie_replays: DeviceFn<u32> = c"nvmlDeviceGetPcieReplayCounter";
    ecc_mode: PairFn = c"nvmlDeviceGetEccMode";
    ecc_errors: SelectTwoFn = c"nvmlDeviceGetTotalEccErrors";
    fields: FieldsFn = c"nvmlDeviceGetFieldValues";
    link_state: SelectFn<u32> = c"nvmlDeviceGetNvLinkState";
    link_errors: SelectTwoFn = c"nvmlDeviceGetNvLinkErrorCounter";
    compute_processes: ProcessesFn = c"nvmlDeviceGetComputeRunningProcesses_v3" | c"nvmlDeviceGetComputeRunningProcesses_v2";
    graphics_processes: ProcessesFn = c"nvmlDeviceGetGraphicsRunningProcesses_v3" | c"nvmlDeviceGetGraphicsRunningProcesses_v2";
    mig_mode: PairFn = c"nvmlDeviceGetMigMode";
    mig_count_max: DeviceFn<u32> = c"nvmlDeviceGetMaxMigDeviceCount";
    mig_handle: SelectFn<NvmlDevice> = c"nvmlDeviceGetMigDeviceHandleByIndex";
    gpu_instance: DeviceFn<u32> = c"nvmlDeviceGetGpuInstanceId";
    compute_instance: DeviceFn<u32> = c"nvmlDeviceGetComputeInstanceId";
    attributes: DeviceFn<Attributes> = c"nvmlDeviceGetAttributes_v2";
    event_set: SystemFn<NvmlEventSet> = c"nvmlEventSetCreate";
    event_register: RegisterEventsFn = c"nvmlDeviceRegisterEvents";
    event_wait: WaitEventFn = c"nvmlEventSetWait_v2";
    event_free: FreeEventSetFn = c"nvmlEventSetFree";
}

// In each call below, the pointers refer to live local values of the types in the signature, and
// the handles were returned by the same library.

impl NvmlFunction<PlainFn> {
    pub(super) fn call(self) -> Result<(), NvmlError> {
        let function = self.get()?;
        // SAFETY: the function takes no arguments; the library counts its initializations and
        // shutdowns.
        check(unsafe { function() })
    }
}

impl<T: Copy> NvmlFunction<SystemFn<T>> {
    pub(super) fn query(self, mut value: T) -> Result<T, NvmlError> {
        let function = self.get()?;
        // SAFETY: fills in one `T`; see above.
        check(unsafe { function(&mut value) })?;
        Ok(value)
    }
}

impl NvmlFunction<SystemFn<NvmlEventSet>> {
    pub(super) fn create(self) -> Result<NvmlEventSet, NvmlError> {
        self.query(NvmlEventSet::default())
    }
}

impl NvmlFunction<SystemTextFn> {
    pub(super) fn text(self) -> Result<String, NvmlError> {
        let function = self.get()?;
        // SAFETY: writes at most `length` bytes.
        read_text(|text, length| unsafe { function(text, length) })
    }
}

impl NvmlFunction<HandleFn> {
    pub(super) fn query(self, index: u32) -> Result<NvmlDevice, NvmlError> {
        let (function, mut device) = (self.get()?, NvmlDevice::default());
        // SAFETY: fills in one handle; see above.
        check(unsafe { function(index, &mut device) })?;
        Ok(device)
    }
}

impl<T: Copy + Default> NvmlFunction<DeviceFn<T>> {
    pub(super) fn query(self, device: NvmlDevice) -> Result<T, NvmlError> {
        self.query_with(device, T::default())
    }

    /// Like `query`, for structures whose version field selects the layout.
    pub(super) fn query_with(self, device: NvmlDevice, mut value: T) -> Result<T, NvmlError> {
        let function = self.get()?;
        // SAFETY: fills in one `T`; see above.
        check(unsafe { function(device, &mut value) })?;
        Ok(value)
    }
}

impl<T: Copy + Default> NvmlFunction<SelectFn<T>> {
    pub(super) fn query(self, device: NvmlDevice, which: u32) -> Result<T, NvmlError> {
        let (function, mut value) = (self.get()?, T::default());
        // SAFETY: fills in one `T`; see above.
        check(unsafe { function(device, which, &mut value) })?;
        Ok(value)
    }
}

impl NvmlFunction<SelectTwoFn> {
    pub(super) fn query(self, device: NvmlDevice, which: u32, of: u32) -> Result<u64, NvmlError> {
        let (function, mut value) = (self.get()?, 0);
        // SAFETY: fills in one number; see above.
        check(unsafe { function(device, which, of, &mut value) })?;
        Ok(value)
    }
}

impl NvmlFunction<PairFn> {
    pub(super) fn query(self, device: NvmlDevice) -> Result<(u32, u32), NvmlError> {
        let (function, mut first, mut second) = (self.get()?, 0, 0);
        // SAFETY: fills in two numbers; see above.
        check(unsafe { function(device, &mut first, &mut second) })?;
        Ok((first, second))
    }
}

impl NvmlFunction<DeviceTextFn> {
    pub(super) fn query(self, device: NvmlDevice) -> Result<String, NvmlError> {
        let function = self.get()?;
        // SAFETY: writes at most `length` bytes.
        read_text(|text, length| unsafe { function(device, text, length) })
    }
}

impl NvmlFunction<FieldsFn> {
    /// Fills in the values. Each carries its own return code; an error here concerns the whole
    /// call.
    pub(super) fn query(
        self,
        device: NvmlDevice,
        values: &mut [FieldValue],
    ) -> Result<(), NvmlError> {
        let function = self.get()?;
        let count = i32::try_from(values.len()).unwrap_or(0);
        // SAFETY: `values` has `count` elements; see above.
        check(unsafe { function(device, count, values.as_mut_ptr()) })
    }
}

impl NvmlFunction<ProcessesFn> {
    /// Returns the number of processes. They are in `room` if it is large enough for all.
    pub(super) fn query(
        self,
        device: NvmlDevice,
        room: &mut [Process],
    ) -> Result<usize, NvmlError> {
        let function = self.get()?;
        let mut count = u32::try_from(room.len()).unwrap_or(u32::MAX);
        // SAFETY: writes at most `count` elements into `room`, and the total number into `count`.
        match check(unsafe { function(device, &mut count, room.as_mut_ptr()) }) {
            Ok(()) | Err(INSUFFICIENT_SIZE) => Ok(count as usize),
            Err(refusal) => Err(refusal),
        }
    }
}

impl NvmlFunction<RegisterEventsFn> {
    pub(super) fn call(
        self,
        device: NvmlDevice,
        kinds: u64,
        set: NvmlEventSet,
    ) -> Result<(), NvmlError> {
        let function = self.get()?;
        // SAFETY: both handles were returned by the library.
        check(unsafe { function(device, kinds, set) })
    }
}

impl NvmlFunction<WaitEventFn> {
    /// Returns the next event if one is pending; never waits.
    pub(super) fn poll(self, set: NvmlEventSet) -> Result<Option<EventData>, NvmlError> {
        let (function, mut event) = (self.get()?, EventData::default());
        // SAFETY: fills in one event; see above.
        match check(unsafe { function(set, &mut event, 0) }) {
            Ok(()) => Ok(Some(event)),
            Err(TIMEOUT) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}

impl NvmlFunction<FreeEventSetFn> {
    pub(super) fn call(self, set: NvmlEventSet) -> Result<(), NvmlError> {
        let function = self.get()?;
        // SAFETY: the set was returned by the library and is not used afterwards.
        check(unsafe { function(set) })
    }
}

fn read_text(read: impl FnOnce(*mut c_char, u32) -> NvmlReturn) -> Result<String, NvmlError> {
    let mut text = [0; 96];
    check(read(text.as_mut_ptr(), text.len() as u32))?;
    Ok(string_from_field(&text))
}
