//! Data sources and the provider of dashboards, as Grafana's provisioning reads them.

use std::path::Path;

use pegel_config::Secret;

use crate::command_error::CommandError;

const FILE_HEADER: &str =
    "# Written by `pegel grafana provision`, which writes over it as long as nobody changes it.\n";

/// An address of HTTP, looked at as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    text: String,
    pub is_encrypted: bool,
    pub is_loopback: bool,
}

impl HttpUrl {
    pub fn parse(text: &str, flag: &str) -> anyhow::Result<HttpUrl> {
        let wrong = |why: &str| {
            CommandError::usage(format!(
                "{flag} {text:?} {why}; it looks like http://localhost:4242"
            ))
        };
        let (is_encrypted, rest) =
            match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
                (Some(rest), _) => (false, rest),
                (_, Some(rest)) => (true, rest),
                _ => return Err(wrong("does not begin with http:// or https://")),
            };
        let authority = rest.split('/').next().unwrap_or_default();
        if authority.contains('@') {
            return Err(wrong(
                "has a user in it, which would be shown; use --token-file",
            ));
        }
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#' | '"' | '\\');
        if authority.is_empty() || authority.starts_with(':') || !text.chars().all(is_plain) {
            return Err(wrong("has no host, or characters that do not belong there"));
        }
        let host = match authority.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        };
        let is_address = host
            .parse()
            .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        Ok(HttpUrl {
            text: text.trim_end_matches('/').to_owned(),
            is_encrypted,
            is_loopback: is_address || host.eq_ignore_ascii_case("localhost"),
        })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// `tsdbVersion` 3 has the browser form ask for the number of each query, which tells lines of equal metrics apart;
/// resolution 1 is seconds, which is all that the newer backend form reads.
pub fn opentsdb(url: &HttpUrl, token: Option<&Secret>) -> String {
    let url = quoted(&url.text);
    let mut yaml = format!(
        "{FILE_HEADER}apiVersion: 1
datasources:
  - name: Pegel
    uid: pegel
    type: opentsdb
    access: proxy
    url: {url}
    editable: false
    jsonData:
      tsdbVersion: 3
      tsdbResolution: 1
      lookupLimit: 10000
"
    );
    if let Some(token) = token {
        let value = quoted(&format!("Bearer {}", token.reveal()));
        yaml.push_str(&format!(
            "      httpHeaderName1: Authorization
    secureJsonData:
      httpHeaderValue1: {value}
"
        ));
    }
    yaml
}

pub fn prometheus(url: &HttpUrl) -> String {
    let url = quoted(&url.text);
    format!(
        "{FILE_HEADER}apiVersion: 1
datasources:
  - name: Pegel (Prometheus)
    uid: pegel-prometheus
    type: prometheus
    access: proxy
    url: {url}
    editable: false
    jsonData:
      httpMethod: POST
      timeInterval: 5s
"
    )
}

/// `path` is where Grafana finds the dashboards.
pub fn provider(path: &Path) -> String {
    let path = quoted(&path.to_string_lossy());
    format!(
        "{FILE_HEADER}apiVersion: 1
providers:
  - name: pegel
    orgId: 1
    folder: Pegel
    folderUid: pegel
    type: file
    disableDeletion: false
    updateIntervalSeconds: 30
    allowUiUpdates: false
    options:
      path: {path}
      foldersFromFilesStructure: false
"
    )
}

/// In double quotes, as JSON and YAML both have it. Grafana replaces variables in these files: two dollar signs
/// stand for one.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_looked_at_before_they_are_written() {
        let url = |text| HttpUrl::parse(text, "--url");
        for (text, is_encrypted, is_loopback) in [
            ("http://localhost:4242", false, true),
            ("http://127.0.0.7:4242/", false, true),
            ("http://[::1]:4242", false, true),
            ("https://nid1.example.org/pegel", true, false),
            ("http://localhost.example.org", false, false),
        ] {
            let url = url(text).expect(text);
            assert_eq!(
                (url.is_encrypted, url.is_loopback),
                (is_encrypted, is_loopback),
                "{text}"
            );
            assert!(!url.as_str().ends_with('/'));
        }
        for text in [
            "",
            "localhost:4242",
            "ftp://x",
            "http://",
            "http://:4242",
            "http://a b",
            "http://u:p@x",
            "http://x\n",
        ] {
            let message = url(text).expect_err(text).to_string();
            assert!(message.starts_with("--url "), "{message}");
        }
    }

    #[test]
    fn a_token_is_written_so_that_grafana_reads_it_back() {
        let url = HttpUrl::parse("http://localhost:4242", "--url").expect("valid");
        let yaml = opentsdb(&url, Some(&Secret::new("a$b\"c\\d")));
        assert!(
            yaml.contains(r#"httpHeaderValue1: "Bearer a$$b\"c\\d""#),
            "{yaml}"
        );
        assert!(!opentsdb(&url, None).contains("secureJsonData"));
    }
}
