//! How commands reach the storage of records: credentials and addresses from the environment.

use std::path::PathBuf;

use anyhow::bail;
use pegel_session::storage::{RecordPlace, StorageCredentials, StorageEndpoints};

use crate::command_error::CommandError;

/// Returns the credentials in the environment, as the tools of the providers name them.
pub(crate) fn credentials() -> anyhow::Result<StorageCredentials> {
    match StorageCredentials::from_environment(&|name| std::env::var(name).ok()) {
        Ok(credentials) => Ok(credentials),
        Err(error) => bail!("{error}"),
    }
}

/// Returns the addresses that replace those of the providers: `PEGEL_STORAGE_ENDPOINT`, and for it
/// `PEGEL_STORAGE_CA_FILE`.
pub(crate) fn endpoints() -> StorageEndpoints {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    StorageEndpoints {
        endpoint: variable("PEGEL_STORAGE_ENDPOINT"),
        metadata: None,
        ca_file: variable("PEGEL_STORAGE_CA_FILE").map(PathBuf::from),
    }
}

/// Parses a place. The text of an error does not contain the place: it may contain a secret.
pub(crate) fn parse_place(text: &str) -> anyhow::Result<RecordPlace> {
    let place = text.parse::<RecordPlace>();
    place.map_err(|error| CommandError::usage(error.to_string()))
}
