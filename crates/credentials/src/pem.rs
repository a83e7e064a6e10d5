//! Certificates and keys in PEM files.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_plain_file::open_plain;
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Upper bound for a PEM file; certificate chains and keys take a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why TLS cannot be set up. No message contains any part of a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {path}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} {problem}")]
    Content {
        path: PathBuf,
        problem: &'static str,
    },
    #[error("the certificate {cert} and the key {key} cannot be used together")]
    Pair {
        cert: PathBuf,
        key: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("the certificate authorities in {path} cannot be used")]
    Authorities {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Returns the provider that `main` installed; tests have none and get the default.
pub fn crypto_provider() -> Arc<CryptoProvider> {
    let provider = CryptoProvider::get_default().cloned();
    provider.unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
}

/// Reads the certificates of a PEM file.
pub fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let (text, _) = read_with_mode(path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    // The library's own message may quote the file, which could be the key, configured by mistake.
    let problem = match all {
        Ok(all) if !all.is_empty() => return Ok(all),
        Ok(_) => "holds no certificate in PEM form",
        Err(_) => "is not valid PEM",
    };
    let path = path.to_owned();
    Err(TlsError::Content { path, problem })
}

/// Reads a private key that other users cannot read.
pub fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (text, mode) = read_with_mode(path)?;
    let problem = match PrivateKeyDer::from_pem_slice(&text) {
        Ok(_) if mode & 0o007 != 0 => {
            "is a private key that every user can read or change; `chmod 600` it"
        }
        Ok(key) => return Ok(key),
        Err(_) => "holds no private key in PEM form (PKCS#8, PKCS#1 or SEC1, not encrypted)",
    };
    let path = path.to_owned();
    Err(TlsError::Content { path, problem })
}

/// Reads the certificates of authorities.
pub fn load_authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for authority in load_certificates(path)? {
        store
            .add(authority)
            .map_err(|source| TlsError::Authorities {
                path: path.to_owned(),
                source: source.into(),
            })?;
    }
    Ok(store)
}

/// Returns the content and the mode of a file.
fn read_with_mode(path: &Path) -> Result<(Vec<u8>, u32), TlsError> {
    let cannot = |source| TlsError::Io {
        path: path.to_owned(),
        source,
    };
    let file = open_plain(path).map_err(cannot)?;
    let found = file.metadata().map_err(cannot)?;
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(cannot)?;
    Ok((text, found.mode()))
}
