use std::fs;
use std::io;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::collectors::testing::present_series;
use crate::host::Volume;

const LINE: &str = r"36 35 98:0 /a /mnt/my\040disk\134 rw,noatime shared:1 master:2 - ext4 /dev/sd\011a rw,errors=x";

#[test]
fn a_line_is_taken_apart() {
    let mount = parse(LINE.as_bytes()).expect("valid");
    assert_eq!(mount.point, b"/mnt/my disk\\");
    assert_eq!(
        (&*mount.device, &*mount.fstype, mount.is_readonly),
        ("/dev/sd\ta", "ext4", false)
    );
    let without = parse(b"1 2 0:1 / / ro - tmpfs none rw").expect("no optional words");
    assert!(without.is_readonly, "the mount is");
    assert!(
        parse(b"1 2 0:1 / / rw - tmpfs none ro")
            .expect("valid")
            .is_readonly
    );
    for bad in ["", "1 2 0:1 / / rw", "1 2 0:1 / / rw - tmpfs", "x"] {
        assert_eq!(parse(bad.as_bytes()), None, "{bad}");
    }
    assert!(parse_mounts(b"1 2 0:1 / / rw - tmpfs none rw\nrubbish\n").is_err());
}

#[test]
fn what_node_exporter_leaves_out_is_left_out() {
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
    assert!(is_excluded_type("cgroup2") && is_excluded_type("overlay"));
    assert!(!is_excluded_type("nfs4") && !is_excluded_type("tmpfs"));
}

#[test]
fn a_mount_that_is_listed_twice_is_asked_once() {
    let text = format!("{LINE}\n{LINE}\n");
    assert_eq!(parse_mounts(text.as_bytes()).expect("valid").len(), 1);
}

/// The places that hang until they are taken off this list.
static HUNG_PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static RELEASED: Condvar = Condvar::new();

/// Hangs at the dead ones, refuses those that end with `no`.
fn fake_statvfs(path: &Path) -> io::Result<Volume> {
    let mut dead = HUNG_PATHS.lock().expect("lock");
    while dead.contains(path) {
        dead = RELEASED.wait(dead).expect("lock");
    }
    if path.ends_with("no") {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(Volume {
        block_bytes: 10,
        blocks: 5,
        ..Volume::default()
    })
}

struct FilesystemFixture {
    root: PathBuf,
    collector: FilesystemCollector,
    group: Group,
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
            init_mountinfo: Some(root.join("of_first")),
            root: root.clone(),
            operation: Note::default(),
            prober: MountProber::new(fake_statvfs, Duration::from_millis(200)),
            series: Sheet::new(),
            failure: None,
        };
        FilesystemFixture {
            root,
            collector: systems,
            group: Group::new("filesystem", 3, 1000),
        }
    }

    fn hang(&self, point: &str) {
        HUNG_PATHS
            .lock()
            .expect("lock")
            .insert(self.root.join(point));
    }

    fn release(&self) {
        let root = &self.root;
        HUNG_PATHS
            .lock()
            .expect("lock")
            .retain(|path| !path.starts_with(root));
        RELEASED.notify_all();
    }

    /// The mounts with a size and those with an error, and the trouble.
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
            self.collector.trouble().map(str::to_owned),
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
fn a_mount_that_says_no_has_an_error_and_is_no_failure() {
    let mut stand = FilesystemFixture::new("no", &["/a", "/no", "/b"]);
    assert_eq!(stand.pass(), owned("/a /b", "/no", None));
}

#[test]
fn a_dead_mount_is_named_and_the_others_go_on() {
    let mut stand = FilesystemFixture::new("dead", &["/a", "/b", "/c", "/d"]);
    assert_eq!(stand.pass(), owned("/a /b /c /d", "", None));
    stand.hang("b");
    let trouble = Some("the mount /b does not answer");
    assert_eq!(stand.pass(), owned("/a /c /d", "/b", trouble));
    // From now on it is not asked, so that nothing is waited for.
    for _ in 0..20 {
        assert_eq!(stand.pass(), owned("/a /c /d", "/b", trouble));
    }
    assert_eq!(
        stand.collector.prober.hung_count(),
        1,
        "one thread, not twenty"
    );
    stand.release();
    let deadline = Instant::now() + Duration::from_secs(30);
    while stand.pass() != owned("/a /b /c /d", "", None) {
        assert!(Instant::now() < deadline, "it recovers by itself");
    }
    assert_eq!(stand.group.members().series.len(), 28, "slots used again");
}

#[test]
fn the_number_of_stuck_threads_is_bounded() {
    let points: Vec<String> = (10..30).map(|number| format!("/{number}")).collect();
    let points: Vec<&str> = points.iter().map(String::as_str).collect();
    let mut stand = FilesystemFixture::new("bounded", &points);
    for point in &points[..15] {
        stand.hang(&point[1..]);
    }
    let mut last = stand.pass();
    for _ in 0..4 {
        last = stand.pass();
    }
    assert_eq!(stand.collector.prober.hung_count(), HUNG_MAX);
    assert_eq!(last.1, points[..HUNG_MAX].join(" "));
    let trouble = last.2.expect("failed");
    assert!(
        trouble.starts_with("the mounts /10, /11, ")
            && trouble.ends_with("from 8 on the others are not asked"),
        "{trouble}"
    );
    stand.release();
    let deadline = Instant::now() + Duration::from_secs(30);
    while stand.pass() != owned(&points.join(" "), "", None) {
        assert!(Instant::now() < deadline, "it recovers by itself");
    }
}

#[test]
fn a_mountinfo_that_is_gone_is_said_and_comes_back() {
    let mut stand = FilesystemFixture::new("gone", &["/a"]);
    stand.pass();
    let text = fs::read(stand.root.join("mountinfo")).expect("read");
    fs::write(stand.root.join("mountinfo"), "rubbish\n").expect("write");
    let (sizes, errors, trouble) = stand.pass();
    assert_eq!((&*sizes, &*errors), ("", ""));
    let trouble = trouble.expect("failed");
    assert!(trouble.ends_with("a line is not a mount"), "{trouble}");
    fs::write(stand.root.join("mountinfo"), text).expect("write");
    assert_eq!(stand.pass(), owned("/a", "", None));
}

#[test]
fn what_is_read_only_for_the_agent_alone_is_not_read_only() {
    let stand = FilesystemFixture::new("readonly", &[]);
    let own = b"1 2 0:1 / / ro - ext4 d rw\n2 2 0:2 / /iso ro - ext4 c ro\n3 2 0:3 / /own ro - ext4 e rw\n";
    let first = b"1 2 0:1 / / rw - ext4 d rw\n2 2 0:2 / /iso ro - ext4 c ro\n";
    fs::write(stand.root.join("of_first"), first).expect("write");
    let mut mounts = parse_mounts(own).expect("mounts");
    stand.collector.use_init_readonly_flags(&mut mounts);
    let flags: Vec<bool> = mounts.iter().map(|mount| mount.is_readonly).collect();
    assert_eq!(flags, [false, true, true]);
    fs::remove_file(stand.root.join("of_first")).expect("removed");
    let mut mounts = parse_mounts(own).expect("mounts");
    stand.collector.use_init_readonly_flags(&mut mounts);
    assert!(
        mounts.iter().all(|mount| mount.is_readonly),
        "nobody to ask"
    );
}
