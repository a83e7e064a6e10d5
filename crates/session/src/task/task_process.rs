//! One process of a task, as it was last read.

use pegel_machine::{ProcDir, ProcessIo, ProcessStat, key_value_lines, redact_command_line};
use pegel_metric::escape_unprintable;
use serde::{Deserialize, Serialize};

/// Longer than any `stat` and `io` file of a process.
const SMALL_BYTES: usize = 1024;
/// Longer than any `status` file of a process.
const STATUS_BYTES: usize = 8192;
/// Bytes of a command line that are read; the rest is left out.
const COMMAND_BYTES: usize = 4096;
/// The longest name that the kernel keeps has 15 bytes, of kernel threads 63.
const NAME_CHARS_MAX: usize = 64;

/// CPU time and page faults of a process, or of all children that it waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TaskCpu {
    pub user: u64,
    pub system: u64,
    /// Shows whether a process was waited for, with a finer resolution than the CPU time.
    pub faults: u64,
}

impl TaskCpu {
    pub(super) fn plus(self, other: TaskCpu) -> TaskCpu {
        TaskCpu {
            user: self.user.saturating_add(other.user),
            system: self.system.saturating_add(other.system),
            faults: self.faults.saturating_add(other.faults),
        }
    }

    pub(super) fn minus(self, other: TaskCpu) -> TaskCpu {
        TaskCpu {
            user: self.user.saturating_sub(other.user),
            system: self.system.saturating_sub(other.system),
            faults: self.faults.saturating_sub(other.faults),
        }
    }
}

/// Bytes of I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IoTotals {
    pub rchar: u64,
    pub wchar: u64,
    pub read: u64,
    pub written: u64,
}

impl IoTotals {
    pub(super) fn plus(self, other: IoTotals) -> IoTotals {
        self.combine(other, u64::saturating_add)
    }

    pub(super) fn minus(self, other: IoTotals) -> IoTotals {
        self.combine(other, u64::saturating_sub)
    }

    fn combine(self, other: IoTotals, with: impl Fn(u64, u64) -> u64) -> IoTotals {
        IoTotals {
            rchar: with(self.rchar, other.rchar),
            wchar: with(self.wchar, other.wchar),
            read: with(self.read, other.read),
            written: with(self.written, other.written),
        }
    }
}

impl From<ProcessIo> for IoTotals {
    fn from(io: ProcessIo) -> IoTotals {
        IoTotals {
            rchar: io.rchar,
            wchar: io.wchar,
            read: io.read_bytes,
            written: io.write_bytes,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TaskProcess {
    pub start_ticks: u64,
    pub parent: u32,
    pub name: String,
    /// The kernel's letter.
    pub state: u8,
    pub threads: u64,
    /// Of the process itself.
    pub own: TaskCpu,
    /// Of the children that it waited for, and of theirs.
    pub children: TaskCpu,
    /// The same at the end of the previous sample.
    pub previous_children: TaskCpu,
    /// Including those children; `None` if this user may not read it.
    pub io: Option<IoTotals>,
    pub resident_bytes: u64,
    /// The resident memory in `stat`, which is imprecise for small values: only detects changes.
    stat_resident_bytes: u64,
    pub swap_bytes: u64,
    /// The peak of the resident memory that was reached while the task ran.
    pub peak_bytes: u64,
    /// The peak before the task was watched, which does not count.
    pub earlier_peak_bytes: u64,
    /// Redacted; of the largest processes only.
    #[serde(skip)]
    pub command: Option<String>,
}

impl TaskProcess {
    /// Reads a process for the first time.
    pub(super) fn new(stat: &ProcessStat<'_>) -> TaskProcess {
        TaskProcess {
            start_ticks: stat.start_ticks,
            parent: stat.parent,
            name: String::new(),
            state: stat.state,
            threads: stat.threads,
            own: TaskCpu::default(),
            children: TaskCpu::default(),
            previous_children: TaskCpu::default(),
            io: None,
            resident_bytes: 0,
            stat_resident_bytes: 0,
            swap_bytes: 0,
            peak_bytes: 0,
            earlier_peak_bytes: 0,
            command: None,
        }
    }

    /// Takes over a reading of `stat`, and reads the memory again if it may have changed.
    pub(super) fn update(&mut self, proc: &ProcDir, pid: u32, stat: &ProcessStat<'_>) {
        // What a zombie had is kept for an autopsy.
        if self.set_stat(stat) && !self.is_zombie() {
            self.read_memory(proc, pid);
        }
    }

    /// Returns whether the memory may have changed.
    fn set_stat(&mut self, stat: &ProcessStat<'_>) -> bool {
        let own = TaskCpu {
            user: stat.user_ticks,
            system: stat.system_ticks,
            faults: stat.minor_faults,
        };
        let name = printable_name(stat.comm);
        let page_bytes = rustix::param::page_size() as u64;
        let resident = stat.resident_pages.saturating_mul(page_bytes);
        let is_changed = own.faults != self.own.faults || resident != self.stat_resident_bytes;
        if name != self.name {
            // Another program: its command line is another one too.
            self.name = name;
            self.command = None;
            self.earlier_peak_bytes = 0;
        }
        self.parent = stat.parent;
        self.state = stat.state;
        self.threads = stat.threads;
        self.own = own;
        self.children = TaskCpu {
            user: stat.child_user_ticks,
            system: stat.child_system_ticks,
            faults: stat.child_faults,
        };
        self.stat_resident_bytes = resident;
        is_changed
    }

    /// Reads resident memory, its peak, and swap from `status`.
    fn read_memory(&mut self, proc: &ProcDir, pid: u32) {
        let mut text = [0; STATUS_BYTES];
        let length = proc.read(pid, "status", &mut text).unwrap_or(0);
        self.resident_bytes = self.stat_resident_bytes;
        let mut peak = 0;
        for (key, value) in key_value_lines(&text[..length]) {
            let bytes = value.saturating_mul(1024);
            match key {
                "VmHWM:" => peak = bytes,
                "VmRSS:" => self.resident_bytes = bytes,
                "VmSwap:" => self.swap_bytes = bytes,
                _ => {}
            }
        }
        if peak > self.earlier_peak_bytes {
            self.peak_bytes = self.peak_bytes.max(peak);
        }
        self.peak_bytes = self.peak_bytes.max(self.resident_bytes);
    }

    pub(super) fn read_io(&mut self, proc: &ProcDir, pid: u32) {
        let mut text = [0; SMALL_BYTES];
        let length = proc.read(pid, "io", &mut text).unwrap_or(0);
        if let Some(io) = ProcessIo::parse(&text[..length]) {
            self.io = Some(io.into());
        }
    }

    /// Reads the command line once. Not of a process that waits for a device: reading its memory
    /// could wait too.
    pub(super) fn read_command(&mut self, proc: &ProcDir, pid: u32) {
        if self.command.is_none() && !matches!(self.state, b'D' | b'Z' | b'X') {
            let mut text = [0; COMMAND_BYTES];
            let length = proc.read(pid, "cmdline", &mut text).unwrap_or(0);
            let command = redact_command_line(&text[..length], length == text.len());
            self.command = command.map(|command| escape_unprintable(&command).into_owned());
        }
    }

    /// Whether the process has exited and only waits for its parent.
    pub(super) fn is_zombie(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// Reads `stat` into `buffer`.
pub(super) fn read_stat<'a>(
    proc: &ProcDir,
    pid: u32,
    buffer: &'a mut StatBuffer,
) -> Option<ProcessStat<'a>> {
    let length = proc.read(pid, "stat", buffer).ok()?;
    ProcessStat::parse(&buffer[..length])
}

pub(super) type StatBuffer = [u8; SMALL_BYTES];
pub(super) const STAT_BUFFER: StatBuffer = [0; SMALL_BYTES];

/// Returns the name of a process as text that a terminal can show.
pub(super) fn printable_name(comm: &[u8]) -> String {
    let name = String::from_utf8_lossy(comm);
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    escape_unprintable(&name).replace('\n', "\\n")
}
