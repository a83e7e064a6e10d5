//! Opens the storage of a place, and reads records and stores other files there.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pegel_plain_file::create_dirs;

use super::azure::AzureFolder;
use super::file::{PARENT_MODE, file_problem, replace_file};
use super::google::GoogleFolder;
use super::object_storage::{ObjectClient, ObjectStorage};
use super::s3::S3Folder;
use super::{
    FileStorage, RecordPlace, RecordStorage, StorageCredentials, StorageEndpoints, StorageProblem,
    StorageProblemKind, part_name, part_number,
};

/// A part of a stored record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordPart {
    pub number: u32,
    pub bytes: Vec<u8>,
}

/// Opens the storage of one record: a folder below a place. Sends no request.
pub fn open_storage(
    place: &RecordPlace,
    folder: &str,
    credentials: &StorageCredentials,
    endpoints: &StorageEndpoints,
) -> Result<Box<dyn RecordStorage>, StorageProblem> {
    let place = place.join(folder);
    Ok(match open_folder(&place, credentials, endpoints)? {
        OpenFolder::Directory(dir) => Box::new(FileStorage::new(dir)),
        OpenFolder::Objects(client) => Box::new(ObjectStorage::new(client)),
    })
}

/// Reads a record, or the part of it that the place names. All parts together have at most
/// `bytes_max` bytes. Parts are sorted by number, and at least one is returned.
pub fn read_parts(
    place: &RecordPlace,
    credentials: &StorageCredentials,
    endpoints: &StorageEndpoints,
    bytes_max: u64,
) -> Result<Vec<RecordPart>, StorageProblem> {
    let (folder, only) = place.split_part();
    let mut folder = open_folder(&folder, credentials, endpoints)?;
    let numbers = match only {
        Some(number) => Some(BTreeSet::from([number])),
        None => folder.part_numbers()?,
    };
    let is_probed = numbers.is_none();
    let numbers: Box<dyn Iterator<Item = u32>> = match numbers {
        Some(numbers) => Box::new(numbers.into_iter()),
        None => Box::new(0..),
    };
    let (mut parts, mut bytes_left) = (Vec::new(), bytes_max);
    for number in numbers {
        match folder.read(&part_name(number), bytes_left)? {
            Some(bytes) => {
                bytes_left = bytes_left.saturating_sub(bytes.len() as u64);
                parts.push(RecordPart { number, bytes });
            }
            None if is_probed => break,
            // A merge removed it after the list was read.
            None => {}
        }
    }
    match parts.is_empty() {
        true => Err(StorageProblem::new(
            StorageProblemKind::Rejected,
            format!("{place}: no record found"),
        )),
        false => Ok(parts),
    }
}

/// Stores a file below a place, replacing one with the same name.
pub fn put_file(
    place: &RecordPlace,
    name: &str,
    bytes: &[u8],
    credentials: &StorageCredentials,
    endpoints: &StorageEndpoints,
) -> Result<(), StorageProblem> {
    match open_folder(place, credentials, endpoints)? {
        OpenFolder::Objects(mut client) => client.put(name, bytes),
        OpenFolder::Directory(dir) => {
            let written = create_dirs(&dir, PARENT_MODE)
                .and_then(|()| replace_file(&dir, name, 0o644, bytes));
            written.map_err(|error| file_problem(&dir, &error))
        }
    }
}

/// A folder of any place.
#[derive(Debug)]
pub(super) enum OpenFolder {
    Directory(PathBuf),
    Objects(Box<dyn ObjectClient>),
}

pub(super) fn open_folder(
    place: &RecordPlace,
    credentials: &StorageCredentials,
    endpoints: &StorageEndpoints,
) -> Result<OpenFolder, StorageProblem> {
    let label = place.to_string();
    let client: Box<dyn ObjectClient> = match place {
        RecordPlace::Directory(dir) => return Ok(OpenFolder::Directory(dir.clone())),
        RecordPlace::AzureBlob {
            account,
            container,
            prefix,
        } => {
            let names = (account.as_str(), container.as_str(), prefix.as_str());
            Box::new(AzureFolder::new(names, label, credentials, endpoints)?)
        }
        RecordPlace::S3 { bucket, prefix } => {
            let is_express = place.is_directory_bucket();
            let names = (bucket.as_str(), prefix.as_str());
            Box::new(S3Folder::new(
                names,
                is_express,
                label,
                credentials,
                endpoints,
            )?)
        }
        RecordPlace::Google { bucket, prefix } => {
            let names = (bucket.as_str(), prefix.as_str());
            Box::new(GoogleFolder::new(names, label, credentials, endpoints)?)
        }
    };
    Ok(OpenFolder::Objects(client))
}

impl OpenFolder {
    /// Returns the numbers of all parts; `None` if the credentials do not permit listing.
    fn part_numbers(&mut self) -> Result<Option<BTreeSet<u32>>, StorageProblem> {
        let names = match self {
            OpenFolder::Directory(dir) => {
                file_names(dir).map_err(|error| file_problem(dir, &error))?
            }
            OpenFolder::Objects(client) => match client.list() {
                Ok(names) => names,
                Err(problem) if problem.kind == StorageProblemKind::Credentials => return Ok(None),
                Err(problem) => return Err(problem),
            },
        };
        Ok(Some(
            names.iter().filter_map(|name| part_number(name)).collect(),
        ))
    }

    fn read(&mut self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, StorageProblem> {
        let dir = match self {
            OpenFolder::Objects(client) => return client.read(name, bytes_max),
            OpenFolder::Directory(dir) => dir,
        };
        let path = dir.join(name);
        match pegel_plain_file::read_plain(&path, bytes_max.saturating_add(1)) {
            Ok(bytes) if bytes.len() as u64 > bytes_max => Err(StorageProblem::new(
                StorageProblemKind::Rejected,
                format!("{}: more than {bytes_max} bytes", path.display()),
            )),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_problem(&path, &error)),
        }
    }
}

fn file_names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}
