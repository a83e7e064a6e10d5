//! What a user sees when storage does not accept blocks; secrets are never shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pegel_session::storage::{
    StorageCredentials, StorageEndpoints, StorageProblem, StorageProblemKind, open_storage,
};
use pegel_session::{RecordUploader, SessionRecord, UploadState, UploadStep};
use pegel_testkit::{FakeReply, FakeService, TempDir};

use crate::loopback_server::{LoopbackServer, response};
use crate::samples;
use crate::stored_record::TestPlace;

const SAS: &str = "sv=2023-11-03&sig=PLANTED-SIGNATURE";
const TOKEN_PATH: &str = "GET /metadata/identity/oauth2/token?api-version=2018-02-01\
                          &resource=https%3A%2F%2Fstorage.azure.com%2F";

/// Returns places of all kinds with planted secrets, on one server.
fn places(url: &str) -> Vec<TestPlace> {
    let secret = || Some("PLANTED-SECRET".to_owned());
    let by_key = StorageCredentials {
        azure_key: Some(STANDARD.encode("PLANTED-SECRET")),
        aws_access_key_id: secret(),
        aws_secret_access_key: secret(),
        aws_session_token: secret(),
        ..StorageCredentials::default()
    };
    let by_sas = StorageCredentials {
        azure_sas_token: Some(SAS.to_owned()),
        ..StorageCredentials::default()
    };
    vec![
        TestPlace::new("azblob://acct/box", by_key.clone(), url),
        TestPlace::new("azblob://acct/box", by_sas, url),
        TestPlace::new("s3://bucket", by_key.clone(), url),
        TestPlace::new("s3://bucket--use1-az4--x-s3", by_key.clone(), url),
        TestPlace::new("gs://bucket", by_key, url),
    ]
}

#[track_caller]
fn assert_no_secret(text: &str) {
    let encoded = STANDARD.encode("PLANTED-SECRET");
    assert!(
        !text.contains("PLANTED") && !text.contains(&encoded),
        "{text}"
    );
}

/// Appends a block to each place on a server with this response.
fn problems(reply: Option<Vec<u8>>) -> Vec<StorageProblem> {
    let server = LoopbackServer::start(move |_| reply.clone());
    let append = |place: TestPlace| {
        let mut storage = place.open("wf/task/1");
        let problem = storage.append(0, 0, b"block").expect_err("a problem");
        assert_no_secret(&format!("{problem} {problem:?} {storage:?} {place:?}"));
        problem
    };
    places(&server.url).into_iter().map(append).collect()
}

#[test]
fn every_response_has_a_clear_kind() {
    use StorageProblemKind::{ClockSkew, Credentials, MissingContainer, Rejected};
    use StorageProblemKind::{ServerError, Throttled, Unreachable};
    let echo = format!("<Error><Code>X</Code><Message>PLANTED {SAS}</Message></Error>");
    let skewed = "Date: Fri, 13 Feb 2009 23:31:30 GMT\r\n";
    for (status, headers, expected) in [
        (401, "", Credentials),
        (403, "", Credentials),
        (403, skewed, ClockSkew),
        (404, "", MissingContainer),
        (429, "", Throttled),
        (503, "", Throttled),
        (500, "", ServerError),
        (502, "", ServerError),
        (400, "", Rejected),
        (302, "Location: http://x/PLANTED\r\n", Rejected),
    ] {
        for problem in problems(response(status, headers, echo.as_bytes())) {
            assert_eq!(problem.kind, expected, "{status}: {problem}");
            assert!(
                problem.text.contains(&format!("HTTP status {status}")),
                "{problem}"
            );
        }
    }
    for problem in problems(None) {
        assert_eq!(problem.kind, Unreachable, "{problem}");
    }
    for problem in problems(Some(b"SSH-2.0-PLANTED\r\n\r\n".to_vec())) {
        assert_eq!(problem.kind, Unreachable, "{problem}");
    }
}

#[test]
fn a_throttled_upload_waits_as_long_as_asked_and_then_continues() {
    let count = Arc::new(AtomicU32::new(0));
    let requests = count.clone();
    let server = LoopbackServer::start(move |_| match count.fetch_add(1, Ordering::Relaxed) {
        0 => response(
            503,
            "Retry-After: 40\r\n",
            b"<Error><Code>ServerBusy</Code></Error>",
        ),
        _ => response(201, "", b""),
    });
    let dir = TempDir::new();
    let mut record = SessionRecord::open(dir.path(), 1 << 20).expect("a spool");
    record.write_samples(&samples(0)).expect("room");
    let storage = places(&server.url).remove(0).open("x");
    let mut uploader = RecordUploader::new(record.spool(), storage);
    let now = Instant::now();
    assert_eq!(
        uploader.step(now),
        UploadStep::Wait(Duration::from_secs(40))
    );
    let status = uploader.status();
    assert_eq!(
        status.state,
        UploadState::Retrying(StorageProblemKind::Throttled)
    );
    assert_eq!(
        status.problem.as_deref(),
        Some(
            "azblob://acct/box/x: Put Blob: HTTP status 503 (ServerBusy); nothing to do; blocks \
             wait in the spool"
        )
    );
    assert_eq!(
        uploader.step(now + Duration::from_secs(40)),
        UploadStep::Stored
    );
    assert_eq!(requests.load(Ordering::Relaxed), 3);
}

#[test]
fn missing_and_malformed_credentials_are_reported_before_any_request() {
    let open = |place: &str, credentials: &StorageCredentials| {
        let place = place.parse().expect("a place");
        let opened = open_storage(&place, "x", credentials, &StorageEndpoints::default());
        let problem = opened.expect_err("not accepted");
        assert_eq!(problem.kind, StorageProblemKind::Credentials, "{problem}");
        assert_no_secret(&format!("{problem:?}"));
        problem.text
    };
    let planted = || Some("PLANTED key".to_owned());
    let none = StorageCredentials::default();
    assert!(open("s3://bucket", &none).contains("AWS_REGION is not set"));
    let mut credentials = StorageCredentials {
        aws_region: Some("eu-west-1".to_owned()),
        ..none.clone()
    };
    assert!(open("s3://bucket", &credentials).contains("AWS_ACCESS_KEY_ID and"));
    credentials.aws_access_key_id = planted();
    credentials.aws_secret_access_key = planted();
    assert!(open("s3://bucket", &credentials).contains("characters that keys do not have"));
    for (key, sas, account, expected) in [
        (
            planted(),
            None,
            None,
            "AZURE_STORAGE_KEY is not a key in base64",
        ),
        (
            None,
            planted(),
            None,
            "AZURE_STORAGE_SAS_TOKEN is not a SAS token",
        ),
        (
            planted(),
            None,
            Some("other".to_owned()),
            "AZURE_STORAGE_ACCOUNT=other",
        ),
    ] {
        let credentials = StorageCredentials {
            azure_key: key,
            azure_sas_token: sas,
            azure_account: account,
            ..none.clone()
        };
        let text = open("azblob://acct/box", &credentials);
        assert!(text.contains(expected), "{text}");
    }
    for json in [
        "PLANTED",
        "{\"client_email\":\"a\",\"private_key\":\"PLANTED\"}",
    ] {
        let credentials = StorageCredentials {
            google_service_account: Some(json.to_owned()),
            ..none.clone()
        };
        let text = open("gs://bucket", &credentials);
        assert!(
            text.contains("the key of the Google service account"),
            "{text}"
        );
    }
}

#[test]
fn tokens_and_sas_tokens_are_not_sent_in_clear_to_other_machines() {
    let place = places("http://192.0.2.1").remove(1);
    let problem = place.try_open("x").expect_err("not accepted");
    assert_eq!(problem.kind, StorageProblemKind::Rejected);
    assert!(
        problem
            .text
            .contains("a SAS token is not sent to http://192.0.2.1"),
        "{problem}"
    );
    assert_no_secret(&format!("{problem:?}"));
    // Signatures of keys are no secrets.
    let place = places("http://192.0.2.1").remove(0);
    place.try_open("x").expect("accepted");
}

#[test]
fn a_metadata_service_that_is_not_ready_is_asked_again() {
    let metadata = FakeService::start();
    let mut place = places("http://127.0.0.1:9").remove(0);
    place.credentials = StorageCredentials::default();
    place.endpoints.metadata = Some(metadata.url.clone());
    let mut storage = place.open("x");
    // Nothing was asked before a block is stored.
    assert!(metadata.requests().is_empty());
    for (status, expected, is_transient) in [
        (404, StorageProblemKind::ServerError, true),
        (410, StorageProblemKind::ServerError, true),
        (429, StorageProblemKind::Throttled, true),
        (500, StorageProblemKind::ServerError, true),
        (400, StorageProblemKind::Credentials, false),
        (200, StorageProblemKind::Credentials, false),
    ] {
        let reply = FakeReply {
            status,
            ..FakeReply::ok("{\"error\":\"PLANTED\"}")
        };
        metadata.set(TOKEN_PATH, Some(("metadata", "true")), reply);
        let problem = storage.append(0, 0, b"x").expect_err("no token");
        assert_eq!(problem.kind, expected, "{status}: {problem}");
        assert_eq!(problem.kind.is_transient(), is_transient);
    }
    assert_eq!(metadata.requests().len(), 6);
    drop(metadata);
    let problem = storage.append(0, 0, b"x").expect_err("no service");
    assert_eq!(problem.kind, StorageProblemKind::Credentials);
    let advice = "; AZURE_STORAGE_KEY and AZURE_STORAGE_SAS_TOKEN are not set either";
    assert!(problem.text.ends_with(advice), "{problem}");
}
