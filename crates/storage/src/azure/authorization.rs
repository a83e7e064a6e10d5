//! Authorization of requests to Azure: a shared key, a SAS token, or a managed identity.

use jiff::Timestamp;

use super::query_text;
use crate::encoding::{base64, base64_decode, encode_component, hmac_sha256};
use crate::server::StorageServer;
use crate::token::MetadataTokens;
use crate::{StorageCredentials, StorageEndpoints, StorageProblem, StorageProblemKind};

/// The version of the protocol: the first with blocks of 100 MiB is 2022-11-02.
const API_VERSION: &str = "2023-11-03";
const METADATA_URL: &str = "http://169.254.169.254";
const TOKEN_PATH: &str = "/metadata/identity/oauth2/token?api-version=2018-02-01\
                          &resource=https%3A%2F%2Fstorage.azure.com%2F";

/// A request before it is authorized.
pub(super) struct AzureRequest<'a> {
    pub(super) method: &'static str,
    /// Sorted by name; empty values are left out.
    pub(super) query: Vec<(&'static str, String)>,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: &'a [u8],
}

impl AzureRequest<'_> {
    pub(super) fn new(method: &'static str) -> Self {
        AzureRequest {
            method,
            query: Vec::new(),
            headers: Vec::new(),
            body: &[],
        }
    }
}

/// The target and the headers of a request that is authorized. Both contain secrets.
pub(super) struct AuthorizedRequest {
    pub(super) target: String,
    pub(super) headers: Vec<(&'static str, String)>,
}

/// How requests are authorized.
pub(super) enum AzureAuthorization {
    SharedKey(Vec<u8>),
    Sas(String),
    Identity(Box<MetadataTokens>),
}

impl std::fmt::Debug for AzureAuthorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AzureAuthorization::SharedKey(_) => "SharedKey",
            AzureAuthorization::Sas(_) => "Sas",
            AzureAuthorization::Identity(_) => "Identity",
        })
    }
}

fn credentials_problem(text: String) -> StorageProblem {
    StorageProblem::new(StorageProblemKind::Credentials, text)
}

impl AzureAuthorization {
    pub(super) fn new(
        account: &str,
        server: &StorageServer,
        credentials: &StorageCredentials,
        endpoints: &StorageEndpoints,
    ) -> Result<AzureAuthorization, StorageProblem> {
        let label = server.label();
        let StorageCredentials {
            azure_key: key,
            azure_sas_token: sas,
            ..
        } = credentials;
        let other = credentials.azure_account.as_deref();
        let other = other.filter(|name| *name != account && (key.is_some() || sas.is_some()));
        if let Some(other) = other {
            return Err(credentials_problem(format!(
                "{label}: the credentials are for another account: AZURE_STORAGE_ACCOUNT={other}"
            )));
        }
        if let Some(key) = key {
            let malformed = || format!("{label}: AZURE_STORAGE_KEY is not a key in base64");
            let key = base64_decode(key).filter(|key| !key.is_empty());
            let key = key.ok_or_else(|| credentials_problem(malformed()))?;
            return Ok(AzureAuthorization::SharedKey(key));
        }
        if let Some(sas) = sas {
            let is_query = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
            if !sas.contains("sig=") || !sas.bytes().all(is_query) {
                return Err(credentials_problem(format!(
                    "{label}: AZURE_STORAGE_SAS_TOKEN is not a SAS token: sv=…&sig=…"
                )));
            }
            server.check_confidential("a SAS token")?;
            return Ok(AzureAuthorization::Sas(sas.clone()));
        }
        server.check_confidential("the token of a managed identity")?;
        let mut path = TOKEN_PATH.to_owned();
        if let Some(id) = &credentials.azure_client_id {
            path.push_str(&format!("&client_id={}", encode_component(id)));
        }
        Ok(AzureAuthorization::Identity(Box::new(MetadataTokens::new(
            StorageServer::metadata(endpoints.metadata_url(METADATA_URL)?),
            &path,
            ("Metadata", "true"),
            "AZURE_STORAGE_KEY and AZURE_STORAGE_SAS_TOKEN are",
        ))))
    }

    pub(super) fn forget_token(&mut self) {
        if let AzureAuthorization::Identity(tokens) = self {
            tokens.discard();
        }
    }

    /// Returns the target and the headers of a request.
    pub(super) fn authorize(
        &mut self,
        account: &str,
        path: &str,
        request: &AzureRequest<'_>,
    ) -> Result<AuthorizedRequest, StorageProblem> {
        let mut headers = request.headers.clone();
        headers.push(("x-ms-date", http_date(Timestamp::now())));
        headers.push(("x-ms-version", API_VERSION.to_owned()));
        let mut query = query_text(&request.query);
        match self {
            AzureAuthorization::SharedKey(key) => {
                let text = string_to_sign(account, path, request, &headers);
                let signature = base64(&hmac_sha256(key, text.as_bytes()));
                headers.push(("Authorization", format!("SharedKey {account}:{signature}")));
            }
            AzureAuthorization::Sas(token) => {
                if !query.is_empty() {
                    query.push('&');
                }
                query.push_str(token);
            }
            AzureAuthorization::Identity(tokens) => {
                headers.push(("Authorization", format!("Bearer {}", tokens.token()?)));
            }
        }
        let target = match query.is_empty() {
            true => path.to_owned(),
            false => format!("{path}?{query}"),
        };
        Ok(AuthorizedRequest { target, headers })
    }
}

fn http_date(time: Timestamp) -> String {
    let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
    // Only times before the year 0 have no such form.
    printer
        .timestamp_to_rfc9110_string(&time)
        .unwrap_or_default()
}

/// Returns the text that a shared key signs: the method, eleven standard headers of which we send
/// two, all `x-ms-` headers, and the resource.
fn string_to_sign(
    account: &str,
    path: &str,
    request: &AzureRequest<'_>,
    headers: &[(&'static str, String)],
) -> String {
    let length = match request.body.len() {
        0 => String::new(),
        length => length.to_string(),
    };
    let condition = headers.iter().find(|(name, _)| *name == "If-None-Match");
    let condition = condition.map_or("", |(_, value)| value);
    let mut text = format!(
        "{}\n\n\n{length}\n\n\n\n\n\n{condition}\n\n\n",
        request.method
    );
    let mut signed: Vec<_> = headers
        .iter()
        .filter(|(name, _)| name.starts_with("x-ms-"))
        .collect();
    signed.sort();
    for (name, value) in signed {
        text.push_str(&format!("{name}:{value}\n"));
    }
    text.push_str(&format!("/{account}{path}"));
    for (name, value) in request.query.iter().filter(|(_, value)| !value.is_empty()) {
        text.push_str(&format!("\n{name}:{value}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signed_text_has_the_documented_lines() {
        let request = AzureRequest {
            query: vec![("comp", "appendblock".to_owned())],
            headers: vec![("x-ms-version", "2023-11-03".to_owned())],
            body: b"abc",
            ..AzureRequest::new("PUT")
        };
        let headers = [
            ("x-ms-version", "2023-11-03".to_owned()),
            ("x-ms-date", "Tue, 17 Nov 2026 10:00:00 GMT".to_owned()),
            ("If-None-Match", "*".to_owned()),
        ];
        assert_eq!(
            string_to_sign("acct", "/box/a%20b", &request, &headers),
            "PUT\n\n\n3\n\n\n\n\n\n*\n\n\n\
             x-ms-date:Tue, 17 Nov 2026 10:00:00 GMT\nx-ms-version:2023-11-03\n\
             /acct/box/a%20b\ncomp:appendblock"
        );
    }

    #[test]
    fn dates_have_the_form_of_http() {
        let time = Timestamp::from_second(1_234_567_890).expect("valid");
        assert_eq!(http_date(time), "Fri, 13 Feb 2009 23:31:30 GMT");
    }
}
