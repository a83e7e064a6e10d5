//! The identity of an agent among those of its name: 16 random bytes, kept beside the store.

use std::fs;
use std::io;
use std::path::Path;

use bytes::Bytes;
use pegel_plain_file::write_durably;
use pegel_tree_protocol::limits::INSTANCE_BYTES;

/// The name of the file in the agent's directory.
pub(crate) const INSTANCE_FILE: &str = "tree-instance";

/// Reads the identity, or creates it.
pub(crate) fn load_instance_id(dir: &Path) -> io::Result<Bytes> {
    let path = dir.join(INSTANCE_FILE);
    match fs::read(&path) {
        Ok(bytes) if bytes.len() == INSTANCE_BYTES => return Ok(bytes.into()),
        // A truncated file, after a crash of the machine: a new identity.
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut id = vec![0; INSTANCE_BYTES];
    let mut filled = 0;
    while filled < id.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut id[filled..], flags)?;
    }
    write_durably(dir, INSTANCE_FILE, &id)?;
    Ok(id.into())
}

#[cfg(test)]
mod tests {
    use pegel_testkit::TempDir;

    use super::*;

    #[test]
    fn the_identity_stays() {
        let (one, two) = (TempDir::new(), TempDir::new());
        let id = load_instance_id(one.path()).expect("created");
        assert_eq!(id.len(), INSTANCE_BYTES);
        assert_eq!(load_instance_id(one.path()).expect("read"), id);
        assert_ne!(load_instance_id(two.path()).expect("created"), id);
        fs::write(one.join(INSTANCE_FILE), "short").expect("written");
        assert_ne!(load_instance_id(one.path()).expect("replaced"), id);
    }
}
