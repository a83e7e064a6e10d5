//! Small file systems for tests of full disks.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::{TempDir, need, need_hardware};

/// A small file system (tmpfs), unmounted on drop.
#[derive(Debug)]
pub struct SmallDisk {
    pub path: PathBuf,
    _home: TempDir,
}

impl SmallDisk {
    /// Mounts a file system; None, with the skip recorded, if that is not permitted.
    #[track_caller]
    pub fn mount(size: &str) -> Option<SmallDisk> {
        need("mount")?;
        let home = TempDir::new();
        let path = home.join("disk");
        fs::create_dir(&path).expect("a directory");
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={size},mode=700"),
                "pegel-test",
            ])
            .arg(&path)
            .output()
            .is_ok_and(|output| output.status.success());
        need_hardware(mounted, "privilege to mount a file system")?;
        Some(SmallDisk { path, _home: home })
    }

    /// Fills the file system to the last byte: a `write` is short, then fails.
    pub fn fill(&self) {
        let mut file = fs::File::create(self.path.join("filler")).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }

    pub fn free_space(&self) {
        fs::remove_file(self.path.join("filler")).expect("room again");
    }

    pub fn remount(&self, option: &str) {
        let mut command = Command::new("mount");
        let output = command
            .args(["-o", &format!("remount,{option}")])
            .arg(&self.path)
            .output();
        let output = output.expect("mount");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazy, because the agent of a failed test may still use it for a moment.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
