//! Appends to S3 Express directory buckets. No server here implements them: this one follows the
//! documentation of `PutObject` and `CreateSession`.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pegel_session::storage::{
    AppendOutcome, PartConflict, StorageCredentials, StorageProblemKind, part_name,
};

use crate::loopback_server::{LoopbackServer, ReceivedRequest, response};
use crate::stored_record::{FOLDER, TestPlace, check_record, store_record};

const BUCKET: &str = "/fast--use1-az4--x-s3";

#[derive(Debug, Default)]
struct ExpressBucket {
    objects: BTreeMap<String, Vec<u8>>,
    /// The number of writes of each object.
    writes: BTreeMap<String, u32>,
    sessions: u32,
}

fn error(status: u16, code: &str) -> Option<Vec<u8>> {
    response(
        status,
        "",
        format!("<Error><Code>{code}</Code></Error>").as_bytes(),
    )
}

impl ExpressBucket {
    fn answer(&mut self, request: &ReceivedRequest, writes_max: u32) -> Option<Vec<u8>> {
        let authorization = request.header("authorization").unwrap_or_default();
        if !authorization.contains("/us-east-1/s3express/aws4_request") {
            return error(403, "AccessDenied");
        }
        if request.target == format!("{BUCKET}/?session=") {
            let mode = request.header("x-amz-create-session-mode");
            if mode != Some("ReadWrite") || !authorization.contains("Credential=PLANTED-ID/") {
                return error(403, "AccessDenied");
            }
            self.sessions += 1;
            let number = self.sessions;
            let body = format!(
                "<CreateSessionResult><Credentials><SessionToken>token-{number}</SessionToken>\
                 <SecretAccessKey>secret</SecretAccessKey><AccessKeyId>session-id</AccessKeyId>\
                 <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></CreateSessionResult>"
            );
            return response(200, "", body.as_bytes());
        }
        let is_session = authorization.contains("Credential=session-id/")
            && authorization.contains("x-amz-s3session-token");
        let token = request.header("x-amz-s3session-token");
        if !is_session || token != Some(&format!("token-{}", self.sessions)) {
            return error(403, "InvalidToken");
        }
        let key = request
            .path()
            .strip_prefix(&format!("{BUCKET}/"))?
            .to_owned();
        match request.method.as_str() {
            "PUT" => self.put(key, request, writes_max),
            "GET" if key.is_empty() => {
                let keys = self.objects.keys().map(|key| format!("<Key>{key}</Key>"));
                response(
                    200,
                    "",
                    keys.collect::<String>()
                        .replace("%2B", "+")
                        .replace("%40", "@")
                        .as_bytes(),
                )
            }
            "HEAD" => match self.objects.get(&key) {
                Some(object) => {
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                        object.len()
                    );
                    Some(head.into_bytes())
                }
                None => error(404, "NoSuchKey"),
            },
            "GET" => {
                let Some(object) = self.objects.get(&key) else {
                    return error(404, "NoSuchKey");
                };
                let Some(range) = request.header("range") else {
                    return response(200, "", object);
                };
                let (start, end) = range.strip_prefix("bytes=")?.split_once('-')?;
                let (start, end): (usize, usize) = (start.parse().ok()?, end.parse().ok()?);
                response(206, "", object.get(start..=end)?)
            }
            _ => error(405, "MethodNotAllowed"),
        }
    }

    fn put(&mut self, key: String, request: &ReceivedRequest, writes_max: u32) -> Option<Vec<u8>> {
        let exists = self.objects.contains_key(&key);
        if request.header("if-none-match") == Some("*") && exists {
            return error(412, "PreconditionFailed");
        }
        let Some(offset) = request.header("x-amz-write-offset-bytes") else {
            self.objects.insert(key.clone(), request.body.clone());
            self.writes.insert(key, 1);
            return response(200, "", b"");
        };
        if !exists {
            return error(404, "NoSuchKey");
        }
        let object = self.objects.entry(key.clone()).or_default();
        if offset.parse() != Ok(object.len()) {
            return error(400, "InvalidWriteOffset");
        }
        let writes = self.writes.entry(key).or_default();
        if *writes >= writes_max {
            return error(400, "TooManyParts");
        }
        *writes += 1;
        object.extend_from_slice(&request.body);
        response(200, "", b"")
    }
}

fn express(writes_max: u32) -> (LoopbackServer, Arc<Mutex<ExpressBucket>>, TestPlace) {
    let bucket = Arc::new(Mutex::new(ExpressBucket::default()));
    let served = bucket.clone();
    let server = LoopbackServer::start(move |request| served.lock().answer(request, writes_max));
    let credentials = StorageCredentials {
        aws_access_key_id: Some("PLANTED-ID".to_owned()),
        aws_secret_access_key: Some("PLANTED-SECRET".to_owned()),
        aws_region: Some("us-east-1".to_owned()),
        ..StorageCredentials::default()
    };
    let place = TestPlace::new("s3://fast--use1-az4--x-s3", credentials, &server.url);
    (server, bucket, place)
}

#[test]
fn a_thousand_appends_arrive_once_each_through_a_proxy_that_drops() {
    let (server, bucket, place) = express(10_000);
    let proxy = LoopbackServer::dropping_proxy(&server.url);
    store_record(place.behind(&proxy.url).open(FOLDER), 1000);
    let parts = place.parts(FOLDER);
    assert_eq!(parts.len(), 1);
    check_record(&parts, 1000);
    let bucket = bucket.lock();
    let writes: u32 = bucket.writes.values().sum();
    // 1,000 blocks, the end and the summary, each once; the summary may be written again.
    assert!((1002..1010).contains(&writes), "{writes}");
    assert!(
        bucket
            .objects
            .keys()
            .any(|key| key.ends_with("/summary.json"))
    );
}

#[test]
fn an_object_that_takes_no_more_appends_is_continued_in_the_next_part() {
    let (_server, _bucket, place) = express(4);
    store_record(place.open(FOLDER), 9);
    let parts = place.parts(FOLDER);
    let numbers: Vec<u32> = parts.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2]);
    check_record(&parts, 9);
    assert_eq!(place.open(FOLDER).part_limits().blocks, 10_000);
}

#[test]
fn second_writers_rejected_sessions_and_removed_objects_are_reported() {
    let (_server, bucket, place) = express(4);
    let (mut first, mut second) = (place.open(FOLDER), place.open(FOLDER));
    assert_eq!(
        first.append(0, 0, b"block").expect("stored"),
        AppendOutcome::Stored
    );
    let refused = second.append(0, 0, b"other").expect("compared");
    let other = AppendOutcome::Conflict(PartConflict::OtherContent { bytes: 5 });
    assert_eq!(refused, other);
    // The server accepts only the latest session: the first writer creates another one.
    let problem = first.append(0, 5, b"+").expect_err("an old session");
    assert_eq!(problem.kind, StorageProblemKind::Credentials);
    assert_eq!(
        first.append(0, 5, b"+").expect("stored"),
        AppendOutcome::Stored
    );
    let again = AppendOutcome::Conflict(PartConflict::AlreadyStored);
    assert_eq!(first.append(0, 5, b"+").expect("compared"), again);
    bucket
        .lock()
        .objects
        .retain(|key, _| !key.ends_with(&part_name(0)));
    let problem = first.append(0, 6, b"+").expect_err("removed");
    assert_eq!(problem.kind, StorageProblemKind::MissingContainer);
    assert!(
        problem.text.ends_with("record-00000.pgl was removed"),
        "{problem}"
    );
}
