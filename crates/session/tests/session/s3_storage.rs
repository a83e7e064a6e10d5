//! S3, against moto, which checks signatures.

use std::io::Read;
use std::time::{Duration, Instant};

use pegel_http_client::{HttpConnection, HttpRequest, ServerUrl, WaitLimit, connect_tcp};
use pegel_session::storage::{
    AppendOutcome, PartConflict, StorageCredentials, StorageProblemKind, read_parts,
};

use crate::loopback_server::LoopbackServer;
use crate::peer_servers::PeerServer;
use crate::stored_record::{FOLDER, TestPlace, check_record, store_record};

const TIMEOUT: Duration = Duration::from_secs(60);
/// The requests of [`moto`].
const SETUP_REQUESTS: u32 = 4;
const POLICY: &str = "%7B%22Version%22%3A%222012-10-17%22%2C%22Statement%22%3A%5B%7B%22Effect%22\
                      %3A%22Allow%22%2C%22Action%22%3A%22s3%3A%2A%22%2C%22Resource%22%3A%22%2A%22\
                      %7D%5D%7D";

/// Sends a request for which moto checks no signature.
fn send(url: &str, service: &str, method: &str, target: &str, body: &str) -> String {
    let url: ServerUrl = url.parse().expect("a URL");
    let stream = connect_tcp(&url.host, url.port, Instant::now() + TIMEOUT).expect("connected");
    let scope = format!("Credential=x/20260101/us-east-1/{service}/aws4_request");
    let authorization = format!("AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=x");
    let request = HttpRequest {
        method,
        target,
        host: url.host_header(),
        headers: &[
            ("Authorization", authorization.as_str()),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ],
    };
    let connection = HttpConnection::over_tcp(stream).expect("connected");
    let limit = WaitLimit::timeout(TIMEOUT);
    let response = connection.send_body(&request, body.as_bytes().to_vec(), limit);
    let mut response = response.expect("a response");
    let mut text = String::new();
    response.body.read_to_string(&mut text).expect("a body");
    assert_eq!(response.status, 200, "{text}");
    text
}

/// Returns a place in a new moto with a bucket and a user who may do everything in S3.
/// It does not check the signatures of the first requests.
pub(crate) fn moto(unchecked_requests: u32) -> Option<(PeerServer, TestPlace)> {
    let server = PeerServer::moto(unchecked_requests)?;
    let iam = |action: &str| send(&server.url, "iam", "POST", "/", action);
    iam("Action=CreateUser&Version=2010-05-08&UserName=pegel");
    iam(&format!(
        "Action=PutUserPolicy&Version=2010-05-08&UserName=pegel&PolicyName=p\
         &PolicyDocument={POLICY}"
    ));
    send(&server.url, "s3", "PUT", "/records", "");
    let keys = iam("Action=CreateAccessKey&Version=2010-05-08&UserName=pegel");
    let value = |name: &str| {
        let (_, after) = keys.split_once(&format!("<{name}>"))?;
        Some(after.split_once('<')?.0.to_owned())
    };
    let credentials = StorageCredentials {
        aws_access_key_id: value("AccessKeyId"),
        aws_secret_access_key: value("SecretAccessKey"),
        aws_region: Some("us-east-1".to_owned()),
        ..StorageCredentials::default()
    };
    let place = TestPlace::new("s3://records/a b", credentials, &server.url);
    Some((server, place))
}

#[test]
fn a_thousand_objects_arrive_once_each_through_a_proxy_that_drops() {
    let Some((server, place)) = moto(u32::MAX) else {
        return;
    };
    let proxy = LoopbackServer::dropping_proxy(&server.url);
    store_record(place.behind(&proxy.url).open(FOLDER), 1000);
    // They are merged into one part.
    let parts = place.parts(FOLDER);
    assert_eq!(parts.len(), 1);
    check_record(&parts, 1000);
}

#[test]
fn numbered_objects_are_readable_before_the_end() {
    let Some((_server, place)) = moto(SETUP_REQUESTS) else {
        return;
    };
    let mut storage = place.open(FOLDER);
    for part in 0..3 {
        let stored = storage.append(part, 0, &[part as u8; 10]).expect("stored");
        assert_eq!(stored, AppendOutcome::Stored);
    }
    let again = AppendOutcome::Conflict(PartConflict::AlreadyStored);
    assert_eq!(storage.append(1, 0, &[1; 10]).expect("compared"), again);
    let other = AppendOutcome::Conflict(PartConflict::OtherContent { bytes: 10 });
    assert_eq!(storage.append(1, 0, &[2; 10]).expect("compared"), other);
    assert_eq!(storage.append(1, 0, &[1; 11]).expect("compared"), other);
    let parts = place.parts(FOLDER);
    let expected = (0..3).map(|part| (part, vec![part as u8; 10]));
    assert_eq!(parts, expected.collect::<Vec<_>>());
}

#[test]
fn wrong_keys_and_missing_buckets_are_reported() {
    let Some((server, place)) = moto(SETUP_REQUESTS) else {
        return;
    };
    let problem = |place: &TestPlace| place.open("x").append(0, 0, b"block").expect_err("refused");
    let mut wrong = place.clone();
    wrong.credentials.aws_secret_access_key = Some("PLANTED-SECRET".to_owned());
    let found = problem(&wrong);
    assert_eq!(found.kind, StorageProblemKind::Credentials, "{found}");
    assert!(found.text.contains("(SignatureDoesNotMatch)"), "{found}");
    assert!(!format!("{found:?}").contains("PLANTED"), "{found}");
    wrong.credentials.aws_access_key_id = Some("PLANTED-ID".to_owned());
    let found = problem(&wrong);
    assert_eq!(found.kind, StorageProblemKind::Credentials, "{found}");
    assert!(!format!("{found:?}").contains("PLANTED"), "{found}");
    let missing = TestPlace::new("s3://missing", place.credentials.clone(), &server.url);
    let found = problem(&missing);
    assert_eq!(found.kind, StorageProblemKind::MissingContainer, "{found}");
    let read = read_parts(&missing.place, &missing.credentials, &missing.endpoints, 1);
    assert_eq!(
        read.expect_err("no bucket").kind,
        StorageProblemKind::MissingContainer
    );
}
