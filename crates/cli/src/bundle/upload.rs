//! Stores a bundle at a place, and returns the command by which a node downloads it.

use std::path::Path;

use pegel_session::storage;

use crate::hook::shell_word;
use crate::storage_access;

/// Stores a file, with the credentials in the environment.
pub(super) fn put_file(place: &str, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let place = storage_access::parse_place(place)?;
    let credentials = storage_access::credentials()?;
    storage::put_file(
        &place,
        name,
        bytes,
        &credentials,
        &storage_access::endpoints(),
    )?;
    Ok(())
}

fn local_dir(place: &str) -> Option<&Path> {
    let dir = place.strip_prefix("file://")?;
    dir.starts_with('/').then(|| Path::new(dir))
}

/// Returns the line for a batch script: download, verify, extract, run. `place` is where the file
/// is stored, if that is known.
pub(super) fn batch_line(place: Option<&str>, name: &str, checksum: &str) -> String {
    let run = "sh pegel-bundle/start.sh || :";
    if let Some(dir) = place.and_then(local_dir) {
        let path = dir.join(name);
        return format!("tar -xzf {} && {run}", shell_word(&path.to_string_lossy()));
    }
    let url = match place.and_then(|place| download_url(place, name)) {
        Some(url) => shell_word(&url),
        None => "\"$PEGEL_BUNDLE_URL\"".to_owned(),
    };
    format!(
        "curl -fsSL --retry 3 -o pegel-bundle.tar.gz {url} && \
         echo '{checksum}  pegel-bundle.tar.gz' | sha256sum -c --quiet && \
         tar -xzf pegel-bundle.tar.gz && {run}"
    )
}

/// Returns the address from which a node downloads a file.
fn download_url(place: &str, name: &str) -> Option<String> {
    let (scheme, rest) = place.split_once("://")?;
    let rest = rest.trim_end_matches('/');
    let (first, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = match path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    };
    Some(match scheme {
        "azblob" => format!("https://{first}.blob.core.windows.net/{path}"),
        "s3" => format!("https://{first}.s3.amazonaws.com/{path}"),
        "gs" => format!("https://storage.googleapis.com/{first}/{path}"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_download_addresses() {
        for (place, url) in [
            (
                "azblob://acct/c/p",
                "https://acct.blob.core.windows.net/c/p/b.tgz",
            ),
            ("s3://bucket", "https://bucket.s3.amazonaws.com/b.tgz"),
            (
                "gs://bucket/x/",
                "https://storage.googleapis.com/bucket/x/b.tgz",
            ),
        ] {
            assert_eq!(download_url(place, "b.tgz").as_deref(), Some(url));
        }
        assert!(batch_line(None, "b.tgz", "00").contains("\"$PEGEL_BUNDLE_URL\""));
        let local = batch_line(Some("file:///a b"), "b.tgz", "00");
        assert!(local.starts_with("tar -xzf '/a b/b.tgz' && "), "{local}");
    }

    #[test]
    fn other_places_are_refused() {
        for place in ["ftp://a/c", "file://relative", "/tmp"] {
            assert!(put_file(place, "x", b"").is_err(), "{place}");
        }
    }
}
