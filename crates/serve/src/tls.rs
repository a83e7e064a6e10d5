//! TLS for addresses that other machines can reach.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegel_plain_file::open_plain;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::api_error::ApiError;
use crate::listen::refuse_connection;
use crate::refusals::ClientRefusal;
use crate::server_context::ServerContext;

/// Upper bound for a PEM file; certificate chains and keys take a few KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The first byte of every TLS connection: the type of a handshake record.
const TLS_HANDSHAKE_RECORD: u8 = 0x16;

/// PEM files: the server's certificate with its chain, its key, and the authorities for client
/// certificates.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// If set, every client must present a certificate that one of these authorities signed.
    pub ca: Option<PathBuf>,
}

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

impl TlsFiles {
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        [&self.cert, &self.key]
            .into_iter()
            .chain(&self.ca)
            .cloned()
            .collect()
    }

    pub(crate) fn load(&self) -> Result<ServerConfig, TlsError> {
        let certs = load_certificates(&self.cert)?;
        let key = load_key(&self.key)?;
        // The provider that `main` installed; tests have none.
        let provider = CryptoProvider::get_default().cloned();
        let provider =
            provider.unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
        let pair = |source| TlsError::Pair {
            cert: self.cert.clone(),
            key: self.key.clone(),
            source,
        };
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(pair)?;
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(load_authorities(path)?),
                    provider,
                );
                builder.with_client_cert_verifier(verifier.build().map_err(|source| {
                    TlsError::Authorities {
                        path: path.clone(),
                        source: source.into(),
                    }
                })?)
            }
        };
        let mut config = builder.with_single_cert(certs, key).map_err(pair)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
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

fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
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

fn load_authorities(path: &Path) -> Result<RootCertStore, TlsError> {
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

/// Performs the TLS handshake, within the time limit of a request's head. On failure, counts the
/// refusal and returns `None`.
pub(crate) async fn accept_tls(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    context: &ServerContext,
) -> Option<TlsStream<TcpStream>> {
    let refuse = |refusal| {
        context.refusals.count(refusal);
        None
    };
    let time = context.settings.head_time;
    let mut first = [0];
    match timeout(time, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first == [TLS_HANDSHAKE_RECORD] => {}
        Ok(Ok(1)) => {
            refuse_connection(stream, ApiError::tls_required()).await;
            return refuse(ClientRefusal::PlainHttp);
        }
        // Closed without sending anything, as port scanners do.
        Ok(_) => return refuse(ClientRefusal::Handshake),
        Err(_) => return refuse(ClientRefusal::HandshakeTime),
    }
    match timeout(time, TlsAcceptor::from(config).accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "TLS handshake failed");
            refuse(ClientRefusal::Handshake)
        }
        Err(_) => refuse(ClientRefusal::HandshakeTime),
    }
}

/// Whether the client presented a certificate. An invalid one would have failed the handshake.
pub(crate) fn has_client_certificate(stream: &TlsStream<TcpStream>) -> bool {
    let (_, session) = stream.get_ref();
    session
        .peer_certificates()
        .is_some_and(|chain| !chain.is_empty())
}
