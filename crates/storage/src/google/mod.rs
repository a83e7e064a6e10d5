//! Google Cloud Storage, through its JSON interface. Each block is an object, created only if there
//! is none (generation 0).

mod service_account;

use serde::Deserialize;

use super::encoding::encode_component;
use super::object_storage::{AppendReply, ObjectClient};
use super::response::StorageResponse;
use super::server::{StorageRequest, StorageServer};
use super::token::MetadataTokens;
use super::{
    LIST_BYTES_MAX, LIST_PAGES_MAX, PartLimits, REPLY_BYTES_MAX, StorageCredentials,
    StorageEndpoints, StorageProblem, StorageProblemKind, too_many_objects,
};
use service_account::ServiceAccount;

const GOOGLE_URL: &str = "https://storage.googleapis.com";
const METADATA_URL: &str = "http://169.254.169.254";
const TOKEN_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
const OBJECT_BYTES_MAX: u64 = 5 << 30;

/// The objects of one folder in a bucket.
#[derive(Debug)]
pub(super) struct GoogleFolder {
    server: StorageServer,
    bucket: String,
    /// Ends with a slash, or is empty.
    folder: String,
    authorization: GoogleAuthorization,
}

#[derive(Debug)]
enum GoogleAuthorization {
    Account(Box<ServiceAccount>),
    /// The service account of the virtual machine.
    Metadata(Box<MetadataTokens>),
    /// An emulator.
    None,
}

#[derive(Deserialize)]
struct GoogleObject {
    #[serde(default)]
    name: String,
    /// A number as a string.
    #[serde(default)]
    size: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GoogleObjectList {
    #[serde(default)]
    items: Vec<GoogleObject>,
    next_page_token: Option<String>,
}

/// The parts of a request that differ.
struct GoogleRequest<'a> {
    operation: &'static str,
    method: &'static str,
    /// Path and query after the path of the endpoint.
    target: String,
    range: Option<String>,
    body: &'a [u8],
    bytes_max: u64,
}

impl<'a> GoogleRequest<'a> {
    fn new(operation: &'static str, method: &'static str, target: String) -> GoogleRequest<'a> {
        GoogleRequest {
            operation,
            method,
            target,
            range: None,
            body: &[],
            bytes_max: REPLY_BYTES_MAX,
        }
    }
}

impl GoogleFolder {
    pub(super) fn new(
        (bucket, prefix): (&str, &str),
        label: String,
        credentials: &StorageCredentials,
        endpoints: &StorageEndpoints,
    ) -> Result<GoogleFolder, StorageProblem> {
        let url = endpoints.server_url(GOOGLE_URL)?;
        let server = StorageServer::new(url, endpoints.ca_file.clone(), label);
        let authorization = match &credentials.google_service_account {
            Some(json) => {
                let account = ServiceAccount::parse(json, server.label())?;
                GoogleAuthorization::Account(Box::new(account))
            }
            None if endpoints.endpoint.is_some() && endpoints.metadata.is_none() => {
                GoogleAuthorization::None
            }
            None => GoogleAuthorization::Metadata(Box::new(MetadataTokens::new(
                StorageServer::metadata(endpoints.metadata_url(METADATA_URL)?),
                TOKEN_PATH,
                ("Metadata-Flavor", "Google"),
                "GOOGLE_APPLICATION_CREDENTIALS is",
            ))),
        };
        if !matches!(authorization, GoogleAuthorization::None) {
            server.check_confidential("a token")?;
        }
        Ok(GoogleFolder {
            server,
            bucket: bucket.to_owned(),
            folder: super::folder_of(prefix),
            authorization,
        })
    }

    fn send(&mut self, request: GoogleRequest<'_>) -> Result<StorageResponse, StorageProblem> {
        let token = match &mut self.authorization {
            GoogleAuthorization::Account(account) => Some(account.token()?),
            GoogleAuthorization::Metadata(tokens) => Some(tokens.token()?),
            GoogleAuthorization::None => None,
        };
        let token = token.map(|token| ("Authorization", format!("Bearer {token}")));
        let range = request.range.map(|range| ("Range", range));
        let content_type = ("Content-Type", "application/octet-stream".to_owned());
        let content_type = (request.method == "POST").then_some(content_type);
        let response = self.server.send(&StorageRequest {
            operation: request.operation,
            method: request.method,
            target: format!("{}{}", self.server.url.path, request.target),
            headers: [token, range, content_type].into_iter().flatten().collect(),
            body: request.body,
            bytes_max: request.bytes_max,
        })?;
        if response.status == 401 {
            match &mut self.authorization {
                GoogleAuthorization::Account(account) => account.discard(),
                GoogleAuthorization::Metadata(tokens) => tokens.discard(),
                GoogleAuthorization::None => {}
            }
        }
        Ok(response)
    }

    fn problem(&self, operation: &str, response: &StorageResponse) -> StorageProblem {
        response.problem(self.server.label(), operation)
    }

    /// Returns the path of an object.
    fn object(&self, name: &str) -> String {
        let name = encode_component(&format!("{}{name}", self.folder));
        format!("/storage/v1/b/{}/o/{name}", self.bucket)
    }

    fn upload(
        &mut self,
        name: &str,
        condition: &str,
        body: &[u8],
    ) -> Result<StorageResponse, StorageProblem> {
        let name = encode_component(&format!("{}{name}", self.folder));
        let target = format!(
            "/upload/storage/v1/b/{}/o?uploadType=media&name={name}{condition}",
            self.bucket
        );
        self.send(GoogleRequest {
            body,
            ..GoogleRequest::new("objects.insert", "POST", target)
        })
    }

    fn get(
        &mut self,
        name: &str,
        range: Option<String>,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, StorageProblem> {
        let target = format!("{}?alt=media", self.object(name));
        let response = self.send(GoogleRequest {
            range,
            bytes_max,
            ..GoogleRequest::new("objects.get", "GET", target)
        })?;
        match response.status {
            200 | 206 => Ok(Some(response.body)),
            404 => Ok(None),
            _ => Err(self.problem("objects.get", &response)),
        }
    }

    fn malformed(&self, operation: &str) -> StorageProblem {
        let text = format!("{}: malformed response to {operation}", self.server.label());
        StorageProblem::new(StorageProblemKind::ServerError, text)
    }
}

impl ObjectClient for GoogleFolder {
    fn label(&self) -> &str {
        self.server.label()
    }

    fn part_limits(&self) -> PartLimits {
        PartLimits {
            bytes: OBJECT_BYTES_MAX,
            blocks: 1,
        }
    }

    fn append(
        &mut self,
        name: &str,
        _position: u64,
        block: &[u8],
    ) -> Result<AppendReply, StorageProblem> {
        let response = self.upload(name, "&ifGenerationMatch=0", block)?;
        match response.status {
            200 => Ok(AppendReply::Appended),
            412 => Ok(AppendReply::Mismatch),
            _ => Err(self.problem("objects.insert", &response)),
        }
    }

    fn length(&mut self, name: &str) -> Result<Option<u64>, StorageProblem> {
        let request = GoogleRequest::new("objects.get", "GET", self.object(name));
        let response = self.send(request)?;
        match response.status {
            200 => {}
            404 => return Ok(None),
            _ => return Err(self.problem("objects.get", &response)),
        }
        let object: Option<GoogleObject> = serde_json::from_slice(&response.body).ok();
        let size = object.and_then(|object| object.size.parse().ok());
        Ok(Some(size.ok_or_else(|| self.malformed("objects.get"))?))
    }

    fn read_range(
        &mut self,
        name: &str,
        start: u64,
        bytes: u64,
    ) -> Result<Option<Vec<u8>>, StorageProblem> {
        self.get(name, Some(super::range_header(start, bytes)), bytes)
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, StorageProblem> {
        self.get(name, None, bytes_max)
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), StorageProblem> {
        let response = self.upload(name, "", bytes)?;
        match response.status {
            200 => Ok(()),
            _ => Err(self.problem("objects.insert", &response)),
        }
    }

    fn delete(&mut self, name: &str) -> Result<(), StorageProblem> {
        let request = GoogleRequest::new("objects.delete", "DELETE", self.object(name));
        let response = self.send(request)?;
        match response.status {
            200 | 204 | 404 => Ok(()),
            _ => Err(self.problem("objects.delete", &response)),
        }
    }

    fn list(&mut self) -> Result<Vec<String>, StorageProblem> {
        let (mut names, mut page) = (Vec::new(), String::new());
        for _ in 0..LIST_PAGES_MAX {
            let folder = encode_component(&self.folder);
            let target = format!("/storage/v1/b/{}/o?prefix={folder}{page}", self.bucket);
            let response = self.send(GoogleRequest {
                bytes_max: LIST_BYTES_MAX,
                ..GoogleRequest::new("objects.list", "GET", target)
            })?;
            if response.status != 200 {
                return Err(self.problem("objects.list", &response));
            }
            let list: Option<GoogleObjectList> = serde_json::from_slice(&response.body).ok();
            let list = list.ok_or_else(|| self.malformed("objects.list"))?;
            let found = list.items.iter();
            names.extend(found.filter_map(|item| super::name_in(&self.folder, &item.name)));
            match list.next_page_token {
                Some(token) => page = format!("&pageToken={}", encode_component(&token)),
                None => return Ok(names),
            }
        }
        Err(too_many_objects(self.server.label()))
    }
}
