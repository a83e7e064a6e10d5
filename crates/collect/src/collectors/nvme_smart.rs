//! Reads and decodes log page 2 (SMART and health) of an NVMe controller, for the collector `nvme`.

use std::ffi::c_void;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};

const LOG_BYTES: usize = 512;

/// `struct nvme_passthru_cmd` of the kernel's `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Debug, Default)]
struct NvmePassthruCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    namespace: u32,
    words_2_3: [u32; 2],
    metadata: u64,
    data: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    words_10_15: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

const GET_LOG_PAGE: u8 = 2;
const SMART: u32 = 2;
const ALL_NAMESPACES: u32 = u32::MAX;
/// Below the time limit of the collector.
const TIMEOUT_MS: u32 = 2_000;

struct AdminCommandIoctl<'a> {
    command: NvmePassthruCommand,
    log: &'a mut [u8; LOG_BYTES],
}

// SAFETY: the opcode is NVME_IOCTL_ADMIN_CMD, whose argument is the command. The command points to
// `log`, which outlives `self` and has `data_bytes` bytes; the kernel writes nothing else.
unsafe impl Ioctl for AdminCommandIoctl<'_> {
    type Output = i32;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<NvmePassthruCommand>(b'N', 0x41)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.command.data = self.log.as_mut_ptr() as u64;
        (&raw mut self.command).cast()
    }

    unsafe fn output_from_ptr(output: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(output)
    }
}

/// Returns `None` if the controller is gone, rejects the command, or the agent is not permitted to
/// send it.
pub(super) fn read_smart_log(device: &Path) -> Option<[u8; LOG_BYTES]> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(device, flags, Mode::empty()).ok()?;
    let mut log = [0; LOG_BYTES];
    let mut command = NvmePassthruCommand {
        opcode: GET_LOG_PAGE,
        namespace: ALL_NAMESPACES,
        data_bytes: LOG_BYTES as u32,
        timeout_ms: TIMEOUT_MS,
        ..NvmePassthruCommand::default()
    };
    // The length in words of four bytes, minus one, and the log page.
    command.words_10_15[0] = (LOG_BYTES as u32 / 4 - 1) << 16 | SMART;
    let ask = AdminCommandIoctl {
        command,
        log: &mut log,
    };
    // SAFETY: upheld by the implementation of `Ioctl` above. For a file that is not an NVMe
    // controller the kernel returns ENOTTY.
    let status = unsafe { ioctl(&file, ask) }.ok()?;
    (status == 0).then_some(log)
}

/// The fields of the log, at their offsets in the NVMe specification.
#[derive(Debug)]
pub(super) struct SmartLog<'a>(pub(super) &'a [u8; LOG_BYTES]);

impl SmartLog<'_> {
    pub(super) fn kelvin(&self) -> f64 {
        f64::from(u16::from_le_bytes([self.0[1], self.0[2]]))
    }

    pub(super) fn byte_at(&self, offset: usize) -> f64 {
        f64::from(self.0[offset])
    }

    /// Returns a number of 16 bytes.
    pub(super) fn u128_at(&self, offset: usize) -> f64 {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[offset..offset + 16]);
        u128::from_le_bytes(bytes) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_the_size_of_the_kernel_structure() {
        assert_eq!(size_of::<NvmePassthruCommand>(), 72);
        let mut log = [0; LOG_BYTES];
        let ask = AdminCommandIoctl {
            command: NvmePassthruCommand::default(),
            log: &mut log,
        };
        assert_eq!(ask.opcode() as u64, 0xc048_4e41);
    }

    #[test]
    fn fields_are_read_at_their_offsets() {
        let mut log = [0; LOG_BYTES];
        log[..6].copy_from_slice(&[4, 0x36, 0x01, 100, 10, 3]);
        log[32..40].copy_from_slice(&7_u64.to_le_bytes());
        log[47] = 1;
        let log = SmartLog(&log);
        assert_eq!(log.kelvin(), 310.0);
        assert_eq!(
            [0, 3, 5].map(|offset| log.byte_at(offset)),
            [4.0, 100.0, 3.0]
        );
        assert_eq!(log.u128_at(32), 2_f64.powi(120) + 7.0);
    }

    #[test]
    fn a_file_that_is_not_a_controller_has_no_log() {
        assert_eq!(read_smart_log(Path::new("/dev/null")), None);
        assert_eq!(read_smart_log(Path::new("/nonexistent/nvme0")), None);
    }
}
