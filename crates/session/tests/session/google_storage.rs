//! Google Cloud Storage, against gcp-storage-emulator. It ignores `ifGenerationMatch` and tokens: a
//! proxy in front of it implements these two as documented.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use pegel_session::storage::{
    AppendOutcome, PartConflict, StorageCredentials, StorageProblemKind, put_file,
};
use pegel_testkit::{FakeReply, FakeService, TempDir, need};

use crate::loopback_server::{LoopbackServer, ReceivedRequest, response};
use crate::peer_servers::PeerServer;
use crate::stored_record::{FOLDER, TestPlace, check_record, store_record};

const TOKEN: &str = "PLANTED-GOOGLE-TOKEN";

/// Starts the proxy. Requests must have this token, if there is one.
fn conditional_proxy(url: &str, token: Option<&'static str>) -> LoopbackServer {
    let url = url.to_owned();
    let uploads = Arc::new(Mutex::new(()));
    LoopbackServer::start(move |request| {
        let expected = token.map(|token| format!("Bearer {token}"));
        if request.header("authorization") != expected.as_deref() {
            return response(
                401,
                "",
                b"{\"error\":{\"errors\":[{\"reason\":\"authError\"}]}}",
            );
        }
        let _only = uploads.lock();
        if request.target.contains("&ifGenerationMatch=0") && exists(request, &url)? {
            return response(
                412,
                "",
                b"{\"error\":{\"errors\":[{\"reason\":\"conditionNotMet\"}]}}",
            );
        }
        request.forward(&url)
    })
}

/// Whether the object of an upload exists.
fn exists(upload: &ReceivedRequest, url: &str) -> Option<bool> {
    let (path, query) = upload.target.split_once('?')?;
    let name = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("name="))?;
    let target = format!("{}/{name}", path.strip_prefix("/upload")?);
    let head = upload.with_target("GET", &target).forward(url)?;
    Some(head.split(|byte| *byte == b' ').nth(1)? == b"200")
}

/// Returns a place in a new emulator, behind the proxy.
pub(crate) fn google(
    token: Option<&'static str>,
) -> Option<(PeerServer, LoopbackServer, TestPlace)> {
    let server = PeerServer::google_emulator()?;
    let proxy = conditional_proxy(&server.url, token);
    let credentials = StorageCredentials::default();
    let place = TestPlace::new("gs://records/a b", credentials, &proxy.url);
    Some((server, proxy, place))
}

#[test]
fn numbered_objects_are_merged_through_a_proxy_that_drops() {
    let Some((_server, conditional, place)) = google(None) else {
        return;
    };
    let proxy = LoopbackServer::dropping_proxy(&conditional.url);
    store_record(place.behind(&proxy.url).open(FOLDER), 100);
    let parts = place.parts(FOLDER);
    assert_eq!(parts.len(), 1);
    check_record(&parts, 100);
}

#[test]
fn lost_responses_second_writers_and_missing_buckets_are_told_apart() {
    let Some((_server, proxy, place)) = google(None) else {
        return;
    };
    let mut storage = place.open(FOLDER);
    assert_eq!(
        storage.append(0, 0, b"block").expect("stored"),
        AppendOutcome::Stored
    );
    let again = AppendOutcome::Conflict(PartConflict::AlreadyStored);
    assert_eq!(storage.append(0, 0, b"block").expect("compared"), again);
    let other = AppendOutcome::Conflict(PartConflict::OtherContent { bytes: 5 });
    assert_eq!(storage.append(0, 0, b"other").expect("compared"), other);
    assert_eq!(storage.append(0, 0, b"longer").expect("compared"), other);
    assert_eq!(place.parts(FOLDER), [(0, b"block".to_vec())]);
    let missing = TestPlace::new("gs://missing", StorageCredentials::default(), &proxy.url);
    let problem = missing.open("x").append(0, 0, b"x").expect_err("no bucket");
    assert_eq!(
        problem.kind,
        StorageProblemKind::MissingContainer,
        "{problem}"
    );
}

#[test]
fn the_token_of_the_virtual_machine_is_used_and_kept() {
    let Some((_server, _proxy, mut place)) = google(Some(TOKEN)) else {
        return;
    };
    let target = "GET /computeMetadata/v1/instance/service-accounts/default/token";
    let metadata = FakeService::start();
    let token = format!("{{\"access_token\":\"{TOKEN}\",\"expires_in\":3599}}");
    metadata.set(
        target,
        Some(("metadata-flavor", "Google")),
        FakeReply::ok(token),
    );
    place.endpoints.metadata = Some(metadata.url.clone());
    store_record(place.open(FOLDER), 3);
    assert_eq!(metadata.requests(), [target]);
    check_record(&place.parts(FOLDER), 3);
}

/// Returns the key of a service account and the public key (DER).
fn service_account_key(home: &TempDir, token_uri: &str) -> Option<(String, Vec<u8>)> {
    let openssl = need("openssl")?;
    for args in [
        "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key.pem",
        "rsa -in key.pem -RSAPublicKey_out -outform DER -out public.der",
    ] {
        let mut command = Command::new(&openssl);
        let output = command
            .args(args.split(' '))
            .current_dir(home.path())
            .output();
        assert!(output.is_ok_and(|output| output.status.success()), "{args}");
    }
    let key = fs::read_to_string(home.join("key.pem")).expect("a key");
    let json = serde_json::json!({
        "type": "service_account",
        "client_email": "pegel@test",
        "private_key": key,
        "private_key_id": "k1",
        "token_uri": token_uri,
    });
    let public_key = fs::read(home.join("public.der")).expect("a key");
    Some((json.to_string(), public_key))
}

/// Whether a request for a token has an assertion that this key signed.
fn is_signed(request: &ReceivedRequest, public_key: &[u8]) -> bool {
    let body = String::from_utf8_lossy(&request.body).into_owned();
    let Some((_, assertion)) = body.split_once("assertion=") else {
        return false;
    };
    let Some((text, signature)) = assertion.rsplit_once('.') else {
        return false;
    };
    let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64");
    let claims = text.split('.').nth(1).expect("claims");
    let claims = URL_SAFE_NO_PAD.decode(claims).expect("base64");
    let claims: serde_json::Value = serde_json::from_slice(&claims).expect("JSON");
    assert_eq!(claims["iss"], "pegel@test");
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public_key);
    key.verify(text.as_bytes(), &signature).is_ok()
}

#[test]
fn a_service_account_exchanges_a_signed_assertion_for_a_token() {
    let Some((_server, _proxy, mut place)) = google(Some(TOKEN)) else {
        return;
    };
    let public_key = Arc::new(Mutex::new(Vec::new()));
    let (known, requests) = (public_key.clone(), Arc::new(Mutex::new(0)));
    let count = requests.clone();
    let tokens = LoopbackServer::start(move |request| {
        *count.lock() += 1;
        match is_signed(request, &known.lock()) {
            true => {
                let body = format!("{{\"access_token\":\"{TOKEN}\",\"expires_in\":3599}}");
                response(200, "", body.as_bytes())
            }
            false => response(400, "", b"{\"error\":\"invalid_grant\"}"),
        }
    });
    let home = TempDir::new();
    let token_uri = format!("{}/token", tokens.url);
    let Some((json, public)) = service_account_key(&home, &token_uri) else {
        return;
    };
    place.credentials.google_service_account = Some(json);
    let problem = place
        .open("x")
        .append(0, 0, b"x")
        .expect_err("an unknown key");
    assert_eq!(problem.kind, StorageProblemKind::Credentials, "{problem}");
    *public_key.lock() = public;
    store_record(place.open(FOLDER), 3);
    assert_eq!(*requests.lock(), 2);
    check_record(&place.parts(FOLDER), 3);
    put_file(
        &place.place,
        "b.tar",
        b"x",
        &place.credentials,
        &place.endpoints,
    )
    .expect("stored");
}
