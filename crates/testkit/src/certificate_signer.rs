//! Certificates for tests, made by `openssl`: a test that uses them calls `need("openssl")`.

use std::fs;
use std::process::Command;

use crate::TempDir;

/// An authority with its files, `ca.pem` and `ca.key`.
#[derive(Debug)]
pub struct CertificateSigner {
    home: TempDir,
}

impl CertificateSigner {
    pub fn create() -> CertificateSigner {
        let signer = CertificateSigner {
            home: TempDir::new(),
        };
        signer.openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "1",
            "-subj",
            "/CN=authority",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
        ]);
        signer
    }

    /// Writes `NAME.pem` and `NAME.key`.
    pub fn sign(&self, name: &str) {
        let (key, request, cert) = (
            format!("{name}.key"),
            format!("{name}.csr"),
            format!("{name}.pem"),
        );
        self.openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            &format!("/CN={name}"),
            "-keyout",
            &key,
            "-out",
            &request,
        ]);
        let extensions = "subjectAltName=IP:192.0.2.7,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n\
                          extendedKeyUsage=serverAuth,clientAuth\n";
        fs::write(self.home.join("extensions"), extensions).expect("written");
        self.openssl(&[
            "x509",
            "-req",
            "-days",
            "1",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-extfile",
            "extensions",
            "-out",
            &cert,
        ]);
    }

    fn openssl(&self, args: &[&str]) {
        let output = Command::new("openssl")
            .args(args)
            .current_dir(self.home.path())
            .output();
        let output = output.expect("openssl");
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    pub fn path(&self, name: &str) -> String {
        self.home.join(name).to_str().expect("UTF-8").to_owned()
    }
}
