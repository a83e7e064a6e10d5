//! S3 and servers with its protocol. Each block is an object, created only if there is none; S3
//! Express directory buckets take appends with the expected position, at most 10,000 per object.

mod bucket_settings;
mod express;
mod sigv4;

use jiff::Timestamp;

use super::encoding::encode_path;
use super::object_storage::{AppendReply, ObjectClient, removed_part};
use super::response::{StorageResponse, xml_values};
use super::server::{StorageRequest, StorageServer};
use super::{
    LIST_BYTES_MAX, LIST_PAGES_MAX, PartLimits, StorageCredentials, StorageEndpoints,
    StorageProblem, too_many_objects,
};
use bucket_settings::{default_url, region, signing_keys};
use express::ExpressSession;
use sigv4::{SigningKeys, UnsignedRequest};

const OBJECT_BYTES_MAX: u64 = 5 << 30;
const APPENDS_MAX: u32 = 10_000;

/// The objects of one folder in a bucket.
#[derive(Debug)]
pub(super) struct S3Folder {
    server: StorageServer,
    /// The path of the bucket; empty if the host names it.
    bucket: String,
    /// Ends with a slash, or is empty.
    folder: String,
    region: String,
    keys: SigningKeys,
    /// Of directory buckets.
    session: Option<ExpressSession>,
}

/// The parts of a request that differ.
#[derive(Default)]
struct S3Request<'a> {
    /// The object; without it, the request is for the bucket.
    name: Option<&'a str>,
    query: Vec<(&'static str, String)>,
    headers: Vec<(&'static str, String)>,
    body: &'a [u8],
    bytes_max: u64,
}

impl S3Folder {
    pub(super) fn new(
        (bucket, prefix): (&str, &str),
        is_directory_bucket: bool,
        label: String,
        credentials: &StorageCredentials,
        endpoints: &StorageEndpoints,
    ) -> Result<S3Folder, StorageProblem> {
        let region = region(&label, credentials, endpoints)?;
        let url = endpoints.server_url(&default_url(bucket, is_directory_bucket, &region))?;
        // Only AWS has a host for each bucket. Its certificates do not cover names with dots.
        let is_in_host = endpoints.endpoint.is_none() && !bucket.contains('.');
        let bucket_path = match is_in_host {
            true => String::new(),
            false => format!("{}/{bucket}", url.path),
        };
        Ok(S3Folder {
            keys: signing_keys(&label, credentials)?,
            server: StorageServer::new(url, endpoints.ca_file.clone(), label),
            bucket: bucket_path,
            folder: super::folder_of(prefix),
            region,
            session: is_directory_bucket.then(ExpressSession::default),
        })
    }

    fn send(
        &mut self,
        operation: &'static str,
        method: &'static str,
        request: S3Request<'_>,
    ) -> Result<StorageResponse, StorageProblem> {
        let (keys, service) = match &mut self.session {
            None => (self.keys.clone(), "s3"),
            Some(session) => {
                let (server, region) = (&mut self.server, &self.region);
                let keys = session.keys(server, &self.bucket, region, &self.keys)?;
                (keys, "s3express")
            }
        };
        let object = request.name.map(|name| format!("{}{name}", self.folder));
        let path = format!(
            "{}/{}",
            self.bucket,
            encode_path(&object.unwrap_or_default())
        );
        let scope = (self.region.as_str(), service);
        let response = send_signed(
            &mut self.server,
            operation,
            (&keys, scope),
            &path,
            method,
            request,
        )?;
        if let (401 | 403, Some(session)) = (response.status, &mut self.session) {
            session.discard();
        }
        Ok(response)
    }

    fn problem(&self, operation: &str, response: &StorageResponse) -> StorageProblem {
        response.problem(self.server.label(), operation)
    }

    fn get(
        &mut self,
        name: &str,
        headers: Vec<(&'static str, String)>,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, StorageProblem> {
        let request = S3Request {
            name: Some(name),
            headers,
            bytes_max,
            ..S3Request::default()
        };
        let response = self.send("GetObject", "GET", request)?;
        match response.status {
            200 | 206 => Ok(Some(response.body)),
            404 if response.has_code("NoSuchKey") => Ok(None),
            _ => Err(self.problem("GetObject", &response)),
        }
    }

    fn put_with(
        &mut self,
        name: &str,
        header: Option<(&'static str, String)>,
        body: &[u8],
    ) -> Result<StorageResponse, StorageProblem> {
        let request = S3Request {
            name: Some(name),
            headers: header.into_iter().collect(),
            body,
            bytes_max: super::REPLY_BYTES_MAX,
            ..S3Request::default()
        };
        self.send("PutObject", "PUT", request)
    }
}

impl ObjectClient for S3Folder {
    fn label(&self) -> &str {
        self.server.label()
    }

    fn part_limits(&self) -> PartLimits {
        PartLimits {
            bytes: OBJECT_BYTES_MAX,
            blocks: match self.session {
                Some(_) => APPENDS_MAX,
                None => 1,
            },
        }
    }

    fn append(
        &mut self,
        name: &str,
        position: u64,
        block: &[u8],
    ) -> Result<AppendReply, StorageProblem> {
        let condition = match position {
            0 => ("if-none-match", "*".to_owned()),
            _ => ("x-amz-write-offset-bytes", position.to_string()),
        };
        let response = self.put_with(name, Some(condition), block)?;
        let code = response.error_code().unwrap_or_default();
        match (response.status, code.as_str()) {
            (200, _) => Ok(AppendReply::Appended),
            (412, _) | (400, "InvalidWriteOffset") => Ok(AppendReply::Mismatch),
            (400, "TooManyParts") => Ok(AppendReply::Full),
            (404, "NoSuchKey") => Err(removed_part(self.server.label(), name)),
            _ => Err(self.problem("PutObject", &response)),
        }
    }

    fn length(&mut self, name: &str) -> Result<Option<u64>, StorageProblem> {
        let request = S3Request {
            name: Some(name),
            ..S3Request::default()
        };
        let response = self.send("HeadObject", "HEAD", request)?;
        match response.status {
            200 => Ok(response.number_header("content-length")),
            404 => Ok(None),
            _ => Err(self.problem("HeadObject", &response)),
        }
    }

    fn read_range(
        &mut self,
        name: &str,
        start: u64,
        bytes: u64,
    ) -> Result<Option<Vec<u8>>, StorageProblem> {
        let range = super::range_header(start, bytes);
        self.get(name, vec![("range", range)], bytes)
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, StorageProblem> {
        self.get(name, Vec::new(), bytes_max)
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), StorageProblem> {
        let response = self.put_with(name, None, bytes)?;
        match response.status {
            200 => Ok(()),
            _ => Err(self.problem("PutObject", &response)),
        }
    }

    fn delete(&mut self, name: &str) -> Result<(), StorageProblem> {
        let request = S3Request {
            name: Some(name),
            ..S3Request::default()
        };
        let response = self.send("DeleteObject", "DELETE", request)?;
        match response.status {
            200 | 204 => Ok(()),
            404 if response.has_code("NoSuchKey") => Ok(()),
            _ => Err(self.problem("DeleteObject", &response)),
        }
    }

    fn list(&mut self) -> Result<Vec<String>, StorageProblem> {
        let (mut names, mut next) = (Vec::new(), None);
        for _ in 0..LIST_PAGES_MAX {
            let mut query = Vec::new();
            query.extend(next.take().map(|token| ("continuation-token", token)));
            query.push(("list-type", "2".to_owned()));
            query.push(("prefix", self.folder.clone()));
            let request = S3Request {
                query,
                bytes_max: LIST_BYTES_MAX,
                ..S3Request::default()
            };
            let response = self.send("ListObjectsV2", "GET", request)?;
            if response.status != 200 {
                return Err(self.problem("ListObjectsV2", &response));
            }
            let found = xml_values(&response.body, "Key").into_iter();
            names.extend(found.filter_map(|name| super::name_in(&self.folder, &name)));
            next = xml_values(&response.body, "NextContinuationToken").pop();
            if next.is_none() {
                return Ok(names);
            }
        }
        Err(too_many_objects(self.server.label()))
    }
}

fn send_signed(
    server: &mut StorageServer,
    operation: &'static str,
    (keys, scope): (&SigningKeys, (&str, &str)),
    path: &str,
    method: &'static str,
    request: S3Request<'_>,
) -> Result<StorageResponse, StorageProblem> {
    let unsigned = UnsignedRequest {
        method,
        host: server.url.host_header(),
        path,
        query: &request.query,
        headers: request.headers,
        body: request.body,
    };
    let target = match unsigned.query_text() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    };
    let headers = unsigned.sign(keys, scope, Timestamp::now());
    server.send(&StorageRequest {
        operation,
        method,
        target,
        headers,
        body: request.body,
        bytes_max: request.bytes_max,
    })
}
