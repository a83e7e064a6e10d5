//! The functions of NVML that are used. Each may be missing: old drivers lack the newer ones.

use std::ffi::c_char;

use super::abi::{
    Attributes, Bar1, Code, Device, EventData, EventSet, FieldValue, INSUFFICIENT_SIZE, Margin,
    Memory, Memory2, Pci, Process, Refusal, TIMEOUT, Utilization, check, text_of,
};
use super::library::Library;

/// A function of the library, if it has it. The only way to one is [`Functions::load`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Function<F>(Option<F>);

impl<F: Copy> Function<F> {
    fn get(self) -> Result<F, Refusal> {
        self.0.ok_or(Refusal::Missing)
    }

    pub(super) fn is_missing(self) -> bool {
        self.0.is_none()
    }
}

type Plain = unsafe extern "C" fn() -> Code;
type System<T> = unsafe extern "C" fn(*mut T) -> Code;
type SystemText = unsafe extern "C" fn(*mut c_char, u32) -> Code;
type Handle = unsafe extern "C" fn(u32, *mut Device) -> Code;
type Ask<T> = unsafe extern "C" fn(Device, *mut T) -> Code;
type Select<T> = unsafe extern "C" fn(Device, u32, *mut T) -> Code;
type SelectTwice = unsafe extern "C" fn(Device, u32, u32, *mut u64) -> Code;
type Pair = unsafe extern "C" fn(Device, *mut u32, *mut u32) -> Code;
type Text = unsafe extern "C" fn(Device, *mut c_char, u32) -> Code;
type Fields = unsafe extern "C" fn(Device, i32, *mut FieldValue) -> Code;
type Processes = unsafe extern "C" fn(Device, *mut u32, *mut Process) -> Code;
type Register = unsafe extern "C" fn(Device, u64, EventSet) -> Code;
type Wait = unsafe extern "C" fn(EventSet, *mut EventData, u32) -> Code;
type Free = unsafe extern "C" fn(EventSet) -> Code;

macro_rules! functions {
    ($($name:ident: $type:ty = $($symbol:literal)|+;)*) => {
        #[derive(Debug)]
        pub(super) struct Functions { $(pub(super) $name: Function<$type>,)* }

        impl Functions {
            /// # Safety
            ///
            /// What the library has under these names must be NVML's.
            pub(super) unsafe fn load(library: &Library) -> Functions {
                Functions {
                    // SAFETY: these are the signatures in the driver's header, and the caller
                    // vouches for the library.
                    $($name: Function(unsafe { library.function(&[$($symbol),+]) }),)*
                }
            }
        }
    };
}

functions! {
    init: Plain = c"nvmlInit_v2" | c"nvmlInit";
    shutdown: Plain = c"nvmlShutdown";
    driver_version: SystemText = c"nvmlSystemGetDriverVersion";
    cuda_version: System<i32> = c"nvmlSystemGetCudaDriverVersion_v2" | c"nvmlSystemGetCudaDriverVersion";
    count: System<u32> = c"nvmlDeviceGetCount_v2" | c"nvmlDeviceGetCount";
    handle: Handle = c"nvmlDeviceGetHandleByIndex_v2" | c"nvmlDeviceGetHandleByIndex";
    name: Text = c"nvmlDeviceGetName";
    uuid: Text = c"nvmlDeviceGetUUID";
    vbios: Text = c"nvmlDeviceGetVbiosVersion";
    pci: Ask<Pci> = c"nvmlDeviceGetPciInfo_v3";
    minor: Ask<u32> = c"nvmlDeviceGetMinorNumber";
    utilization: Ask<Utilization> = c"nvmlDeviceGetUtilizationRates";
    encoder: Pair = c"nvmlDeviceGetEncoderUtilization";
    decoder: Pair = c"nvmlDeviceGetDecoderUtilization";
    jpeg: Pair = c"nvmlDeviceGetJpgUtilization";
    ofa: Pair = c"nvmlDeviceGetOfaUtilization";
    memory: Ask<Memory> = c"nvmlDeviceGetMemoryInfo";
    memory2: Ask<Memory2> = c"nvmlDeviceGetMemoryInfo_v2";
    bar1: Ask<Bar1> = c"nvmlDeviceGetBAR1MemoryInfo";
    power: Ask<u32> = c"nvmlDeviceGetPowerUsage";
    power_limit: Ask<u32> = c"nvmlDeviceGetEnforcedPowerLimit";
    energy: Ask<u64> = c"nvmlDeviceGetTotalEnergyConsumption";
    temperature: Select<u32> = c"nvmlDeviceGetTemperature";
    margin: Ask<Margin> = c"nvmlDeviceGetMarginTemperature";
    clock: Select<u32> = c"nvmlDeviceGetClockInfo";
    clock_max: Select<u32> = c"nvmlDeviceGetMaxClockInfo";
    clock_events: Ask<u64> = c"nvmlDeviceGetCurrentClocksEventReasons" | c"nvmlDeviceGetCurrentClocksThrottleReasons";
    performance_state: Ask<u32> = c"nvmlDeviceGetPerformanceState";
    fan: Ask<u32> = c"nvmlDeviceGetFanSpeed";
    pcie_generation: Ask<u32> = c"nvmlDeviceGetCurrPcieLinkGeneration";
    pcie_width: Ask<u32> = c"nvmlDeviceGetCurrPcieLinkWidth";
    pcie_generation_max: Ask<u32> = c"nvmlDeviceGetMaxPcieLinkGeneration";
    pcie_width_max: Ask<u32> = c"nvmlDeviceGetMaxPcieLinkWidth";
    pcie_throughput: Select<u32> = c"nvmlDeviceGetPcieThroughput";
    pcie_replays: Ask<u32> = c"nvmlDeviceGetPcieReplayCounter";
    ecc_mode: Pair = c"nvmlDeviceGetEccMode";
    ecc_errors: SelectTwice = c"nvmlDeviceGetTotalEccErrors";
    fields: Fields = c"nvmlDeviceGetFieldValues";
    link_state: Select<u32> = c"nvmlDeviceGetNvLinkState";
    link_errors: SelectTwice = c"nvmlDeviceGetNvLinkErrorCounter";
    compute_processes: Processes = c"nvmlDeviceGetComputeRunningProcesses_v3" | c"nvmlDeviceGetComputeRunningProcesses_v2";
    graphics_processes: Processes = c"nvmlDeviceGetGraphicsRunningProcesses_v3" | c"nvmlDeviceGetGraphicsRunningProcesses_v2";
    mig_mode: Pair = c"nvmlDeviceGetMigMode";
    mig_count_max: Ask<u32> = c"nvmlDeviceGetMaxMigDeviceCount";
    mig_handle: Select<Device> = c"nvmlDeviceGetMigDeviceHandleByIndex";
    gpu_instance: Ask<u32> = c"nvmlDeviceGetGpuInstanceId";
    compute_instance: Ask<u32> = c"nvmlDeviceGetComputeInstanceId";
    attributes: Ask<Attributes> = c"nvmlDeviceGetAttributes_v2";
    event_set: System<EventSet> = c"nvmlEventSetCreate";
    event_register: Register = c"nvmlDeviceRegisterEvents";
    event_wait: Wait = c"nvmlEventSetWait_v2";
    event_free: Free = c"nvmlEventSetFree";
}

// In each call below the pointers lead to places of ours that live during the call and have the
// types of the signature, and the handles came from the same library.

impl Function<Plain> {
    pub(super) fn call(self) -> Result<(), Refusal> {
        let function = self.get()?;
        // SAFETY: takes nothing; the library counts how often it is started and shut down.
        check(unsafe { function() })
    }
}

impl<T: Copy> Function<System<T>> {
    pub(super) fn ask(self, mut value: T) -> Result<T, Refusal> {
        let function = self.get()?;
        // SAFETY: fills in one `T`; see above.
        check(unsafe { function(&mut value) })?;
        Ok(value)
    }
}

impl Function<System<EventSet>> {
    pub(super) fn create(self) -> Result<EventSet, Refusal> {
        self.ask(EventSet::default())
    }
}

impl Function<SystemText> {
    pub(super) fn text(self) -> Result<String, Refusal> {
        let function = self.get()?;
        // SAFETY: writes at most as many bytes as it is told.
        read_text(|text, length| unsafe { function(text, length) })
    }
}

impl Function<Handle> {
    pub(super) fn ask(self, index: u32) -> Result<Device, Refusal> {
        let (function, mut device) = (self.get()?, Device::default());
        // SAFETY: fills in one handle; see above.
        check(unsafe { function(index, &mut device) })?;
        Ok(device)
    }
}

impl<T: Copy + Default> Function<Ask<T>> {
    pub(super) fn ask(self, device: Device) -> Result<T, Refusal> {
        self.fill(device, T::default())
    }

    /// For structures whose version is asked for.
    pub(super) fn fill(self, device: Device, mut value: T) -> Result<T, Refusal> {
        let function = self.get()?;
        // SAFETY: fills in one `T`; see above.
        check(unsafe { function(device, &mut value) })?;
        Ok(value)
    }
}

impl<T: Copy + Default> Function<Select<T>> {
    pub(super) fn ask(self, device: Device, which: u32) -> Result<T, Refusal> {
        let (function, mut value) = (self.get()?, T::default());
        // SAFETY: fills in one `T`; see above.
        check(unsafe { function(device, which, &mut value) })?;
        Ok(value)
    }
}

impl Function<SelectTwice> {
    pub(super) fn ask(self, device: Device, which: u32, of: u32) -> Result<u64, Refusal> {
        let (function, mut value) = (self.get()?, 0);
        // SAFETY: fills in one number; see above.
        check(unsafe { function(device, which, of, &mut value) })?;
        Ok(value)
    }
}

impl Function<Pair> {
    pub(super) fn ask(self, device: Device) -> Result<(u32, u32), Refusal> {
        let (function, mut first, mut second) = (self.get()?, 0, 0);
        // SAFETY: fills in two numbers; see above.
        check(unsafe { function(device, &mut first, &mut second) })?;
        Ok((first, second))
    }
}

impl Function<Text> {
    pub(super) fn ask(self, device: Device) -> Result<String, Refusal> {
        let function = self.get()?;
        // SAFETY: writes at most as many bytes as it is told.
        read_text(|text, length| unsafe { function(device, text, length) })
    }
}

impl Function<Fields> {
    /// Each value carries its own code; a failure here is one of all.
    pub(super) fn ask(self, device: Device, values: &mut [FieldValue]) -> Result<(), Refusal> {
        let function = self.get()?;
        let count = i32::try_from(values.len()).unwrap_or(0);
        // SAFETY: `values` holds `count` of them; see above.
        check(unsafe { function(device, count, values.as_mut_ptr()) })
    }
}

impl Function<Processes> {
    /// How many there are. They are in `room` if it has room for all of them.
    pub(super) fn ask(self, device: Device, room: &mut [Process]) -> Result<usize, Refusal> {
        let function = self.get()?;
        let mut count = u32::try_from(room.len()).unwrap_or(u32::MAX);
        // SAFETY: writes at most `count` of them into `room`, and the number that there are.
        match check(unsafe { function(device, &mut count, room.as_mut_ptr()) }) {
            Ok(()) | Err(INSUFFICIENT_SIZE) => Ok(count as usize),
            Err(refusal) => Err(refusal),
        }
    }
}

impl Function<Register> {
    pub(super) fn call(self, device: Device, kinds: u64, set: EventSet) -> Result<(), Refusal> {
        let function = self.get()?;
        // SAFETY: both handles came from the library.
        check(unsafe { function(device, kinds, set) })
    }
}

impl Function<Wait> {
    /// The next event, if one is waiting.
    pub(super) fn poll(self, set: EventSet) -> Result<Option<EventData>, Refusal> {
        let (function, mut event) = (self.get()?, EventData::default());
        // SAFETY: fills in one event; see above.
        match check(unsafe { function(set, &mut event, 0) }) {
            Ok(()) => Ok(Some(event)),
            Err(TIMEOUT) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }
}

impl Function<Free> {
    pub(super) fn call(self, set: EventSet) -> Result<(), Refusal> {
        let function = self.get()?;
        // SAFETY: the set came from the library and is not used afterwards.
        check(unsafe { function(set) })
    }
}

fn read_text(read: impl FnOnce(*mut c_char, u32) -> Code) -> Result<String, Refusal> {
    let mut text = [0; 96];
    check(read(text.as_mut_ptr(), text.len() as u32))?;
    Ok(text_of(&text))
}
