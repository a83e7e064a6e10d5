//! The credentials of both sides of a connection: what a parent requires of its children, and what
//! a child requires of its parent and presents to it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest;
use pegel_credentials::{
    Reloadable, TlsError, Token, TokenError, TokenSource, crypto_provider, load_authorities,
    load_certificates, load_key,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};

use crate::settings::{CHILDREN_MAX, CertificateFingerprint, ParentAddress, TreeSettings};

/// Why the tree cannot be started. No message contains any part of a secret.
#[derive(Debug, thiserror::Error)]
pub enum TreeStartError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Settings(String),
    #[error("cannot listen on {address} for children")]
    Bind {
        address: String,
        #[source]
        source: io::Error,
    },
    #[error("cannot read or write {path}")]
    Instance {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn wrong<T>(message: impl Into<String>) -> Result<T, TreeStartError> {
    Err(TreeStartError::Settings(message.into()))
}

/// Certificates and token of an agent.
#[derive(Debug, Clone)]
pub(crate) struct TreeCredentials {
    pub(crate) token: Option<Token>,
    /// For children; `None`: plain text over loopback.
    pub(crate) server: Option<Arc<ServerConfig>>,
    /// For parents; `None`: plain text over loopback.
    pub(crate) client: Option<Arc<ClientConfig>>,
    /// Whether certificates of children are required, and their names are checked.
    pub(crate) checks_names: bool,
}

impl TreeCredentials {
    /// Loads the credentials; they are read again when a file changes.
    pub(crate) fn reloadable(
        settings: &TreeSettings,
    ) -> Result<Reloadable<TreeCredentials, TreeStartError>, TreeStartError> {
        let token_file = match settings.token() {
            Some(TokenSource::File(path)) => Some(path),
            _ => None,
        };
        let files = [
            settings.cert.clone(),
            settings.key.clone(),
            settings.client_ca.clone(),
            settings.ca.clone(),
            settings.client_cert.clone(),
            settings.client_key.clone(),
            token_file,
        ];
        let settings = settings.clone();
        let files = files.into_iter().flatten().collect();
        Reloadable::new("the credentials of the tree", files, move || {
            TreeCredentials::load(&settings)
        })
    }

    /// Checks the settings and loads all files that they name.
    pub(crate) fn load(settings: &TreeSettings) -> Result<TreeCredentials, TreeStartError> {
        if settings.children_max == 0 || settings.children_max > CHILDREN_MAX {
            return wrong(format!("tree.children_max must be 1 to {CHILDREN_MAX}"));
        }
        let interval = settings.interval.duration().as_millis();
        if !(100..=3_600_000).contains(&interval) {
            return wrong("tree.interval must be 100ms to 1h");
        }
        let token = settings.token().map(|source| Token::load(&source));
        let token = token.transpose()?;
        let server = match (&settings.cert, &settings.key) {
            (Some(cert), Some(key)) => Some(server_config(cert, key, settings)?),
            (None, None) => None,
            _ => return wrong("tree.cert and tree.key require each other"),
        };
        if let Some(accept) = &settings.accept
            && !accept.is_loopback()
        {
            if server.is_none() {
                return wrong(format!(
                    "tree.accept {accept} is not a loopback address and requires tree.cert and \
                     tree.key; `pegel tree init` makes them"
                ));
            }
            if token.is_none() && settings.client_ca.is_none() {
                return wrong(format!(
                    "tree.accept {accept} is not a loopback address and requires tree.token_file, \
                     PEGEL_TOKEN or tree.client_ca"
                ));
            }
        }
        if settings.client_ca.is_some() && server.is_none() {
            return wrong("tree.client_ca requires tree.cert and tree.key");
        }
        let client = client_config(settings)?;
        let is_remote = |parent: &&ParentAddress| !parent.is_loopback();
        if let Some(parent) = settings.parents.iter().find(is_remote)
            && client.is_none()
        {
            return wrong(format!(
                "tree.parents: {parent} is not a loopback address and requires tree.ca or \
                 tree.fingerprint; `pegel tree init` makes them"
            ));
        }
        Ok(TreeCredentials {
            token,
            server: server.map(Arc::new),
            client: client.map(Arc::new),
            checks_names: settings.client_ca.is_some(),
        })
    }
}

fn server_config(
    cert: &Path,
    key: &Path,
    settings: &TreeSettings,
) -> Result<ServerConfig, TlsError> {
    let provider = crypto_provider();
    let pair = |source| TlsError::Pair {
        cert: cert.to_owned(),
        key: key.to_owned(),
        source,
    };
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let builder = match &settings.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(load_authorities(path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|source| TlsError::Authorities {
                path: path.clone(),
                source: source.into(),
            })?)
        }
    };
    let certificates = load_certificates(cert)?;
    let config = builder.with_single_cert(certificates, load_key(key)?);
    let mut config = config.map_err(pair)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Returns the configuration for connections to parents; `None` without `ca` and `fingerprint`.
fn client_config(settings: &TreeSettings) -> Result<Option<ClientConfig>, TreeStartError> {
    let provider = crypto_provider();
    let verifier: Arc<dyn ServerCertVerifier> = match (&settings.ca, &settings.fingerprint) {
        (Some(_), Some(_)) => return wrong("set either tree.ca or tree.fingerprint"),
        (None, None) => return Ok(None),
        (Some(path), None) => {
            let roots = Arc::new(load_authorities(path)?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
            verifier.build().map_err(|source| TlsError::Authorities {
                path: path.clone(),
                source: source.into(),
            })?
        }
        (None, Some(fingerprint)) => Arc::new(PinnedCertificate {
            fingerprint: *fingerprint,
            provider: provider.clone(),
        }),
    };
    let general = |source: rustls::Error| TreeStartError::Settings(source.to_string());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(general)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match (&settings.client_cert, &settings.client_key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(cert), Some(key)) => {
            let certificates = load_certificates(cert)?;
            let config = builder.with_client_auth_cert(certificates, load_key(key)?);
            config.map_err(|source| TlsError::Pair {
                cert: cert.clone(),
                key: key.clone(),
                source,
            })?
        }
        _ => return wrong("tree.client_cert and tree.client_key require each other"),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Some(config))
}

/// Accepts one certificate, whatever its names, dates and issuer.
#[derive(Debug)]
struct PinnedCertificate {
    fingerprint: CertificateFingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let hash = digest::digest(&digest::SHA256, end_entity);
        if hash.as_ref() == self.fingerprint.0 {
            return Ok(ServerCertVerified::assertion());
        }
        let message = "the certificate does not have the fingerprint of tree.fingerprint";
        Err(rustls::Error::General(message.to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
