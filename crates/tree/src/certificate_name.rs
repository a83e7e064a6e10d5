//! The name in the certificate of a child: the subject's common name or a DNS name.

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

/// Returns whether a certificate, which was verified before, is made out to a node.
pub(crate) fn is_issued_to(certificate: &CertificateDer<'_>, node: &str) -> bool {
    if common_name(certificate) == Some(node.as_bytes()) {
        return true;
    }
    let (Ok(parsed), Ok(name)) = (
        ParsedCertificate::try_from(certificate),
        ServerName::try_from(node),
    ) else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
/// The explicit tag of the version.
const VERSION: u8 = 0xa0;
/// 2.5.4.3, commonName.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// Splits the first element of DER data: its tag, its content and the rest.
fn der_element(data: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = data.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x83 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits
                .iter()
                .fold(0, |sum, digit| sum << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn der_content(data: &[u8], expected: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = der_element(data)?;
    (tag == expected).then_some((content, rest))
}

/// Returns the last common name of the subject.
fn common_name(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = der_content(certificate, SEQUENCE)?;
    let (mut fields, _) = der_content(certificate, SEQUENCE)?;
    if let Some((_, rest)) = der_content(fields, VERSION) {
        fields = rest;
    }
    // Serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        fields = der_element(fields)?.2;
    }
    let (mut subject, _) = der_content(fields, SEQUENCE)?;
    let mut found = None;
    while let Some((mut attributes, rest)) = der_content(subject, SET) {
        subject = rest;
        while let Some((attribute, rest)) = der_content(attributes, SEQUENCE) {
            attributes = rest;
            let (kind, value) = der_content(attribute, OBJECT_ID)?;
            if kind == COMMON_NAME {
                found = Some(der_element(value)?.1);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(common: Option<&str>, dns: &[&str]) -> CertificateDer<'static> {
        let dns: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(dns).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, "n9");
        if let Some(common) = common {
            params.distinguished_name.push(DnType::CommonName, common);
        }
        let key = KeyPair::generate().expect("a key");
        params.self_signed(&key).expect("signed").der().clone()
    }

    #[test]
    fn a_node_has_the_common_name_or_a_dns_name() {
        let common = certificate(Some("n1"), &[]);
        assert!(is_issued_to(&common, "n1"));
        assert!(!is_issued_to(&common, "n9"), "the organization is no name");
        let dns = certificate(None, &["n2", "n2.example.org"]);
        assert!(is_issued_to(&dns, "n2") && is_issued_to(&dns, "n2.example.org"));
        assert!(!is_issued_to(&dns, "n1") && !is_issued_to(&dns, ""));
        let both = certificate(Some("n1"), &["n2"]);
        assert!(is_issued_to(&both, "n1") && is_issued_to(&both, "n2"));
        for length in 0..common.len() {
            let _ = common_name(&common[..length]);
        }
    }
}
