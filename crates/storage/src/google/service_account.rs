//! Tokens for the key of a Google service account: a signed assertion is exchanged for a token.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use jiff::Timestamp;
use pegel_http_client::ServerUrl;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;
use serde_json::json;

use crate::encoding::base64_url;
use crate::server::{StorageRequest, StorageServer};
use crate::token::AccessToken;
use crate::{REPLY_BYTES_MAX, StorageProblem, StorageProblemKind};

const SCOPE: &str = "https://www.googleapis.com/auth/devstorage.read_write";
const ASSERTION_SECONDS: i64 = 3600;

/// The key file of a service account.
#[derive(Deserialize)]
struct ServiceAccountFile {
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    #[serde(default = "default_token_uri")]
    token_uri: String,
}

fn default_token_uri() -> String {
    "https://oauth2.googleapis.com/token".to_owned()
}

/// A service account and its current token.
pub(super) struct ServiceAccount {
    email: String,
    key: RsaKeyPair,
    key_id: Option<String>,
    token_uri: String,
    server: StorageServer,
    token: Option<AccessToken>,
}

impl std::fmt::Debug for ServiceAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceAccount")
            .field("email", &self.email)
            .finish_non_exhaustive()
    }
}

impl ServiceAccount {
    /// Parses the content of a key file.
    pub(super) fn parse(json: &str, label: &str) -> Result<ServiceAccount, StorageProblem> {
        let unusable = |what: &str| {
            let text = format!("{label}: the key of the Google service account {what}");
            StorageProblem::new(StorageProblemKind::Credentials, text)
        };
        let file: ServiceAccountFile = serde_json::from_str(json).map_err(|_| {
            unusable("is not the JSON of a key file with client_email and private_key")
        })?;
        let der = PrivatePkcs8KeyDer::from_pem_slice(file.private_key.as_bytes())
            .map_err(|_| unusable("has no private_key in PEM form"))?;
        let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der())
            .map_err(|_| unusable("has a private_key that is not an RSA key"))?;
        let url: ServerUrl = file
            .token_uri
            .parse()
            .map_err(|_| unusable("has an invalid token_uri"))?;
        let server = StorageServer::new(url, None, label.to_owned());
        server.check_confidential("an assertion")?;
        Ok(ServiceAccount {
            email: file.client_email,
            key,
            key_id: file.private_key_id,
            token_uri: file.token_uri,
            server,
            token: None,
        })
    }

    /// Discards a token that was rejected.
    pub(super) fn discard(&mut self) {
        self.token = None;
    }

    pub(super) fn token(&mut self) -> Result<String, StorageProblem> {
        if let Some(token) = self.token.as_ref().and_then(AccessToken::current) {
            return Ok(token.to_owned());
        }
        let assertion = self.assertion(Timestamp::now().as_second())?;
        let body = format!(
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}"
        );
        let response = self.server.send_expecting(
            &StorageRequest {
                operation: "request for a token",
                method: "POST",
                target: self.server.url.path.clone(),
                headers: vec![(
                    "Content-Type",
                    "application/x-www-form-urlencoded".to_owned(),
                )],
                body: body.as_bytes(),
                bytes_max: REPLY_BYTES_MAX,
            },
            &[200],
        )?;
        let token = AccessToken::parse(&response, self.server.label())?;
        let current = token.current().unwrap_or_default().to_owned();
        self.token = Some(token);
        Ok(current)
    }

    /// Returns a JSON web token, signed with RS256.
    fn assertion(&self, now: i64) -> Result<String, StorageProblem> {
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": self.key_id});
        let claims = json!({
            "iss": self.email,
            "scope": SCOPE,
            "aud": self.token_uri,
            "iat": now,
            "exp": now + ASSERTION_SECONDS,
        });
        let part = |json: serde_json::Value| base64_url(json.to_string().as_bytes());
        let text = format!("{}.{}", part(header), part(claims));
        let mut signature = vec![0; self.key.public_modulus_len()];
        let random = SystemRandom::new();
        let signed = self
            .key
            .sign(&RSA_PKCS1_SHA256, &random, text.as_bytes(), &mut signature);
        signed.map_err(|_| {
            let text = "cannot sign with the key of the Google service account";
            StorageProblem::new(StorageProblemKind::Credentials, text)
        })?;
        Ok(format!("{text}.{}", base64_url(&signature)))
    }
}
