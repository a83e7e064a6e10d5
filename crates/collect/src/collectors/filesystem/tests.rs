//! Tests of the collector `filesystem`, with a fake statvfs that can block.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::*;
use crate::collectors::testing::present_series;
use crate::host::FilesystemSpace;

const LINE: &str = r"36 35 98:0 /a /mnt/my\040disk\134 rw,noatime shared:1 master:2 - ext4 /dev/sd\011a rw,errors=x";

#[test]
fn a_mount_or_its_file_system_may_be_read_only() {
    let mounts = parse_mounts(
        b"1 2 0:1 / /a ro - tmpfs none rw\n1 2 0:1 / /b rw - tmpfs none ro\n1 2 0:1 / /c rw - tmpfs none rw\n",
    );
    let flags: Vec<bool> = mounts
        .expect("valid")
        .iter()
        .map(|mount| mount.is_readonly)
        .collect();
    assert_eq!(flags, [true, true, false]);
    assert!(parse_mounts(b"1 2 0:1 / / rw - tmpfs none rw\nrubbish\n").is_err());
}

#[test]
fn mounts_that_node_exporter_excludes_are_excluded() {
    for point in [
        "/dev",
        "/dev/shm",
        "/proc",
        "/sys/fs/cgroup",
        "/run/credentials/a",
        "/var/lib/docker/x/y",
        "/var/lib/containers/storage/overlay",
    ] {
        assert!(is_excluded_point(point.as_bytes()), "{point}");
    }
    for point in [
        "/",
        "/devices",
        "/run/credentials",
        "/run",
        "/var/lib/docker",
        "/home/proc",
    ] {
        assert!(!is_excluded_point(point.as_bytes()), "{point}");
    }
    let is_excluded = |fstype| EXCLUDED_TYPES.contains(&fstype);
    assert!(is_excluded("cgroup2") && is_excluded("overlay"));
    assert!(!is_excluded("nfs4") && !is_excluded("tmpfs"));
}

#[test]
fn a_duplicate_mount_is_probed_once() {
    let text = format!("{LINE}\n{LINE}\n");
    assert_eq!(parse_mounts(text.as_bytes()).expect("valid").len(), 1);
}

/// The paths whose statvfs blocks until they are removed from this list.
static HUNG_PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static RELEASED: Condvar = Condvar::new();

/// Blocks on the paths in [`HUNG_PATHS`] and fails for those that end with `no`.
fn fake_statvfs(path: &Path) -> io::Result<FilesystemSpace> {
    let mut hung = HUNG_PATHS.lock();
    while hung.contains(path) {
        RELEASED.wait(&mut hung);
    }
    if path.ends_with("no") {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(FilesystemSpace {
        block_bytes: 10,
        blocks: 5,
        ..FilesystemSpace::default()
    })
}

struct FilesystemFixture {
    root: PathBuf,
    collector: FilesystemCollector,
    group: SampleGroup,
}

impl FilesystemFixture {
    fn new(name: &str, points: &[&str]) -> FilesystemFixture {
        let folder = format!("pegel-filesystem-{}-{name}", std::process::id());
        let root = std::env::temp_dir().join(folder);
        fs::create_dir_all(&root).expect("create");
        let lines = points
            .iter()
            .map(|p| format!("1 2 0:1 / {p} rw - x d rw\n"));
        fs::write(root.join("mountinfo"), lines.collect::<String>()).expect("write");
        let systems = FilesystemCollector {
            mountinfo: root.join("mountinfo"),
            init_mountinfo: Some(root.join("init_mountinfo")),
            root: root.clone(),
            operation: CurrentOperation::default(),
            prober: MountProber::new(fake_statvfs, Duration::from_millis(200)),
            series: DynamicSeries::default(),
            failure: None,
        };
        FilesystemFixture {
            root,
            collector: systems,
            group: SampleGroup::new("filesystem", 3, 1000),
        }
    }

    fn hang(&self, point: &str) {
        HUNG_PATHS.lock().insert(self.root.join(point));
    }

    fn release(&self) {
        let root = &self.root;
        HUNG_PATHS.lock().retain(|path| !path.starts_with(root));
        RELEASED.notify_all();
    }

    /// Runs a pass. Returns the mounts with a size, those with an error, and the failure message.
    fn pass(&mut self) -> (String, String, Option<String>) {
        self.group.clear();
        self.collector
            .collect(&mut self.group)
            .expect("never fails");
        let found = present_series(&mut self.group);
        let points = |start: &str, end: &str| {
            let chosen = found
                .iter()
                .filter(|line| line.starts_with(start) && line.ends_with(end));
            let points = chosen.map(|line| line.rsplit('"').nth(1).expect("quoted").to_owned());
            let mut points: Vec<String> = points.collect();
            points.sort();
            points.join(" ")
        };
        (
            points("node_filesystem_size_bytes", " 50"),
            points("node_filesystem_device_error", " 1"),
            self.collector.partial_failure().map(str::to_owned),
        )
    }
}

impl Drop for FilesystemFixture {
    fn drop(&mut self) {
        self.release();
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn owned(sizes: &str, errors: &str, trouble: Option<&str>) -> (String, String, Option<String>) {
    (
        sizes.to_owned(),
        errors.to_owned(),
        trouble.map(str::to_owned),
    )
}

#[test]
fn a_failed_statvfs_is_a_device_error_and_no_failure() {
    let mut fixture = FilesystemFixture::new("no", &["/a", "/no", "/b"]);
    assert_eq!(fixture.pass(), owned("/a /b", "/no", None));
}

#[test]
fn a_hung_mount_is_reported_and_the_others_are_read() {
    let mut fixture = FilesystemFixture::new("dead", &["/a", "/b", "/c", "/d"]);
    assert_eq!(fixture.pass(), owned("/a /b /c /d", "", None));
    fixture.hang("b");
    let trouble = Some("mount /b does not respond");
    assert_eq!(fixture.pass(), owned("/a /c /d", "/b", trouble));
    // Later passes do not probe it, so they do not wait.
    for _ in 0..20 {
        assert_eq!(fixture.pass(), owned("/a /c /d", "/b", trouble));
    }
    assert_eq!(
        fixture.collector.prober.hung_count(),
        1,
        "one thread, not twenty"
    );
    fixture.release();
    let deadline = Instant::now() + Duration::from_secs(30);
    while fixture.pass() != owned("/a /b /c /d", "", None) {
        assert!(Instant::now() < deadline, "it recovers without a restart");
    }
    assert_eq!(fixture.group.members().series.len(), 28, "slots are reused");
}

#[test]
fn the_number_of_blocked_threads_is_bounded() {
    let points: Vec<String> = (10..30).map(|number| format!("/{number}")).collect();
    let points: Vec<&str> = points.iter().map(String::as_str).collect();
    let mut fixture = FilesystemFixture::new("bounded", &points);
    for point in &points[..15] {
        fixture.hang(&point[1..]);
    }
    let mut last = fixture.pass();
    for _ in 0..4 {
        last = fixture.pass();
    }
    assert_eq!(fixture.collector.prober.hung_count(), HUNG_MAX);
    assert_eq!(last.1, points[..HUNG_MAX].join(" "));
    let trouble = last.2.expect("failed");
    assert!(
        trouble.starts_with("mounts /10, /11, ")
            && trouble.ends_with("the others are not probed while 8 probes are blocked"),
        "{trouble}"
    );
    fixture.release();
    let deadline = Instant::now() + Duration::from_secs(30);
    while fixture.pass() != owned(&points.join(" "), "", None) {
        assert!(Instant::now() < deadline, "it recovers without a restart");
    }
}

#[test]
fn a_malformed_mountinfo_is_reported_until_it_is_valid_again() {
    let mut fixture = FilesystemFixture::new("gone", &["/a"]);
    fixture.pass();
    let text = fs::read(fixture.root.join("mountinfo")).expect("read");
    fs::write(fixture.root.join("mountinfo"), "rubbish\n").expect("write");
    let (sizes, errors, trouble) = fixture.pass();
    assert_eq!((&*sizes, &*errors), ("", ""));
    let trouble = trouble.expect("failed");
    assert!(
        trouble.ends_with("malformed line in the mount table"),
        "{trouble}"
    );
    fs::write(fixture.root.join("mountinfo"), text).expect("write");
    assert_eq!(fixture.pass(), owned("/a", "", None));
}

#[test]
fn a_mount_that_is_read_only_only_for_the_agent_is_not_read_only() {
    let fixture = FilesystemFixture::new("readonly", &[]);
    let own = b"1 2 0:1 / / ro - ext4 d rw\n2 2 0:2 / /iso ro - ext4 c ro\n3 2 0:3 / /own ro - ext4 e rw\n";
    let first = b"1 2 0:1 / / rw - ext4 d rw\n2 2 0:2 / /iso ro - ext4 c ro\n";
    fs::write(fixture.root.join("init_mountinfo"), first).expect("write");
    let mut mounts = parse_mounts(own).expect("mounts");
    fixture.collector.use_init_readonly_flags(&mut mounts);
    let flags: Vec<bool> = mounts.iter().map(|mount| mount.is_readonly).collect();
    assert_eq!(flags, [false, true, true]);
    fs::remove_file(fixture.root.join("init_mountinfo")).expect("removed");
    let mut mounts = parse_mounts(own).expect("mounts");
    fixture.collector.use_init_readonly_flags(&mut mounts);
    assert!(
        mounts.iter().all(|mount| mount.is_readonly),
        "no mountinfo of process 1"
    );
}
