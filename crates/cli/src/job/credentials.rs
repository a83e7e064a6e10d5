//! The certificate and the token of one job.

use anyhow::Context;
use pegel_tree::certificates::{CertificateAuthority, IssuedCertificate};
use rustix::rand::GetRandomFlags;

/// Children pin the certificate, so that its dates are not checked.
const DAYS: u32 = 1;

/// Returns random hexadecimal digits.
pub(super) fn random_digits(bytes: usize) -> anyhow::Result<String> {
    let mut buffer = vec![0; bytes];
    let filled = rustix::rand::getrandom(&mut buffer, GetRandomFlags::empty());
    let filled = filled.context("cannot get random bytes")?;
    anyhow::ensure!(filled == bytes, "cannot get random bytes");
    Ok(buffer.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Makes the certificate of the parents of a job. The key of its authority is not kept.
pub(super) fn issue_certificate(head: &str) -> anyhow::Result<IssuedCertificate> {
    let authority = CertificateAuthority::create(DAYS)?;
    let issued = authority.issue_server(&[head.to_owned()], DAYS);
    issued.or_else(|_| {
        // A name that no certificate can have; the fingerprint decides.
        Ok(authority.issue_server(&["localhost".to_owned()], DAYS)?)
    })
}
