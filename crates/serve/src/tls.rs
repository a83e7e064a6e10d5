//! TLS for addresses that other machines can reach.

use std::path::PathBuf;
use std::sync::Arc;

use pegel_credentials::{TlsError, crypto_provider, load_authorities, load_certificates, load_key};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::api_error::ApiError;
use crate::listen::refuse_connection;
use crate::refusals::ClientRefusal;
use crate::server_context::ServerContext;

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
        let provider = crypto_provider();
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
        // In the order of preference: browsers and other clients that know both get HTTP/1.1, and
        // gRPC, which offers HTTP/2 only, gets that.
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
        Ok(config)
    }
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
