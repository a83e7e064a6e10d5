//! Azure append blobs. An append carries the expected position, so that it cannot be executed
//! twice; a blob has at most 50,000 blocks.

mod authorization;

use super::encoding::{encode_component, encode_path};
use super::object_storage::{AppendReply, ObjectClient, removed_part};
use super::response::{StorageResponse, xml_values};
use super::server::{StorageRequest, StorageServer};
use super::{
    LIST_BYTES_MAX, LIST_PAGES_MAX, PartLimits, StorageCredentials, StorageEndpoints,
    StorageProblem, too_many_objects,
};
use authorization::{AzureAuthorization, AzureRequest};

/// Blocks of append blobs may have 100 MiB since 2022-11-02, before 4 MiB.
const BLOCKS_MAX: u32 = 50_000;
const BLOB_BYTES_MAX: u64 = 1 << 37;

/// The blobs of one folder in a container.
#[derive(Debug)]
pub(super) struct AzureFolder {
    server: StorageServer,
    account: String,
    /// The encoded path of the container.
    container: String,
    /// Ends with a slash, or is empty.
    folder: String,
    authorization: AzureAuthorization,
}

impl AzureFolder {
    pub(super) fn new(
        (account, container, prefix): (&str, &str, &str),
        label: String,
        credentials: &StorageCredentials,
        endpoints: &StorageEndpoints,
    ) -> Result<AzureFolder, StorageProblem> {
        let url = endpoints.server_url(&format!("https://{account}.blob.core.windows.net"))?;
        // Emulators have the account in the path instead of the host.
        let is_in_host = url.host.split('.').next() == Some(account);
        let account_path = match is_in_host || url.path.ends_with(&format!("/{account}")) {
            true => url.path.clone(),
            false => format!("{}/{account}", url.path),
        };
        let server = StorageServer::new(url, endpoints.ca_file.clone(), label);
        Ok(AzureFolder {
            authorization: AzureAuthorization::new(account, &server, credentials, endpoints)?,
            server,
            account: account.to_owned(),
            container: format!("{account_path}/{container}"),
            folder: super::folder_of(prefix),
        })
    }

    fn send(
        &mut self,
        operation: &'static str,
        name: Option<&str>,
        request: AzureRequest<'_>,
        bytes_max: u64,
    ) -> Result<StorageResponse, StorageProblem> {
        let mut path = self.container.clone();
        if let Some(name) = name {
            path.push('/');
            path.push_str(&encode_path(&format!("{}{name}", self.folder)));
        }
        let authorized = self
            .authorization
            .authorize(&self.account, &path, &request)?;
        let response = self.server.send(&StorageRequest {
            operation,
            method: request.method,
            target: authorized.target,
            headers: authorized.headers,
            body: request.body,
            bytes_max,
        })?;
        if response.status == 401 {
            self.authorization.forget_token();
        }
        Ok(response)
    }

    fn problem(&self, operation: &str, response: &StorageResponse) -> StorageProblem {
        response.problem(self.server.label(), operation)
    }

    /// Creates an empty append blob unless there is one.
    fn create(&mut self, name: &str) -> Result<(), StorageProblem> {
        let request = AzureRequest {
            headers: vec![
                ("If-None-Match", "*".to_owned()),
                ("x-ms-blob-type", "AppendBlob".to_owned()),
            ],
            ..AzureRequest::new("PUT")
        };
        let response = self.send("Put Blob", Some(name), request, 0)?;
        match response.status {
            201 => Ok(()),
            409 | 412 if response.has_code("BlobAlreadyExists") => Ok(()),
            _ => Err(self.problem("Put Blob", &response)),
        }
    }

    fn get(
        &mut self,
        name: &str,
        headers: Vec<(&'static str, String)>,
        bytes_max: u64,
    ) -> Result<Option<Vec<u8>>, StorageProblem> {
        let request = AzureRequest {
            headers,
            ..AzureRequest::new("GET")
        };
        let response = self.send("Get Blob", Some(name), request, bytes_max)?;
        match response.status {
            200 | 206 => Ok(Some(response.body)),
            404 if response.has_code("BlobNotFound") => Ok(None),
            _ => Err(self.problem("Get Blob", &response)),
        }
    }
}

impl ObjectClient for AzureFolder {
    fn label(&self) -> &str {
        self.server.label()
    }

    fn part_limits(&self) -> PartLimits {
        PartLimits {
            bytes: BLOB_BYTES_MAX,
            blocks: BLOCKS_MAX,
        }
    }

    fn append(
        &mut self,
        name: &str,
        position: u64,
        block: &[u8],
    ) -> Result<AppendReply, StorageProblem> {
        if position == 0 {
            self.create(name)?;
        }
        let request = AzureRequest {
            query: vec![("comp", "appendblock".to_owned())],
            headers: vec![("x-ms-blob-condition-appendpos", position.to_string())],
            body: block,
            ..AzureRequest::new("PUT")
        };
        let response = self.send("Append Block", Some(name), request, 0)?;
        let code = response.error_code().unwrap_or_default();
        match (response.status, code.as_str()) {
            (201, _) => Ok(AppendReply::Appended),
            (412, "AppendPositionConditionNotMet") | (409, "InvalidBlobType") => {
                Ok(AppendReply::Mismatch)
            }
            (409, "BlockCountExceedsLimit") => Ok(AppendReply::Full),
            (404, "BlobNotFound") => Err(removed_part(self.server.label(), name)),
            _ => Err(self.problem("Append Block", &response)),
        }
    }

    fn length(&mut self, name: &str) -> Result<Option<u64>, StorageProblem> {
        let operation = "Get Blob Properties";
        let response = self.send(operation, Some(name), AzureRequest::new("HEAD"), 0)?;
        match response.status {
            200 => Ok(response.number_header("content-length")),
            404 if response.has_code("BlobNotFound") => Ok(None),
            _ => Err(self.problem(operation, &response)),
        }
    }

    fn read_range(
        &mut self,
        name: &str,
        start: u64,
        bytes: u64,
    ) -> Result<Option<Vec<u8>>, StorageProblem> {
        let range = super::range_header(start, bytes);
        self.get(name, vec![("x-ms-range", range)], bytes)
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, StorageProblem> {
        self.get(name, Vec::new(), bytes_max)
    }

    fn put(&mut self, name: &str, bytes: &[u8]) -> Result<(), StorageProblem> {
        let request = AzureRequest {
            headers: vec![("x-ms-blob-type", "BlockBlob".to_owned())],
            body: bytes,
            ..AzureRequest::new("PUT")
        };
        let response = self.send("Put Blob", Some(name), request, 0)?;
        match response.status {
            201 => Ok(()),
            _ => Err(self.problem("Put Blob", &response)),
        }
    }

    fn put_new(&mut self, name: &str, bytes: &[u8]) -> Result<bool, StorageProblem> {
        let request = AzureRequest {
            headers: vec![
                ("If-None-Match", "*".to_owned()),
                ("x-ms-blob-type", "BlockBlob".to_owned()),
            ],
            body: bytes,
            ..AzureRequest::new("PUT")
        };
        let response = self.send("Put Blob", Some(name), request, 0)?;
        match response.status {
            201 => Ok(true),
            409 | 412 if response.has_code("BlobAlreadyExists") => Ok(false),
            _ => Err(self.problem("Put Blob", &response)),
        }
    }

    fn delete(&mut self, name: &str) -> Result<(), StorageProblem> {
        let response = self.send("Delete Blob", Some(name), AzureRequest::new("DELETE"), 0)?;
        match response.status {
            202 => Ok(()),
            404 if response.has_code("BlobNotFound") => Ok(()),
            _ => Err(self.problem("Delete Blob", &response)),
        }
    }

    fn list(&mut self) -> Result<Vec<String>, StorageProblem> {
        let (mut names, mut marker) = (Vec::new(), String::new());
        for _ in 0..LIST_PAGES_MAX {
            let request = AzureRequest {
                query: vec![
                    ("comp", "list".to_owned()),
                    ("marker", marker.clone()),
                    ("prefix", self.folder.clone()),
                    ("restype", "container".to_owned()),
                ],
                ..AzureRequest::new("GET")
            };
            let response = self.send("List Blobs", None, request, LIST_BYTES_MAX)?;
            if response.status != 200 {
                return Err(self.problem("List Blobs", &response));
            }
            let found = xml_values(&response.body, "Name").into_iter();
            names.extend(found.filter_map(|name| super::name_in(&self.folder, &name)));
            marker = match xml_values(&response.body, "NextMarker").pop() {
                Some(next) if !next.is_empty() => next,
                _ => return Ok(names),
            };
        }
        Err(too_many_objects(self.server.label()))
    }
}

/// Returns the query of a request; the names need no encoding.
fn query_text(query: &[(&'static str, String)]) -> String {
    let pairs = query.iter().filter(|(_, value)| !value.is_empty());
    let pairs = pairs.map(|(name, value)| format!("{name}={}", encode_component(value)));
    pairs.collect::<Vec<String>>().join("&")
}
