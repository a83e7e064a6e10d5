//! The credentials of storage, and the addresses of its servers.

use std::fmt;
use std::path::{Path, PathBuf};

use pegel_http_client::ServerUrl;
use serde::{Deserialize, Serialize};

use super::{RecordPlace, StorageProblem, StorageProblemKind};

/// The most bytes of the key file of a Google service account; they have about 2,300.
const KEY_FILE_BYTES_MAX: u64 = 64 << 10;

/// Looks up a variable of an environment.
pub type CredentialVariables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Credentials for storage of every kind. They are serialized to be kept in a file with mode 0600;
/// `Debug` only shows which are set.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StorageCredentials {
    /// The storage account that the key or the SAS token belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_account: Option<String>,
    /// A shared key, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_sas_token: Option<String>,
    /// The client ID of a user-assigned managed identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_client_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_access_key_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_secret_access_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_session_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_region: Option<String>,
    /// The content of the key file of a service account: JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub google_service_account: Option<String>,
}

impl StorageCredentials {
    /// Reads the variables that the tools of the providers use. The key file that a variable names
    /// is read, because it may be deleted before the record continues after a restart.
    pub fn from_environment(
        environment: CredentialVariables<'_>,
    ) -> Result<StorageCredentials, StorageProblem> {
        let variable = |name: &str| {
            let value = environment(name)?;
            let value = value.trim();
            (!value.is_empty()).then(|| value.to_owned())
        };
        let google = ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_APPLICATION_CREDENTIALS"];
        let google = google
            .iter()
            .find_map(|name| Some((*name, variable(name)?)));
        let sas_token = variable("AZURE_STORAGE_SAS_TOKEN");
        Ok(StorageCredentials {
            azure_account: variable("AZURE_STORAGE_ACCOUNT"),
            azure_key: variable("AZURE_STORAGE_KEY"),
            azure_sas_token: sas_token.map(|token| token.trim_start_matches('?').to_owned()),
            azure_client_id: variable("AZURE_CLIENT_ID"),
            aws_access_key_id: variable("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key: variable("AWS_SECRET_ACCESS_KEY"),
            aws_session_token: variable("AWS_SESSION_TOKEN"),
            aws_region: variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION")),
            google_service_account: match google {
                Some((name, value)) => Some(service_account_json(name, value)?),
                None => None,
            },
        })
    }

    /// Returns only what a place of this kind requires.
    pub fn for_place(&self, place: &RecordPlace) -> StorageCredentials {
        let all = self.clone();
        let none = StorageCredentials::default();
        match place {
            RecordPlace::AzureBlob { .. } => StorageCredentials {
                azure_account: all.azure_account,
                azure_key: all.azure_key,
                azure_sas_token: all.azure_sas_token,
                azure_client_id: all.azure_client_id,
                ..none
            },
            RecordPlace::S3 { .. } => StorageCredentials {
                aws_access_key_id: all.aws_access_key_id,
                aws_secret_access_key: all.aws_secret_access_key,
                aws_session_token: all.aws_session_token,
                aws_region: all.aws_region,
                ..none
            },
            RecordPlace::Google { .. } => StorageCredentials {
                google_service_account: all.google_service_account,
                ..none
            },
            RecordPlace::Directory(_) => none,
        }
    }
}

/// Returns the key file that a variable contains or names.
fn service_account_json(variable: &str, value: String) -> Result<String, StorageProblem> {
    if value.starts_with('{') {
        return Ok(value);
    }
    let unusable = |problem: &str| {
        let text = format!("{variable}: cannot use {value}: {problem}");
        StorageProblem::new(StorageProblemKind::Credentials, text)
    };
    let bytes = pegel_plain_file::read_plain(Path::new(&value), KEY_FILE_BYTES_MAX)
        .map_err(|error| unusable(&error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| unusable("not UTF-8"))
}

impl fmt::Debug for StorageCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secrets = [
            ("azure_key", &self.azure_key),
            ("azure_sas_token", &self.azure_sas_token),
            ("aws_access_key_id", &self.aws_access_key_id),
            ("aws_secret_access_key", &self.aws_secret_access_key),
            ("aws_session_token", &self.aws_session_token),
            ("google_service_account", &self.google_service_account),
        ];
        let names = secrets.iter().filter(|(_, value)| value.is_some());
        let names: Vec<&str> = names.map(|(name, _)| *name).collect();
        f.debug_struct("StorageCredentials")
            .field("azure_account", &self.azure_account)
            .field("azure_client_id", &self.azure_client_id)
            .field("aws_region", &self.aws_region)
            .field("set", &names)
            .finish()
    }
}

/// Addresses that replace those of the providers.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StorageEndpoints {
    /// The URL of the storage: an emulator, a server with the same protocol, a private endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The URL of the metadata service that issues tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    /// The certificates of authorities (PEM) for `endpoint`; without it, those of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
}

impl StorageEndpoints {
    /// Returns `endpoint`, or `default` if there is none.
    pub(super) fn server_url(&self, default: &str) -> Result<ServerUrl, StorageProblem> {
        parse_url("endpoint", self.endpoint.as_deref().unwrap_or(default))
    }

    pub(super) fn metadata_url(&self, default: &str) -> Result<ServerUrl, StorageProblem> {
        // The variable that the snapshot of the machine obeys too.
        let variable = std::env::var("PEGEL_IMDS_URL").ok();
        let variable = variable.as_deref().filter(|url| !url.is_empty());
        let url = self.metadata.as_deref().or(variable).unwrap_or(default);
        if url == "none" {
            return Err(StorageProblem::new(
                StorageProblemKind::Credentials,
                "there are no credentials, and PEGEL_IMDS_URL=none disables the metadata service",
            ));
        }
        parse_url("address of the metadata service", url)
    }
}

fn parse_url(what: &str, url: &str) -> Result<ServerUrl, StorageProblem> {
    let invalid = |problem: &str| {
        let text = format!("invalid {what}: {problem}; expected http[s]://HOST[:PORT][/PATH]");
        StorageProblem::new(StorageProblemKind::Rejected, text)
    };
    let mut url: ServerUrl = url.parse().map_err(|problem: String| invalid(&problem))?;
    if url.path.contains('?') {
        return Err(invalid("the URL has a query string"));
    }
    url.path.truncate(url.path.trim_end_matches('/').len());
    Ok(url)
}

impl fmt::Debug for StorageEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A URL that is not accepted may contain a password.
        let shown = |url: &Option<String>| {
            let url = url.as_deref()?;
            Some(url.parse::<ServerUrl>().map_err(|_| "invalid URL"))
        };
        f.debug_struct("StorageEndpoints")
            .field("endpoint", &shown(&self.endpoint))
            .field("metadata", &shown(&self.metadata))
            .field("ca_file", &self.ca_file)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_and_never_shown() {
        let environment = |name: &str| {
            let value = match name {
                "AZURE_STORAGE_SAS_TOKEN" => "?sv=1&sig=PLANTED",
                "AZURE_STORAGE_ACCOUNT" => "acct",
                "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => "PLANTED",
                "AWS_DEFAULT_REGION" => " eu-west-1 ",
                "GOOGLE_SERVICE_ACCOUNT" => "{\"private_key\":\"PLANTED\"}",
                "AZURE_STORAGE_KEY" => "",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let credentials = StorageCredentials::from_environment(&environment).expect("read");
        assert_eq!(
            credentials.azure_sas_token.as_deref(),
            Some("sv=1&sig=PLANTED")
        );
        assert_eq!(credentials.azure_key, None);
        assert_eq!(credentials.aws_region.as_deref(), Some("eu-west-1"));
        assert!(!format!("{credentials:?}").contains("PLANTED"));
        let json = serde_json::to_string(&credentials).expect("JSON");
        let read: StorageCredentials = serde_json::from_str(&json).expect("credentials");
        assert_eq!(read, credentials);
        let place = "s3://bucket".parse().expect("a place");
        let only_aws = credentials.for_place(&place);
        assert_eq!(
            (only_aws.azure_sas_token, only_aws.google_service_account),
            (None, None)
        );
        assert_eq!(only_aws.aws_access_key_id, credentials.aws_access_key_id);
    }

    #[test]
    fn a_key_file_is_read_and_a_missing_one_is_reported() {
        let path = std::env::temp_dir().join(format!("pegel-key-file-{}", std::process::id()));
        std::fs::write(&path, "{}").expect("written");
        let read = |name: &str| {
            let is_google = name == "GOOGLE_APPLICATION_CREDENTIALS";
            is_google.then(|| path.to_str().expect("UTF-8").to_owned())
        };
        let credentials = StorageCredentials::from_environment(&read).expect("read");
        assert_eq!(credentials.google_service_account.as_deref(), Some("{}"));
        std::fs::remove_file(&path).expect("removed");
        let problem = StorageCredentials::from_environment(&read).expect_err("no file");
        assert_eq!(problem.kind, StorageProblemKind::Credentials);
        assert!(
            problem.text.starts_with("GOOGLE_APPLICATION_CREDENTIALS: "),
            "{problem}"
        );
    }

    #[test]
    fn endpoints_with_secrets_are_rejected_and_not_shown() {
        for url in ["http://u:PLANTED@h", "http://h/?sig=PLANTED", "h/PLANTED"] {
            let endpoints = StorageEndpoints {
                endpoint: Some(url.to_owned()),
                ..StorageEndpoints::default()
            };
            let problem = endpoints.server_url("http://h").expect_err(url);
            assert!(
                !format!("{problem:?} {endpoints:?}").contains("PLANTED"),
                "{url}"
            );
        }
    }
}
