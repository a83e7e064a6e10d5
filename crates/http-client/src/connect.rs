//! Connections to servers that a configuration names, and the authorities that a server's
//! certificate must come from.

use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::resolve::resolve;
use crate::{WaitLimit, new_runtime};

/// Where distributions keep the certificates of authorities.
const CA_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
const CA_BYTES_MAX: u64 = 4 << 20;
/// How long names are resolved for a wait without a limit.
const RESOLVE_MAX: Duration = Duration::from_secs(30);

/// How the certificate of a server is verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTrust {
    /// The certificates of authorities (PEM); without it, those of the system.
    pub ca_file: Option<PathBuf>,
    /// Accept any certificate: the connection is encrypted, but the server may be another one.
    pub accept_any: bool,
}

/// Connects to the first address of a host that accepts. Names are resolved each time, so that a
/// server that moved is found.
pub fn connect_tcp(host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
    let left = deadline.saturating_duration_since(Instant::now());
    connect_tcp_with_limit(host, port, &WaitLimit::timeout(left))
}

/// Like [`connect_tcp`], with a wait that can also be stopped while it connects.
pub fn connect_tcp_with_limit(host: &str, port: u16, limit: &WaitLimit) -> io::Result<TcpStream> {
    let begin = Instant::now();
    let wait = limit.timeout.unwrap_or(RESOLVE_MAX);
    let addresses = resolve(host, port, begin + wait)?;
    let limit = WaitLimit {
        timeout: limit.timeout.map(|all| all.saturating_sub(begin.elapsed())),
        stop: limit.stop.clone(),
    };
    let runtime = new_runtime()?;
    limit.wait_for(&runtime, async {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            match tokio::net::TcpStream::connect(address).await {
                Ok(stream) => return stream.into_std(),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    })
}

/// Reads the authorities for a connection: renewed files are noticed.
pub fn tls_config(trust: &ServerTrust) -> io::Result<Arc<ClientConfig>> {
    if trust.accept_any {
        return accept_any_config();
    }
    let bundle = CA_BUNDLES.iter().map(Path::new).find(|path| path.exists());
    let path = trust
        .ca_file
        .as_deref()
        .or(bundle)
        .ok_or_else(|| io::Error::other("no certificates of authorities found; set ca_file"))?;
    let unusable = |problem: String| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        io::Error::other(format!("{}: {problem}", path.display()))
    };
    let text = pegel_plain_file::read_plain(path, CA_BYTES_MAX)
        .map_err(|error| unusable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    let (added, _) =
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&text).flatten());
    if added == 0 {
        return Err(unusable("holds no certificate in PEM form".to_owned()));
    }
    let config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn accept_any_config() -> io::Result<Arc<ClientConfig>> {
    let builder = ClientConfig::builder();
    let algorithms = builder.crypto_provider().signature_verification_algorithms;
    let config = builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(algorithms)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Accepts every certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
