use std::fs;
use std::path::Path;

use pegel_session::storage::{
    AppendOutcome, FileStorage, PartConflict, RecordStorage, StorageProblemKind, part_name,
};
use pegel_testkit::TempDir;

fn part(dir: &Path) -> Vec<u8> {
    fs::read(dir.join(part_name(0))).expect("a part")
}

#[test]
fn a_block_that_was_written_in_part_is_completed() {
    let dir = TempDir::new();
    let folder = dir.path().join("wf/task/1");
    let mut storage = FileStorage::new(folder.clone());
    let mut append = |at, block: &[u8]| storage.append(0, at, block).expect("written");
    assert_eq!(append(0, b"first"), AppendOutcome::Stored);
    fs::write(folder.join(part_name(0)), b"firstsec").expect("written");
    assert_eq!(append(5, b"second"), AppendOutcome::Stored);
    assert_eq!(part(&folder), b"firstsecond");
    // The response to a write cannot be lost, but the process can be killed after it.
    assert_eq!(append(5, b"second"), AppendOutcome::Stored);
    assert_eq!(part(&folder), b"firstsecond");
}

#[test]
fn a_part_with_other_content_is_left_as_it_is() {
    let dir = TempDir::new();
    let path = dir.path().join(part_name(0));
    let mut storage = FileStorage::new(dir.path().to_owned());
    for (content, at, bytes) in [("fir", 5, 3), ("firstx", 5, 6), ("firstsecond!", 5, 12)] {
        fs::write(&path, content).expect("written");
        let outcome = storage.append(0, at, b"second").expect("read");
        let expected = PartConflict::OtherContent { bytes };
        assert_eq!(outcome, AppendOutcome::Conflict(expected), "{content}");
        assert_eq!(part(dir.path()), content.as_bytes());
    }
}

#[test]
fn a_part_that_was_removed_is_not_continued() {
    let dir = TempDir::new();
    let mut storage = FileStorage::new(dir.path().to_owned());
    let problem = storage.append(0, 5, b"second").expect_err("no part");
    assert_eq!(problem.kind, StorageProblemKind::MissingContainer);
    assert!(!dir.path().join(part_name(0)).exists());
}

#[test]
fn a_clean_end_leaves_a_summary() {
    let dir = TempDir::new();
    let mut storage = FileStorage::new(dir.path().to_owned());
    storage.append(0, 0, b"block").expect("written");
    storage.finish(0, "{}").expect("written");
    storage.finish(0, "{}").expect("may be repeated");
    let summary = fs::read_to_string(dir.path().join("summary.json"));
    assert_eq!(summary.expect("a summary"), "{}");
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    assert_eq!(names, [part_name(0), "summary.json".to_owned()]);
}

#[test]
fn links_and_fifos_of_others_are_not_followed_and_records_are_private() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = TempDir::new();
    let elsewhere = dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).expect("created");
    symlink(&elsewhere, dir.path().join("wf")).expect("linked");
    let mut storage = FileStorage::new(dir.path().join("wf/task/1"));
    let problem = storage.append(0, 0, b"block").expect_err("a link");
    assert!(problem.text.contains("is a symbolic link"), "{problem}");

    let folder = dir.path().join("wf2/task/1");
    let mut storage = FileStorage::new(folder.clone());
    storage.append(0, 0, b"block").expect("stored");
    let mode = |name: &str| {
        let found = fs::metadata(folder.join(name)).expect("a file");
        found.permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode(&part_name(0))), (0o700, 0o600));
    symlink(elsewhere.join("created"), folder.join(part_name(1))).expect("linked");
    storage.append(1, 0, b"block").expect_err("a link");
    symlink(elsewhere.join("created"), folder.join(".summary.json.tmp")).expect("linked");
    storage.finish(0, "{}").expect_err("a link");
    assert!(!elsewhere.join("created").exists());
}

#[test]
fn a_record_of_another_user_never_leaves_the_permitted_directory() {
    use std::os::unix::fs::symlink;
    let dir = TempDir::new();
    let (root, private) = (dir.path().join("records"), dir.path().join("private"));
    for made in [&root, &private] {
        fs::create_dir(made).expect("created");
    }
    fs::create_dir(root.join("u")).expect("created");
    symlink(&private, root.join("u/link")).expect("linked");
    let below = |place: &str| FileStorage::below(root.clone(), root.join(place));
    // The link lies above the folders of the record, in the place that the user named.
    for place in ["u/link/wf/task/1", "u/link", "../private/wf/task/1"] {
        let problem = below(place).append(0, 0, b"block");
        problem.expect_err("outside of the permitted directory");
        below(place).finish(0, "{}").expect_err("outside");
    }
    let outside = FileStorage::below(root.clone(), private.join("wf")).append(0, 0, b"block");
    outside.expect_err("outside of the permitted directory");
    let count = fs::read_dir(&private).expect("a folder").count();
    assert_eq!(count, 0, "nothing is written through the link");

    let mut storage = below("u/wf/task/1");
    let folder = root.join("u/wf/task/1");
    storage.append(0, 0, b"block").expect("stored");
    assert_eq!(part(&folder), b"block");
    // A folder that becomes a link while the record is written is not followed either.
    fs::rename(root.join("u/wf"), root.join("u/moved")).expect("moved");
    symlink(&private, root.join("u/wf")).expect("linked");
    storage.append(0, 5, b"second").expect_err("a link");
    storage.append(1, 0, b"block").expect_err("a link");
    fs::remove_file(root.join("u/wf")).expect("removed");
    fs::rename(root.join("u/moved"), root.join("u/wf")).expect("moved back");
    storage.append(0, 5, b"second").expect("stored");
    storage.finish(0, "{}").expect("stored");
    assert_eq!(part(&folder), b"blocksecond");
    assert!(folder.join("summary.json").is_file());
    let count = fs::read_dir(&private).expect("a folder").count();
    assert_eq!(count, 0, "nothing is written through a link");
}
