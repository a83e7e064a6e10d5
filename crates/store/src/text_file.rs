//! Small text files of the store. They are replaced with a rename, so that they are never
//! incomplete.

use std::io;

use crate::files::{read_exact_at, write_all_at};
use crate::options::StoreOptions;

/// Reads a file of the store's directory that has at most `bytes_max` bytes.
pub(crate) fn read_text(options: &StoreOptions, name: &str, bytes_max: u64) -> io::Result<String> {
    let file = options.files.open(&options.dir.join(name))?;
    let len = file.size()?;
    if len > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let bytes = read_exact_at(&*file, 0, len as usize)?;
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Replaces a file of the store's directory. The change is durable when this returns.
pub(crate) fn replace_text(options: &StoreOptions, name: &str, text: &str) -> io::Result<()> {
    write_text(options, name, text, true)?;
    options.files.sync_dir(&options.dir)
}

/// Replaces a file of the store's directory without waiting for a sync, which may hang. After a
/// power failure it may be empty.
pub(crate) fn replace_text_unsynced(
    options: &StoreOptions,
    name: &str,
    text: &str,
) -> io::Result<()> {
    write_text(options, name, text, false)
}

fn write_text(options: &StoreOptions, name: &str, text: &str, is_synced: bool) -> io::Result<()> {
    let (path, beside) = (
        options.dir.join(name),
        options.dir.join(format!("{name}.tmp")),
    );
    let file = options.files.create(&beside)?;
    write_all_at(&*file, text.as_bytes(), 0)?;
    if is_synced {
        file.sync()?;
    }
    options.files.rename(&beside, &path)
}
