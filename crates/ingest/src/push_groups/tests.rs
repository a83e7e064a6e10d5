use std::fs;

use pegel_metric::SystemClock;
use pegel_store::{Store, StoreOptions};
use pegel_testkit::TempDir;
use pegel_wire::exposition::{self, TextFormat};

use super::*;
use crate::admission::{AdmissionSettings, HELP_BYTES_MAX};

const STRANGER: &str = "uid 4000000001";

struct GroupsFixture {
    groups: Arc<PushGroups>,
    _store: Store,
    dir: TempDir,
}

impl GroupsFixture {
    fn new(sender_bytes: Option<&str>) -> GroupsFixture {
        let dir = TempDir::new();
        let store = Store::open(StoreOptions::new(dir.join("store"))).expect("opened");
        let mut settings = AdmissionSettings::for_tests();
        settings.senders.sender_bytes = sender_bytes.map(|size| size.parse().expect("a size"));
        let (clock, rate) = (Arc::new(SystemClock), Duration::from_secs(3600));
        let ingest = Ingest::start(settings, None, &store, clock, rate).expect("started");
        let groups = PushGroups::open(Arc::new(ingest), dir.path(), Supervisor::default());
        GroupsFixture {
            groups,
            _store: store,
            dir,
        }
    }

    fn push(&self, sender: &str, job: &str, body: &str) -> PushOutcome {
        let format = TextFormat::from_content_type("text/plain");
        let batch = exposition::parse(body.as_bytes(), format).expect("valid");
        let pushed = self.groups.push(sender, labels(job), &batch, false);
        pushed.expect("the disk takes it")
    }

    /// Returns the contents of all files, sorted by name.
    fn files(&self) -> Vec<(String, String)> {
        let Ok(entries) = fs::read_dir(self.dir.join(PUSH_GROUPS_DIR)) else {
            return Vec::new();
        };
        let mut files: Vec<(String, String)> = entries
            .map(|entry| {
                let entry = entry.expect("an entry");
                let name = entry.file_name().into_string().expect("a name");
                (name, fs::read_to_string(entry.path()).expect("text"))
            })
            .collect();
        files.sort();
        files
    }
}

impl Drop for GroupsFixture {
    fn drop(&mut self) {
        self.groups.stop();
        self.groups.ingest.stop();
    }
}

fn labels(job: &str) -> GroupLabels {
    GroupLabels::from([("job".to_owned(), job.to_owned())])
}

fn key(sender: &str, number: usize) -> GroupKey {
    (sender.to_owned(), labels(&number.to_string()))
}

#[test]
fn groups_of_a_user_leave_room_to_others_and_to_the_agents_user_and_root() {
    let mut groups = GroupMap::new();
    // Adds groups until one is refused; returns how many were added.
    let mut fill = |sender: &str, is_trusted: bool, bytes: usize| {
        for number in 0.. {
            let key = key(sender, number);
            let mut group = PushGroup::new(1, &key, Families::new());
            group.bytes += bytes;
            if exceeded_limit(&groups, &key, &group, is_trusted).is_some() {
                // A group that exists can be replaced.
                let (known, group) = groups.last_key_value().expect("a group");
                assert_eq!(exceeded_limit(&groups, known, group, is_trusted), None);
                return number;
            }
            groups.insert(key, group);
        }
        unreachable!()
    };
    assert_eq!(fill("uid 4000000001", false, 0), GROUPS_MAX / 4);
    let large = 512 << 10;
    assert_eq!(fill("uid 4000000002", false, large), 3, "2 MiB");
    assert_eq!(fill("uid 4000000003", false, 0), GROUPS_MAX / 4);
    let left = GROUPS_MAX / 4 - 3;
    assert_eq!(fill("uid 4000000004", false, 0), left, "three quarters");
    assert_eq!(fill("uid 4000000005", false, 0), 0);
    assert_eq!(fill("uid 0", true, 0), GROUPS_MAX / 4);
}

#[test]
fn a_push_writes_its_own_group_and_its_sender_pays_for_it() {
    // 60 KB at once.
    let scene = GroupsFixture::new(Some("100"));
    let large = format!("a{{b=\"{}\"}} 1\n", "x".repeat(10_000));
    assert_eq!(scene.push("uid 0", "root", &large), PushOutcome::Stored);
    let before = scene.files();
    // Two times: as a new name, and in the file.
    for job in ["1", "2"] {
        assert_eq!(scene.push(STRANGER, job, &large), PushOutcome::Stored);
    }
    let stored = (0..20).filter(|_| scene.push(STRANGER, "2", &large) == PushOutcome::Stored);
    assert!((1..5).contains(&stored.count()));
    assert_eq!(scene.push(STRANGER, "3", "a 1\n"), PushOutcome::TooOften);
    assert_eq!(scene.push("uid 0", "root 2", "a 1\n"), PushOutcome::Stored);
    let files = scene.files();
    let names: Vec<&str> = files.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["1.json", "2.json", "3.json", "4.json"]);
    assert_eq!(files[0], before[0], "not written again");
    // Deleting a group removes its file, and a new agent reads the others.
    scene
        .groups
        .delete(STRANGER, &labels("1"))
        .expect("deleted");
    let read = GroupFiles::new(scene.dir.path()).read();
    assert_eq!(read.len(), 3);
    assert!(!read.contains_key(&(STRANGER.to_owned(), labels("1"))));
    let bytes =
        |groups: &GroupMap| -> Vec<usize> { groups.values().map(|group| group.bytes).collect() };
    assert_eq!(bytes(&read), bytes(&scene.groups.groups.lock()));
}

#[test]
fn long_help_texts_are_cut_and_too_large_groups_are_refused() {
    let scene = GroupsFixture::new(None);
    let help = "h".repeat(100_000);
    let body = format!("# HELP a {help}\n# TYPE a gauge\na{{b=\"1\"}} 1\na{{b=\"2\"}} 1\n");
    assert_eq!(scene.push(STRANGER, "1", &body), PushOutcome::Stored);
    let files = scene.files();
    assert!(
        files[0].1.len() < 3 * HELP_BYTES_MAX,
        "{}",
        files[0].1.len()
    );
    let samples: String = (0..3_000).map(|n| format!("a{{b=\"{n}\"}} 1\n")).collect();
    let body = format!("# HELP a {help}\n# TYPE a gauge\n{samples}");
    let outcome = scene.push(STRANGER, "2", &body);
    assert!(matches!(outcome, PushOutcome::TooMuch(_)), "{outcome:?}");
    assert_eq!(scene.files(), files);
}
