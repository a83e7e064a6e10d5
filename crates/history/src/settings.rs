//! The section `history` of the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::path::PathBuf;
use std::str::FromStr;

use pegel_config::{
    ByteSize, ConfigKey, ConfigProblem, ConfigTree, ConfigValue, Secret, Setting, TimeSpan,
    read_scalar, settings, text_setting,
};
use pegel_http_client::ServerUrl;

settings! {
    /// An engine with samples that are older than the store.
    pub struct HistorySettings {
        /// The URL before /api/v1 of VictoriaMetrics, Mimir, Thanos or Prometheus. Without this key
        /// queries see the store alone.
        url: Option<EngineUrl> = None => "http://vm:8428",
        /// How samples are read: remote_read, query, or auto, which uses remote_read where the
        /// engine has it.
        api: HistoryApi = HistoryApi::Auto,
        /// Labels that the engine has in addition to those of this agent, as remote write or
        /// Prometheus' external_labels add them. Series must have them, and answers are without
        /// them. Without this key: series whose label instance is that of this agent.
        external_labels: BTreeMap<String, String> = BTreeMap::new(),
        /// Additional headers of requests, such as X-Scope-OrgID.
        headers: BTreeMap<String, Secret> = BTreeMap::new(),
        /// The user name of HTTP's basic authentication.
        user: Option<String> = None => "pegel",
        /// A file with the password.
        password_file: Option<PathBuf> = None => "/etc/pegel/history.password",
        /// A file with a token that is sent as `Authorization: Bearer TOKEN`.
        bearer_token_file: Option<PathBuf> = None => "/etc/pegel/history.token",
        /// The certificates of authorities (PEM) for https URLs. Without this key: those of the
        /// system.
        ca_file: Option<PathBuf> = None => "/etc/pegel/ca.pem",
        /// Verify the server's certificate.
        verify_peer: bool = true,
        /// How long the history may take of one query, for each of its selectors.
        timeout: TimeSpan = TimeSpan::seconds(10),
        /// The memory for the samples of one selector, and the most bytes of one response.
        bytes: ByteSize = ByteSize::mebibytes(64),
        /// How many requests are sent to the engine at one time.
        concurrency: NonZeroU32 = NonZeroU32::new(4).expect("not 0"),
        /// The memory for answers that are kept: samples that are older than the store do not
        /// change.
        cache: ByteSize = ByteSize::mebibytes(16),
        /// How far back samples are read from the engine.
        reach: TimeSpan = TimeSpan::seconds(400 * 86_400),
    }
}

/// Headers that every request has, or that its form requires.
const OWN_HEADERS: [&str; 9] = [
    "Accept-Encoding",
    "Authorization",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Host",
    "Transfer-Encoding",
    "X-Prometheus-Remote-Read-Version",
];

/// The section, whose keys are checked together.
#[derive(Debug, Clone, Default)]
pub struct HistoryConfig(pub HistorySettings);

impl Setting for HistoryConfig {
    fn accepts() -> String {
        "an engine, such as {url: \"http://vm:8428\"}".to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<HistoryConfig> {
        let settings = HistorySettings::read(tree, problems)?;
        if let Some((key, message)) = settings.validation_error() {
            let message = format!("{key}: {message}");
            problems.push(ConfigProblem::value(
                tree,
                message,
                &HistoryConfig::accepts(),
            ));
            return None;
        }
        Some(HistoryConfig(settings))
    }

    fn to_value(&self) -> ConfigValue {
        self.0.to_value()
    }

    fn keys() -> Vec<ConfigKey> {
        <HistorySettings as Setting>::keys()
    }
}

/// The API by which samples are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryApi {
    Auto,
    RemoteRead,
    Query,
}

impl HistoryApi {
    const ALL: [HistoryApi; 3] = [HistoryApi::Auto, HistoryApi::RemoteRead, HistoryApi::Query];

    pub fn as_str(self) -> &'static str {
        match self {
            HistoryApi::Auto => "auto",
            HistoryApi::RemoteRead => "remote_read",
            HistoryApi::Query => "query",
        }
    }
}

impl fmt::Display for HistoryApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for HistoryApi {
    type Err = String;

    fn from_str(text: &str) -> Result<HistoryApi, String> {
        let known = HistoryApi::ALL.into_iter().find(|api| api.as_str() == text);
        known.ok_or_else(|| format!("unknown API {text:?}"))
    }
}

text_setting!(HistoryApi, "auto, remote_read or query");

/// The URL of an engine: `http[s]://HOST[:PORT][/PATH]`. Only scheme, host and port are shown: the
/// path may name a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineUrl(ServerUrl);

impl Deref for EngineUrl {
    type Target = ServerUrl;

    fn deref(&self) -> &ServerUrl {
        &self.0
    }
}

impl FromStr for EngineUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<EngineUrl, String> {
        let url: ServerUrl = text.trim_end_matches('/').parse()?;
        if url.path.contains('?') {
            return Err("the URL has a query; only a path before /api/v1 is accepted".to_owned());
        }
        if url.path.ends_with("/api/v1") {
            return Err("remove /api/v1 from the URL; it is appended".to_owned());
        }
        Ok(EngineUrl(url))
    }
}

impl Setting for EngineUrl {
    fn accepts() -> String {
        "a URL such as http://vm:8428".to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<EngineUrl> {
        read_scalar(tree, problems, str::parse)
    }

    fn to_value(&self) -> ConfigValue {
        let hidden = if self.path.len() > 1 { "/[hidden]" } else { "" };
        ConfigValue::Scalar(format!("{}{hidden}", self.0))
    }
}

impl HistorySettings {
    /// Returns the key that contradicts another one or is malformed, and why.
    pub fn validation_error(&self) -> Option<(&'static str, String)> {
        if self.url.is_none() {
            let has_others = !self.external_labels.is_empty()
                || !self.headers.is_empty()
                || self.user.is_some()
                || self.bearer_token_file.is_some();
            return has_others.then(|| ("url", "url is missing".to_owned()));
        }
        if self.user.is_some() != self.password_file.is_some() {
            let message = "user requires password_file, and vice versa".to_owned();
            return Some(("user", message));
        }
        if self.user.is_some() && self.bearer_token_file.is_some() {
            return Some(("user", "set either user or bearer_token_file".to_owned()));
        }
        let is_token = |text: &str| {
            let mut bytes = text.bytes();
            !text.is_empty() && bytes.all(|next| next.is_ascii_alphanumeric() || next == b'-')
        };
        let is_plain = |text: &str| text.bytes().all(|next| (b' '..=b'~').contains(&next));
        for (name, value) in &self.headers {
            if OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
                return Some(("headers", format!("{name} is set by the agent")));
            }
            if !is_token(name) || !is_plain(value.reveal()) {
                return Some(("headers", format!("{name:?} is not a header")));
            }
        }
        for (name, value) in &self.external_labels {
            let key = pegel_metric::prometheus_names::label_key(name);
            if key != *name || name.is_empty() || value.is_empty() {
                let message = format!("{name:?} is not a label with a value");
                return Some(("external_labels", message));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_path_and_no_query() {
        let url: EngineUrl = "http://mimir:9009/prometheus/".parse().expect("valid");
        assert_eq!(url.path, "/prometheus");
        assert!("http://vm:8428/?a=b".parse::<EngineUrl>().is_err());
        let api = "http://vm:8428/api/v1/".parse::<EngineUrl>();
        assert!(api.expect_err("refused").contains("remove /api/v1"));
        assert!("vm:8428".parse::<EngineUrl>().is_err());
        assert_eq!(
            url.to_value(),
            ConfigValue::Scalar("http://mimir:9009/[hidden]".to_owned())
        );
    }

    #[test]
    fn contradictions_are_named() {
        let base = || HistorySettings {
            url: "http://vm:8428".parse().ok(),
            ..HistorySettings::default()
        };
        assert_eq!(HistorySettings::default().validation_error(), None);
        assert_eq!(base().validation_error(), None);
        let key = |settings: HistorySettings| settings.validation_error().map(|(key, _)| key);
        let mut settings = base();
        settings.user = Some("u".into());
        assert_eq!(key(settings), Some("user"));
        let mut settings = base();
        settings.headers.insert("X Y".into(), Secret::new("1"));
        assert_eq!(key(settings), Some("headers"));
        let mut settings = base();
        let value = Secret::new("Basic x");
        settings.headers.insert("authorization".into(), value);
        assert_eq!(key(settings), Some("headers"));
        let mut settings = base();
        settings.external_labels.insert("a.b".into(), "1".into());
        assert_eq!(key(settings), Some("external_labels"));
        let settings = HistorySettings {
            user: Some("u".into()),
            ..HistorySettings::default()
        };
        assert_eq!(key(settings), Some("url"));
    }

    #[test]
    fn values_of_headers_are_not_shown() {
        let mut settings = HistorySettings {
            url: "http://vm:8428".parse().ok(),
            ..HistorySettings::default()
        };
        let value = Secret::new("planted");
        settings.headers.insert("X-Api-Key".into(), value);
        assert_eq!(settings.validation_error(), None);
        let config = HistoryConfig(settings);
        let shown = config.to_value().to_inline();
        assert!(shown.contains("X-Api-Key"), "{shown}");
        assert!(!shown.contains("planted"), "{shown}");
        assert!(!format!("{config:?}").contains("planted"));
    }
}
