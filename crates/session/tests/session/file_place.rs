//! Whole files, stored once: moto, azurite, gcp-storage-emulator, and a proxy that drops requests
//! and responses.

use pegel_session::storage::{CreateOutcome, FilePlace, StorageProblemKind};

use crate::loopback_server::LoopbackServer;
use crate::stored_record::TestPlace;
use crate::{azure_storage, google_storage, s3_storage};

/// The name of a part, so that the file can be read back as one.
const NAME: &str = "date=2026-11-18/node=a b/record-00000.pgl";

fn open(place: &TestPlace) -> FilePlace {
    FilePlace::open(&place.place, &place.credentials, &place.endpoints).expect("opened")
}

fn check(place: &TestPlace, server_url: &str) {
    let mut files = open(place);
    assert_eq!(
        files.create(NAME, b"first").expect("stored"),
        CreateOutcome::Created
    );
    assert_eq!(
        files.create(NAME, b"second").expect("found"),
        CreateOutcome::Exists
    );
    let folder = NAME.rsplit_once('/').expect("a folder").0;
    assert_eq!(place.parts(folder), [(0, b"first".to_vec())]);
    // Requests and responses are lost; every file arrives once and complete.
    let proxy = LoopbackServer::dropping_proxy(server_url);
    let mut files = open(&place.behind(&proxy.url));
    for number in 0..50u8 {
        let name = format!("lossy-{number}/record-00000.pgl");
        let content = vec![number; 10_000];
        let mut attempts = 0;
        while let Err(problem) = files.create(&name, &content) {
            assert_eq!(problem.kind, StorageProblemKind::Unreachable, "{problem}");
            attempts += 1;
            assert!(attempts < 50, "{problem}");
        }
        assert_eq!(place.parts(&format!("lossy-{number}")), [(0, content)]);
    }
}

#[test]
fn files_are_stored_once_in_s3() {
    if let Some((server, place)) = s3_storage::moto(u32::MAX) {
        check(&place, &server.url);
    }
}

#[test]
fn files_are_stored_once_in_azure() {
    if let Some((server, place)) = azure_storage::azurite() {
        check(&place, &server.url);
    }
}

#[test]
fn files_are_stored_once_in_google_storage() {
    if let Some((_server, conditional, place)) = google_storage::google(None) {
        check(&place, &conditional.url);
    }
}
