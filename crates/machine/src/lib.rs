//! The files of a machine: bounded reads below a root, parsers of `/proc`, `/sys` and `/etc` that
//! collectors, sessions, snapshot and doctor share, and the redaction of secrets in what is read.
//!
//! The parsers are pure functions over untrusted text. They never panic, and those that collectors
//! call in every pass ([`Words`], the `parse_*` functions for numbers, [`MeminfoField`],
//! [`ProcessStat`]) do not allocate.

mod cgroup;
mod cgroup_values;
mod command_line;
mod cpu_list;
mod key_values;
mod machine_files;
mod meminfo;
mod mountinfo;
mod natural_order;
mod os_release;
mod proc_dir;
mod proc_stat;
mod process_io;
mod process_stat;
pub mod redact;
mod udev;
mod words;

pub use cgroup::{
    CGROUP_MOUNT, CGROUP_UNLIMITED_BYTES, cgroup_ancestors, cgroup_lines, cgroup_v1_mount,
    cgroup_v2_mount,
};
pub use cgroup_values::{BlkioLine, IoStatLine, PressureLine};
pub use command_line::redact_command_line;
pub use cpu_list::cpu_list_count;
pub use key_values::{key_value, key_value_lines};
pub use machine_files::{DIRECTORY_NAMES_MAX, MachineDir, MachineFiles};
pub use meminfo::{MeminfoField, meminfo_bytes};
pub use mountinfo::{MountInfo, parse_mountinfo};
pub use natural_order::natural_order;
pub use os_release::os_release_value;
pub use proc_dir::{ProcDir, TaskCounts, read_small};
pub use proc_stat::boot_time_seconds;
pub use process_io::ProcessIo;
pub use process_stat::ProcessStat;
pub use udev::UdevProperties;
pub use words::{
    Words, parse_decimal, parse_hex, parse_signed, parse_u64, parse_u64_or_hex, parse_u64s,
};
