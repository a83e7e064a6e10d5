//! Makes the certificates of a tree: an authority, the certificate of the parents and one for each
//! node. `pegel tree init` calls it; a running agent only reads the files.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;

/// The subject of every authority. A certificate names it as its issuer, so that it must not depend
/// on the directory or the time.
const AUTHORITY_NAME: &str = "Pegel tree authority";
/// An authority is valid at least this long: replacing it means replacing every file.
const AUTHORITY_DAYS_MIN: u32 = 3650;
/// Certificates are valid from this long before now, for nodes whose clock is behind.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(86_400);
/// The longest common name of a certificate (RFC 5280, `ub-common-name`).
pub const NAME_BYTES_MAX: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("\"{0}\" is not a host name or an IP address")]
    Host(String),
    #[error("\"{0}\" is not a node name: expected 1 to {NAME_BYTES_MAX} visible ASCII characters")]
    NodeName(String),
    #[error("malformed key of the authority")]
    AuthorityKey(#[source] rcgen::Error),
    #[error(
        "the authority does not verify its own certificate; do ca.pem and ca.key belong together?"
    )]
    AuthorityMismatch(#[source] rustls::Error),
    #[error("malformed certificate of the authority: {0}")]
    AuthorityCertificate(String),
    #[error("cannot make a certificate")]
    Generation(#[from] rcgen::Error),
}

/// A certificate and its private key, as PEM.
#[derive(Clone)]
pub struct IssuedCertificate {
    pub certificate: String,
    pub key: String,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: String,
}

impl std::fmt::Debug for IssuedCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedCertificate")
            .field("fingerprint", &self.fingerprint)
            .finish_non_exhaustive()
    }
}

/// The authority of a tree: signs the certificates of parents and nodes.
#[derive(Debug)]
pub struct CertificateAuthority {
    certificate: String,
    key: KeyPair,
}

impl CertificateAuthority {
    pub fn create(days: u32) -> Result<CertificateAuthority, CertificateError> {
        let key = KeyPair::generate()?;
        let mut params = authority_params();
        set_validity(&mut params, days.max(AUTHORITY_DAYS_MIN));
        let certificate = params.self_signed(&key)?.pem();
        Ok(CertificateAuthority { certificate, key })
    }

    /// Reads an authority that [`CertificateAuthority::create`] made.
    pub fn from_pem(
        certificate: &str,
        key: &str,
    ) -> Result<CertificateAuthority, CertificateError> {
        let authority = CertificateAuthority {
            certificate: certificate.to_owned(),
            key: KeyPair::from_pem(key).map_err(CertificateError::AuthorityKey)?,
        };
        authority.check()?;
        Ok(authority)
    }

    pub fn certificate_pem(&self) -> &str {
        &self.certificate
    }

    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Issues the certificate of a parent that nodes reach under these host names and addresses.
    pub fn issue_server(
        &self,
        hosts: &[String],
        days: u32,
    ) -> Result<IssuedCertificate, CertificateError> {
        let mut params = CertificateParams::default();
        for host in hosts {
            params.subject_alt_names.push(alternative_name(host)?);
        }
        let name = hosts.iter().find(|host| host.len() <= NAME_BYTES_MAX);
        let name = name.map_or("Pegel parent", String::as_str);
        self.issue(params, name, ExtendedKeyUsagePurpose::ServerAuth, days)
    }

    /// Issues the certificate by which a node proves its name.
    pub fn issue_client(
        &self,
        node: &str,
        days: u32,
    ) -> Result<IssuedCertificate, CertificateError> {
        let is_valid = (1..=NAME_BYTES_MAX).contains(&node.len())
            && node.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_valid {
            return Err(CertificateError::NodeName(node.to_owned()));
        }
        let params = CertificateParams::default();
        self.issue(params, node, ExtendedKeyUsagePurpose::ClientAuth, days)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        name: &str,
        purpose: ExtendedKeyUsagePurpose,
        days: u32,
    ) -> Result<IssuedCertificate, CertificateError> {
        params.distinguished_name = common_name(name);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, days);
        let key = KeyPair::generate()?;
        let issuer = Issuer::new(authority_params(), &self.key);
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(IssuedCertificate {
            fingerprint: fingerprint(certificate.der()),
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Verifies a certificate of this authority as a parent would: it fails if certificate and key
    /// do not belong together, or if the authority has another subject.
    fn check(&self) -> Result<(), CertificateError> {
        let invalid = |error: String| CertificateError::AuthorityCertificate(error);
        let root = CertificateDer::from_pem_slice(self.certificate.as_bytes())
            .map_err(|error| invalid(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        roots
            .add(root)
            .map_err(|error| invalid(error.to_string()))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| invalid(error.to_string()))?;
        let issued = self.issue_client("check", 1)?;
        let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes())
            .map_err(|error| invalid(error.to_string()))?;
        verifier
            .verify_client_cert(&certificate, &[], UnixTime::now())
            .map(drop)
            .map_err(CertificateError::AuthorityMismatch)
    }
}

/// Returns the SHA-256 of a certificate in hexadecimal digits, as `tree.fingerprint` expects it.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let hash = digest::digest(&digest::SHA256, certificate);
    let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(AUTHORITY_NAME);
    // It signs certificates of nodes, never of other authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn set_validity(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now();
    params.not_before = (now - CLOCK_TOLERANCE).into();
    params.not_after = (now + DAY * days).into();
}

/// Returns the entry of a certificate for a host name or an address.
fn alternative_name(host: &str) -> Result<SanType, CertificateError> {
    let invalid = || CertificateError::Host(host.to_owned());
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    // rustls rejects a certificate with a name that no host can have.
    rustls::pki_types::DnsName::try_from(host).map_err(|_| invalid())?;
    Ok(SanType::DnsName(host.try_into().map_err(|_| invalid())?))
}

#[cfg(test)]
#[path = "certificates_tests.rs"]
mod tests;
