//! The section `archive` of the configuration.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use pegel_config::{settings, text_setting};
use pegel_storage::{RecordPlace, RecordPlaceError, StorageEndpoints};

settings! {
    /// Where finished blocks are copied as Parquet files: docs/archive.md.
    pub struct ArchiveSettings {
        /// The place of the archive: file:///DIR, s3://BUCKET[/PREFIX],
        /// azblob://ACCOUNT/CONTAINER[/PREFIX] or gs://BUCKET[/PREFIX]. Without this key: no
        /// archive.
        to: Option<ArchivePlace> = None => "s3://bucket/pegel",
        /// Patterns with * and ? for the names of the metrics to archive. Without this key: all.
        names: Vec<String> = Vec::new(),
        /// A file with lines NAME=VALUE that has the credentials of the storage under the names of
        /// the environment, such as AWS_ACCESS_KEY_ID. It is read again after a failure. Without
        /// this key: the environment of the agent, or the identity of the machine.
        credentials_file: Option<PathBuf> = None => "/etc/pegel/archive.env",
        /// The URL of the storage, if it is not the provider's own.
        endpoint: Option<String> = None => "https://minio.example.org",
        /// The certificates of authorities (PEM) for `endpoint`. Without this key: those of the
        /// system.
        ca_file: Option<PathBuf> = None => "/etc/pegel/minio.pem",
    }
}

impl ArchiveSettings {
    pub fn is_configured(&self) -> bool {
        self.to.is_some()
    }

    pub(crate) fn endpoints(&self) -> StorageEndpoints {
        StorageEndpoints {
            endpoint: self.endpoint.clone(),
            metadata: None,
            ca_file: self.ca_file.clone(),
        }
    }
}

/// The place of an archive: a directory or a folder in an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivePlace(pub RecordPlace);

impl fmt::Display for ArchivePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ArchivePlace {
    type Err = RecordPlaceError;

    fn from_str(text: &str) -> Result<ArchivePlace, RecordPlaceError> {
        text.parse().map(ArchivePlace)
    }
}

text_setting!(
    ArchivePlace,
    "file:///DIR, s3://BUCKET[/PREFIX], azblob://ACCOUNT/CONTAINER[/PREFIX] or gs://BUCKET[/PREFIX]"
);
