//! AWS Signature Version 4.

use jiff::Timestamp;

use crate::encoding::{encode_component, hex, hmac_sha256, sha256_hex};

/// Keys that sign requests.
#[derive(Clone)]
pub(super) struct SigningKeys {
    pub(super) access_key_id: String,
    pub(super) secret_access_key: String,
    /// The header and the value of a session token.
    pub(super) session_token: Option<(&'static str, String)>,
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKeys").finish_non_exhaustive()
    }
}

/// A request before it is signed.
pub(super) struct UnsignedRequest<'a> {
    pub(super) method: &'static str,
    pub(super) host: &'a str,
    /// The encoded path.
    pub(super) path: &'a str,
    /// Sorted by name.
    pub(super) query: &'a [(&'static str, String)],
    /// Names in lower case.
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: &'a [u8],
}

impl UnsignedRequest<'_> {
    /// Returns the query as it is sent and signed.
    pub(super) fn query_text(&self) -> String {
        let pairs = self.query.iter();
        let pairs = pairs.map(|(name, value)| format!("{name}={}", encode_component(value)));
        pairs.collect::<Vec<String>>().join("&")
    }

    /// Returns the headers of the signed request, without `Host`.
    pub(super) fn sign(
        self,
        keys: &SigningKeys,
        (region, service): (&str, &str),
        now: Timestamp,
    ) -> Vec<(&'static str, String)> {
        let query = self.query_text();
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let body_digest = sha256_hex(self.body);
        let mut headers = self.headers;
        headers.push(("x-amz-content-sha256", body_digest.clone()));
        headers.push(("x-amz-date", time.clone()));
        headers.extend(keys.session_token.clone());
        headers.sort();
        let (mut lines, mut names) = (String::new(), Vec::new());
        let host = ("host", self.host.to_owned());
        let mut signed: Vec<_> = headers.iter().chain([&host]).collect();
        signed.sort();
        for (name, value) in signed {
            lines.push_str(&format!("{name}:{}\n", value.trim()));
            names.push(*name);
        }
        let names = names.join(";");
        let canonical = format!(
            "{}\n{}\n{query}\n{lines}\n{names}\n{body_digest}",
            self.method, self.path
        );
        let day = &time[..8];
        let scope = format!("{day}/{region}/{service}/aws4_request");
        let digest = sha256_hex(canonical.as_bytes());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
        let start = format!("AWS4{}", keys.secret_access_key).into_bytes();
        let key = [day, region, service, "aws4_request"]
            .iter()
            .fold(start, |key, word| hmac_sha256(&key, word.as_bytes()));
        let signature = hex(&hmac_sha256(&key, text.as_bytes()));
        let id = &keys.access_key_id;
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        );
        headers.push(("authorization", authorization));
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example "GET Object" of the documentation of Amazon S3.
    #[test]
    fn the_documented_example_has_the_documented_signature() {
        let request = UnsignedRequest {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/test.txt",
            query: &[],
            headers: vec![("range", "bytes=0-9".to_owned())],
            body: b"",
        };
        let keys = SigningKeys {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        let now = "2013-05-24T00:00:00Z".parse().expect("a time");
        let headers = request.sign(&keys, ("us-east-1", "s3"), now);
        let (name, value) = headers.last().expect("a header");
        assert_eq!(*name, "authorization");
        assert!(
            value.ends_with(
                "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature=\
                 f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
            ),
            "{value}"
        );
        assert!(!format!("{keys:?}").contains("EXAMPLE"));
    }
}
