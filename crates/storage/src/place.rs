//! Places: the container, bucket or directory below which records are stored.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::part_number;

/// The suffix of the names of S3 Express directory buckets, whose objects can be appended to.
const DIRECTORY_BUCKET_SUFFIX: &str = "--x-s3";
/// The most bytes of a prefix. Names of objects have at most 1024 bytes, and the folder of a record
/// and the name of a part follow.
const PREFIX_BYTES_MAX: usize = 600;
const APPEND_INTERVAL: Duration = Duration::from_secs(10);
const OBJECT_INTERVAL: Duration = Duration::from_secs(60);

/// A place. It contains no secret: those are in [`super::StorageCredentials`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RecordPlace {
    AzureBlob {
        account: String,
        container: String,
        /// Empty, or names separated by slashes, as in the other places.
        prefix: String,
    },
    S3 {
        bucket: String,
        prefix: String,
    },
    Google {
        bucket: String,
        prefix: String,
    },
    Directory(PathBuf),
}

/// The reason why a text is not a place. The text is not shown: it may contain a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordPlaceError {
    #[error(
        "a place begins with azblob://, s3://, gs:// or file:///; accepted are \
         azblob://ACCOUNT/CONTAINER[/PREFIX], s3://BUCKET[/PREFIX], gs://BUCKET[/PREFIX] and \
         file:///DIR"
    )]
    Scheme,
    #[error("a path is not a place; did you mean file:// and this path, as in file:///DIR?")]
    Path,
    #[error(
        "a place has no query string; pass a SAS token in the variable AZURE_STORAGE_SAS_TOKEN"
    )]
    Query,
    #[error(
        "a place has no user name or password; pass credentials in variables such as \
         AZURE_STORAGE_KEY or AWS_SECRET_ACCESS_KEY"
    )]
    UserInfo,
    #[error("the place has no container; expected azblob://ACCOUNT/CONTAINER[/PREFIX]")]
    NoContainer,
    #[error("invalid {0}; expected {1}")]
    Name(&'static str, &'static str),
    #[error("invalid prefix of the place: {0}")]
    Prefix(&'static str),
    #[error("the directory of a file place must be absolute, as in file:///DIR")]
    Directory,
}

impl RecordPlace {
    /// Returns the interval at which blocks are stored unless the user sets another one. Each block
    /// of an object store is an object of its own until the record ends.
    pub fn default_flush_interval(&self) -> Duration {
        match self {
            RecordPlace::AzureBlob { .. } | RecordPlace::Directory(_) => APPEND_INTERVAL,
            RecordPlace::S3 { .. } if self.is_directory_bucket() => APPEND_INTERVAL,
            RecordPlace::S3 { .. } | RecordPlace::Google { .. } => OBJECT_INTERVAL,
        }
    }

    /// Whether the place is an S3 Express directory bucket.
    pub(super) fn is_directory_bucket(&self) -> bool {
        let RecordPlace::S3 { bucket, .. } = self else {
            return false;
        };
        bucket.ends_with(DIRECTORY_BUCKET_SUFFIX)
    }

    /// Returns the place of a folder below this one.
    pub fn join(&self, folder: &str) -> RecordPlace {
        let mut place = self.clone();
        match &mut place {
            RecordPlace::Directory(dir) => dir.push(folder),
            RecordPlace::AzureBlob { prefix, .. }
            | RecordPlace::S3 { prefix, .. }
            | RecordPlace::Google { prefix, .. } => {
                if !prefix.is_empty() && !folder.is_empty() {
                    prefix.push('/');
                }
                prefix.push_str(folder);
            }
        }
        place
    }

    /// Splits the place of one part into the folder of its record and its number.
    pub(super) fn split_part(&self) -> (RecordPlace, Option<u32>) {
        let mut place = self.clone();
        let number = match &mut place {
            RecordPlace::Directory(dir) => {
                let number = dir.file_name().and_then(|name| part_number(name.to_str()?));
                if number.is_some() {
                    dir.pop();
                }
                number
            }
            RecordPlace::AzureBlob { prefix, .. }
            | RecordPlace::S3 { prefix, .. }
            | RecordPlace::Google { prefix, .. } => {
                let start = prefix.rfind('/').map_or(0, |slash| slash + 1);
                let number = part_number(&prefix[start..]);
                if number.is_some() {
                    prefix.truncate(start.saturating_sub(1));
                }
                number
            }
        };
        (place, number)
    }
}

impl fmt::Display for RecordPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self {
            RecordPlace::AzureBlob {
                account,
                container,
                prefix,
            } => {
                write!(f, "azblob://{account}/{container}")?;
                prefix
            }
            RecordPlace::S3 { bucket, prefix } => {
                write!(f, "s3://{bucket}")?;
                prefix
            }
            RecordPlace::Google { bucket, prefix } => {
                write!(f, "gs://{bucket}")?;
                prefix
            }
            RecordPlace::Directory(dir) => return write!(f, "file://{}", dir.display()),
        };
        match prefix.is_empty() {
            true => Ok(()),
            false => write!(f, "/{prefix}"),
        }
    }
}

impl From<RecordPlace> for String {
    fn from(place: RecordPlace) -> String {
        place.to_string()
    }
}

impl TryFrom<String> for RecordPlace {
    type Error = RecordPlaceError;

    fn try_from(text: String) -> Result<RecordPlace, RecordPlaceError> {
        text.parse()
    }
}

impl FromStr for RecordPlace {
    type Err = RecordPlaceError;

    fn from_str(text: &str) -> Result<RecordPlace, RecordPlaceError> {
        let (scheme, rest) = text.split_once("://").ok_or(match text.starts_with('/') {
            true => RecordPlaceError::Path,
            false => RecordPlaceError::Scheme,
        })?;
        if scheme == "file" {
            return match rest.starts_with('/') && !rest.contains(char::is_control) {
                true => Ok(RecordPlace::Directory(rest.into())),
                false => Err(RecordPlaceError::Directory),
            };
        }
        if !matches!(scheme, "azblob" | "s3" | "gs") {
            return Err(RecordPlaceError::Scheme);
        }
        if rest.contains('?') {
            return Err(RecordPlaceError::Query);
        }
        let (first, path) = rest.split_once('/').unwrap_or((rest, ""));
        if first.contains('@') {
            return Err(RecordPlaceError::UserInfo);
        }
        match scheme {
            "azblob" => {
                let (container, path) = path.split_once('/').unwrap_or((path, ""));
                Ok(RecordPlace::AzureBlob {
                    account: account_name(first)?,
                    container: container_name(container)?,
                    prefix: parse_prefix(path)?,
                })
            }
            "s3" => Ok(RecordPlace::S3 {
                bucket: bucket_name(first, 63)?,
                prefix: parse_prefix(path)?,
            }),
            _ => Ok(RecordPlace::Google {
                bucket: bucket_name(first, 222)?,
                prefix: parse_prefix(path)?,
            }),
        }
    }
}

fn is_lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

fn account_name(name: &str) -> Result<String, RecordPlaceError> {
    let is_valid = (3..=24).contains(&name.len()) && name.chars().all(is_lower);
    let expected = "3 to 24 lower-case letters and digits";
    is_valid
        .then(|| name.to_owned())
        .ok_or(RecordPlaceError::Name("account name", expected))
}

fn container_name(name: &str) -> Result<String, RecordPlaceError> {
    if name.is_empty() {
        return Err(RecordPlaceError::NoContainer);
    }
    let is_valid = (3..=63).contains(&name.len())
        && name.chars().all(|c| is_lower(c) || c == '-')
        && name.starts_with(is_lower);
    let expected = "3 to 63 lower-case letters, digits and hyphens";
    is_valid
        .then(|| name.to_owned())
        .ok_or(RecordPlaceError::Name("container name", expected))
}

fn bucket_name(name: &str, bytes_max: usize) -> Result<String, RecordPlaceError> {
    let is_valid = (3..=bytes_max).contains(&name.len())
        && name
            .chars()
            .all(|c| is_lower(c) || matches!(c, '-' | '.' | '_'))
        && name.starts_with(is_lower);
    let expected = "at least 3 lower-case letters, digits, hyphens, underscores and dots";
    is_valid
        .then(|| name.to_owned())
        .ok_or(RecordPlaceError::Name("bucket name", expected))
}

fn parse_prefix(path: &str) -> Result<String, RecordPlaceError> {
    let prefix = path.strip_suffix('/').unwrap_or(path);
    if prefix.len() > PREFIX_BYTES_MAX {
        return Err(RecordPlaceError::Prefix("more than 600 bytes"));
    }
    if prefix.contains(|c: char| c.is_control() || matches!(c, '\\' | '#')) {
        let problem = "control characters, backslashes and # are not accepted";
        return Err(RecordPlaceError::Prefix(problem));
    }
    let is_wrong = |name: &str| matches!(name, "" | "." | "..");
    if !prefix.is_empty() && prefix.split('/').any(is_wrong) {
        let problem = "a component is empty, \".\" or \"..\"";
        return Err(RecordPlaceError::Prefix(problem));
    }
    Ok(prefix.to_owned())
}

#[cfg(test)]
mod tests;
