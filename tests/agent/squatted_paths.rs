//! Files and sockets of other users at the agent's paths: they are left in place, and the message
//! names their owner.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::Path;

use pegel_testkit::{OtherUser, TempDir, need_hardware, set_mode};

use crate::PEGEL;

/// Checks that an existing file is left unchanged, and that the message describes it.
#[track_caller]
fn assert_left_alone(socket: &Path, at: &Path, words: &[&str]) {
    let before = fs::symlink_metadata(at).expect("it is there");
    let finished = PEGEL
        .agent()
        .socket(socket)
        .env(
            "XDG_RUNTIME_DIR",
            socket.parent().and_then(Path::parent).expect("a place"),
        )
        .run();
    assert_eq!(finished.code(), Some(1), "{finished}");
    for word in words {
        assert!(finished.stderr.contains(word), "{word}: {finished}");
    }
    let after = fs::symlink_metadata(at).expect("it is still there");
    let seen = |found: &fs::Metadata| {
        (
            found.ino(),
            found.uid(),
            found.mode(),
            found.mtime_nsec(),
            found.size(),
        )
    };
    assert_eq!(seen(&before), seen(&after), "{}", at.display());
}

#[test]
fn a_link_in_place_of_the_socket_its_lock_or_its_directory_is_left_alone() {
    let home = TempDir::new();
    // Below $XDG_RUNTIME_DIR it is the default path, which other users can predict.
    let dir = home.join("pegel");
    let socket = dir.join("push.sock");
    let precious = home.join("precious");
    fs::write(&precious, "precious").expect("written");
    fs::create_dir(&dir).expect("a directory");
    set_mode(&dir, 0o700);

    symlink(&precious, &socket).expect("linked");
    assert_left_alone(
        &socket,
        &socket,
        &["push.sock is not a socket (it belongs to "],
    );
    fs::remove_file(&socket).expect("removed");

    let lock = dir.join("push.sock.lock");
    let _ = fs::remove_file(&lock);
    symlink(&precious, &lock).expect("linked");
    assert_left_alone(
        &socket,
        &lock,
        &["push.sock.lock is a link or not a regular file (it belongs to "],
    );
    fs::remove_file(&lock).expect("removed");

    fs::rename(&dir, home.join("elsewhere")).expect("moved");
    symlink(home.join("elsewhere"), &dir).expect("linked");
    assert_left_alone(&socket, &dir, &["pegel is not a directory (it belongs to "]);
    assert_eq!(
        fs::read_to_string(&precious).expect("still there"),
        "precious"
    );
    assert!(!home.join("elsewhere/push.sock").exists());
}

#[test]
fn files_of_another_user_are_left_unchanged_and_the_owner_named() {
    let is_root = rustix::process::geteuid().is_root();
    if need_hardware(is_root, "root privilege to make another user's files").is_none() {
        return;
    }
    let owner = "nobody (uid 65534)";
    let give_away = |path: &Path| chown(path, Some(OtherUser::UID), None).expect("given away");
    for what in ["lock", "socket", "directory", "file"] {
        let home = TempDir::new();
        let dir = home.join("pegel");
        let socket = dir.join("push.sock");
        fs::create_dir(&dir).expect("a directory");
        set_mode(&dir, 0o700);
        let at = match what {
            "lock" => {
                fs::write(dir.join("push.sock.lock"), "1\n").expect("written");
                dir.join("push.sock.lock")
            }
            "socket" => {
                drop(std::os::unix::net::UnixListener::bind(&socket).expect("bound"));
                socket.clone()
            }
            "directory" => dir.clone(),
            _ => {
                fs::write(&socket, "theirs").expect("written");
                socket.clone()
            }
        };
        give_away(&at);
        assert_left_alone(&socket, &at, &[owner, at.to_str().expect("UTF-8")]);
    }
    // The same holds for the path of the store.
    let home = TempDir::new();
    let dir = home.join("store");
    fs::create_dir(&dir).expect("a directory");
    give_away(&dir);
    let finished = PEGEL.agent().dir(&dir).run();
    assert_eq!(finished.code(), Some(1), "{finished}");
    assert!(
        finished.stderr.contains("belongs to user 65534"),
        "{finished}"
    );
    assert_eq!(
        fs::read_dir(&dir).expect("a directory").count(),
        0,
        "nothing was put there"
    );
}
