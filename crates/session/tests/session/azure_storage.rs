//! Azure append blobs, against azurite.

use std::fs;
use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use pegel_http_client::{
    HttpConnection, HttpRequest, ServerTrust, ServerUrl, WaitLimit, connect_tcp, tls_config,
};
use pegel_session::storage::{
    AppendOutcome, PartConflict, PartLimits, StorageCredentials, StorageProblemKind, part_name,
    put_file, read_parts,
};
use pegel_testkit::{FakeReply, FakeService, TempDir, need, now_seconds};

use crate::loopback_server::LoopbackServer;
use crate::peer_servers::{ACCOUNT, ACCOUNT_KEY, PeerServer};
use crate::stored_record::{FOLDER, LimitedStorage, TestPlace, check_record, store_record};

const TIMEOUT: Duration = Duration::from_secs(20);
const TOKEN_TARGET: &str = "GET /metadata/identity/oauth2/token?api-version=2018-02-01\
                            &resource=https%3A%2F%2Fstorage.azure.com%2F";

fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Returns a SAS token for the whole account with these permissions.
fn sas_token(permissions: &str) -> String {
    let (version, end) = ("2023-11-03", "2099-01-01T00:00:00Z");
    let text = format!("{ACCOUNT}\n{permissions}\nb\nsco\n\n{end}\n\nhttps,http\n{version}\n\n");
    let key = STANDARD.decode(ACCOUNT_KEY).expect("base64");
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let signature = STANDARD.encode(hmac::sign(&key, text.as_bytes()));
    format!(
        "sv={version}&ss=b&srt=sco&sp={permissions}&se={}&spr=https,http&sig={}",
        encoded(end),
        encoded(&signature)
    )
}

/// Sends a request that is authorized by a SAS token.
fn send(url: &str, method: &str, target: &str, ca_file: Option<&str>) -> u16 {
    let url: ServerUrl = url.parse().expect("a URL");
    let stream = connect_tcp(&url.host, url.port, Instant::now() + TIMEOUT).expect("connected");
    let connection = match ca_file {
        None => HttpConnection::over_tcp(stream),
        Some(ca_file) => {
            let trust = ServerTrust {
                ca_file: Some(ca_file.into()),
                accept_any: false,
            };
            let config = tls_config(&trust).expect("authorities");
            HttpConnection::over_tls(stream, &url.host, config, TIMEOUT)
        }
    };
    let request = HttpRequest {
        method,
        target,
        host: url.host_header(),
        headers: &[("x-ms-version", "2023-11-03"), ("Content-Length", "0")],
    };
    let response = connection.and_then(|one| one.send(&request, WaitLimit::timeout(TIMEOUT)));
    let mut response = response.expect("a response");
    let mut body = Vec::new();
    response.body.read_to_end(&mut body).expect("a body");
    response.status
}

fn create_container(url: &str, ca_file: Option<&str>) {
    let target = format!(
        "/{ACCOUNT}/records?restype=container&{}",
        sas_token("rwdlac")
    );
    assert_eq!(send(url, "PUT", &target, ca_file), 201);
}

fn shared_key() -> StorageCredentials {
    StorageCredentials {
        azure_account: Some(ACCOUNT.to_owned()),
        azure_key: Some(ACCOUNT_KEY.to_owned()),
        ..StorageCredentials::default()
    }
}

/// Returns a place in a new azurite with a container.
pub(crate) fn azurite() -> Option<(PeerServer, TestPlace)> {
    let server = PeerServer::azurite(None)?;
    create_container(&server.url, None);
    let place = format!("azblob://{ACCOUNT}/records/a b");
    let place = TestPlace::new(&place, shared_key(), &server.url);
    Some((server, place))
}

#[test]
fn records_are_stored_with_a_shared_key_and_with_a_sas_token() {
    let Some((server, place)) = azurite() else {
        return;
    };
    store_record(place.open(FOLDER), 3);
    let parts = place.parts(FOLDER);
    check_record(&parts, 3);
    assert_eq!(parts.len(), 1);
    let sas = StorageCredentials {
        azure_sas_token: Some(sas_token("rwlac")),
        ..StorageCredentials::default()
    };
    let text = format!("azblob://{ACCOUNT}/records");
    let by_sas = TestPlace::new(&text, sas, &server.url);
    store_record(by_sas.open("sas"), 3);
    check_record(&by_sas.parts("sas"), 3);
    // A token that permits no lists: the parts are found by their numbers.
    let mut unlisted = by_sas.clone();
    unlisted.credentials.azure_sas_token = Some(sas_token("rwac"));
    check_record(&unlisted.parts("sas"), 3);
    check_record(&unlisted.parts(&format!("sas/{}", part_name(0))), 3);
}

/// Returns a token that azurite accepts: it checks all claims, but not the signature.
fn identity_token() -> String {
    let now = now_seconds() as i64;
    let claims = format!(
        "{{\"aud\":\"https://storage.azure.com\",\"iss\":\"https://sts.windows.net/t/\",\
         \"iat\":{now},\"nbf\":{},\"exp\":{}}}",
        now - 600,
        now + 3600
    );
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let header = part("{\"alg\":\"RS256\",\"typ\":\"JWT\"}");
    format!("{header}.{}.{}", part(&claims), part("PLANTED-TOKEN"))
}

#[test]
fn records_are_stored_with_a_managed_identity() {
    let Some(openssl) = need("openssl") else {
        return;
    };
    let home = TempDir::new();
    let created = Command::new(openssl)
        .args("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1".split(' '))
        .args("-addext basicConstraints=critical,CA:FALSE".split(' '))
        .args("-addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem".split(' '))
        .current_dir(home.path())
        .output();
    assert!(created.is_ok_and(|output| output.status.success()));
    let path = |name: &str| home.join(name).to_str().expect("UTF-8").to_owned();
    let (cert, key) = (path("cert.pem"), path("key.pem"));
    let Some(server) = PeerServer::azurite(Some((&cert, &key))) else {
        return;
    };
    create_container(&server.url, Some(&cert));
    let metadata = FakeService::start();
    let token = format!(
        "{{\"access_token\":\"{}\",\"expires_in\":\"86399\"}}",
        identity_token()
    );
    let target = format!("{TOKEN_TARGET}&client_id=1-2");
    metadata.set(&target, Some(("metadata", "true")), FakeReply::ok(token));
    let text = format!("azblob://{ACCOUNT}/records");
    let credentials = StorageCredentials {
        azure_client_id: Some("1-2".to_owned()),
        ..StorageCredentials::default()
    };
    let mut place = TestPlace::new(&text, credentials, &server.url);
    place.endpoints.metadata = Some(metadata.url.clone());
    place.endpoints.ca_file = Some(home.join("cert.pem"));
    store_record(place.open(FOLDER), 3);
    // The token is kept.
    assert_eq!(metadata.requests(), [target.as_str()]);
    check_record(&place.parts(FOLDER), 3);
    // Without its certificate the server is not trusted, and gets no token.
    place.endpoints.ca_file = None;
    let problem = place
        .open("x")
        .append(0, 0, b"block")
        .expect_err("not trusted");
    assert_eq!(problem.kind, StorageProblemKind::Unreachable, "{problem}");
}

#[test]
fn a_thousand_blocks_arrive_once_each_through_a_proxy_that_drops() {
    let Some((server, place)) = azurite() else {
        return;
    };
    let proxy = LoopbackServer::dropping_proxy(&server.url);
    store_record(place.behind(&proxy.url).open(FOLDER), 1000);
    let parts = place.parts(FOLDER);
    assert_eq!(parts.len(), 1);
    check_record(&parts, 1000);
}

#[test]
fn a_full_blob_is_continued_in_the_next_part() {
    let Some((_server, place)) = azurite() else {
        return;
    };
    let storage = LimitedStorage {
        storage: place.open(FOLDER),
        limits: PartLimits {
            bytes: 1 << 20,
            blocks: 4,
        },
    };
    store_record(Box::new(storage), 9);
    let parts = place.parts(FOLDER);
    // Nine blocks of samples and the end.
    let numbers: Vec<u32> = parts.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    check_record(&parts, 9);
}

#[test]
fn lost_responses_and_second_writers_are_told_apart() {
    let Some((_server, place)) = azurite() else {
        return;
    };
    let (mut first, mut second) = (place.open(FOLDER), place.open(FOLDER));
    assert_eq!(
        first.append(0, 0, b"block").expect("stored"),
        AppendOutcome::Stored
    );
    let again = AppendOutcome::Conflict(PartConflict::AlreadyStored);
    assert_eq!(first.append(0, 0, b"block").expect("compared"), again);
    let other = AppendOutcome::Conflict(PartConflict::OtherContent { bytes: 5 });
    assert_eq!(second.append(0, 0, b"other").expect("compared"), other);
    assert_eq!(second.append(0, 0, b"longer").expect("compared"), other);
    assert_eq!(second.append(0, 9, b"x").expect("compared"), other);
    assert_eq!(
        first.append(0, 5, b"+").expect("stored"),
        AppendOutcome::Stored
    );
    let parts = place.parts(FOLDER);
    assert_eq!(parts, [(0, b"block+".to_vec())]);
}

#[test]
fn blocks_larger_than_the_former_limit_are_one_append() {
    let Some((_server, place)) = azurite() else {
        return;
    };
    let mut storage = place.open(FOLDER);
    let block = vec![7; 20 << 20];
    assert_eq!(
        storage.append(0, 0, &block).expect("stored"),
        AppendOutcome::Stored
    );
    assert_eq!(place.parts(FOLDER)[0].1.len(), block.len());
    // Reading is limited.
    let record = place.place.join(FOLDER);
    let read = read_parts(&record, &place.credentials, &place.endpoints, 1 << 20);
    assert_eq!(
        read.expect_err("too large").kind,
        StorageProblemKind::Rejected
    );
}

#[test]
fn wrong_keys_missing_containers_and_removed_parts_are_reported() {
    let Some((server, place)) = azurite() else {
        return;
    };
    let kind = |place: &TestPlace, position: u64| {
        let problem = place
            .open("x")
            .append(0, position, b"block")
            .expect_err("a problem");
        assert!(
            !format!("{problem} {problem:?}").contains("UExBTl"),
            "{problem}"
        );
        problem.kind
    };
    let mut wrong = place.clone();
    wrong.credentials.azure_key = Some(STANDARD.encode("another key"));
    assert_eq!(kind(&wrong, 0), StorageProblemKind::Credentials);
    let mut expired = place.clone();
    expired.credentials = StorageCredentials {
        azure_sas_token: Some(sas_token("rwac").replace("se=2099", "se=2020")),
        ..StorageCredentials::default()
    };
    assert_eq!(kind(&expired, 0), StorageProblemKind::Credentials);
    let text = format!("azblob://{ACCOUNT}/missing");
    let missing = TestPlace::new(&text, shared_key(), &server.url);
    assert_eq!(kind(&missing, 0), StorageProblemKind::MissingContainer);
    assert_eq!(kind(&place, 5), StorageProblemKind::MissingContainer);
    let read = read_parts(&place.place, &place.credentials, &place.endpoints, 1);
    let problem = read.expect_err("no record").to_string();
    assert!(problem.contains("no record found"), "{problem}");
}

#[test]
fn other_files_are_stored_beside_records() {
    let Some((server, place)) = azurite() else {
        return;
    };
    let store = |bytes| {
        put_file(
            &place.place,
            "bundle.tar",
            bytes,
            &place.credentials,
            &place.endpoints,
        )
    };
    store(b"old").expect("stored");
    store(b"new").expect("replaced");
    let target = format!("/{ACCOUNT}/records/a%20b/bundle.tar?{}", sas_token("r"));
    assert_eq!(send(&server.url, "HEAD", &target, None), 200);
    let dir = TempDir::new();
    let local = format!("file://{}", dir.join("bundles").display());
    let local = local.parse().expect("a place");
    put_file(&local, "b.tar", b"x", &place.credentials, &place.endpoints).expect("stored");
    assert_eq!(fs::read(dir.join("bundles/b.tar")).expect("a file"), b"x");
}
