//! Storage of records and other files: credentials, requests and retries of every provider.
//! Sessions depend only on [`RecordStorage`], the archive only on [`FilePlace`].
//!
//! ```text
//! RecordStorage ─┬─ FileStorage                  directories
//!                └─ ObjectStorage ─ ObjectClient ─┬─ AzureFolder   append blobs
//!                   exactly once     requests     ├─ S3Folder      objects, S3 Express appends
//!                                                 └─ GoogleFolder  objects
//! ```
//!
//! Every request has a time limit and every response a size limit. Problems contain neither URLs
//! with queries nor messages of servers, so that no secret is shown.

mod azure;
mod credentials;
mod encoding;
mod file;
mod file_place;
mod google;
mod merge;
mod object_storage;
mod open;
mod place;
mod problem;
mod response;
mod s3;
mod server;
mod token;

pub use credentials::{CredentialVariables, StorageCredentials, StorageEndpoints};
pub use file::FileStorage;
pub use file_place::{CreateOutcome, FilePlace};
pub use open::{RecordPart, open_storage, put_file, read_parts};
pub use place::{RecordPlace, RecordPlaceError};
pub use problem::{StorageProblem, StorageProblemKind};

use std::fmt::Debug;

/// The limits of one part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartLimits {
    pub bytes: u64,
    pub blocks: u32,
}

/// The result of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendOutcome {
    Stored,
    /// The part is not as long as expected, or has other content.
    Conflict(PartConflict),
    /// The part accepts no more blocks.
    PartFull,
}

/// The state of a part to which a block cannot be appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartConflict {
    /// The block is there, and nothing after it: an earlier request succeeded.
    AlreadyStored,
    /// Another process wrote to the part.
    OtherContent { bytes: u64 },
}

/// Storage for the parts of one record: a folder.
pub trait RecordStorage: Debug + Send {
    fn part_limits(&self) -> PartLimits;

    /// Appends a block to a part whose length is `position`. Creates the part at position 0.
    fn append(
        &mut self,
        part: u32,
        position: u64,
        block: &[u8],
    ) -> Result<AppendOutcome, StorageProblem>;

    /// Completes a record that ended cleanly, of parts 0 to `last_part`: merges parts where each
    /// holds only one block, then stores the summary. May be repeated after a failure.
    fn finish(&mut self, last_part: u32, summary: &str) -> Result<(), StorageProblem>;
}

/// The name of the summary of a record.
pub const SUMMARY_NAME: &str = "summary.json";

/// Returns the name of a part.
pub fn part_name(part: u32) -> String {
    format!("record-{part:05}.pgl")
}

/// Returns the number of a part with this name.
pub fn part_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("record-")?.strip_suffix(".pgl")?;
    let number = digits.parse().ok()?;
    (part_name(number) == name).then_some(number)
}

/// The most pages of a list of objects, and the most bytes of a page.
const LIST_PAGES_MAX: usize = 200;
const LIST_BYTES_MAX: u64 = 16 << 20;
/// The most bytes of a response that describes an object or a session.
const REPLY_BYTES_MAX: u64 = 64 << 10;

fn too_many_objects(label: &str) -> StorageProblem {
    let text = format!("{label}: too many objects in the folder");
    StorageProblem::new(StorageProblemKind::Rejected, text)
}

/// Returns the start of the names of all objects in a folder.
fn folder_of(prefix: &str) -> String {
    match prefix {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    }
}

/// Returns the name of an object in a folder; `None` if it is in another one.
fn name_in(folder: &str, object: &str) -> Option<String> {
    let name = object.strip_prefix(folder)?;
    (!name.contains('/')).then(|| name.to_owned())
}

/// Returns the value of a header for a range of bytes.
fn range_header(start: u64, bytes: u64) -> String {
    format!(
        "bytes={start}-{}",
        start.saturating_add(bytes.saturating_sub(1))
    )
}
