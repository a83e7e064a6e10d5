//! The keys of the section `remote_write`.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use pegel_config::{
    ByteSize, ConfigProblem, ConfigTree, ConfigValue, Secret, Setting, TimeSpan, settings,
    text_setting,
};
use pegel_http_client::{Authorization, ServerUrl};
use pegel_metric::prometheus_names::label_key;
use pegel_query::promql::{LabelMatcher, LabelSet, parse_selector};

/// The most shards: each has a connection, and a thread while several have something to send.
const SHARDS_MAX: u32 = 64;
/// The shortest interval and timeout.
const TIME_MIN: Duration = Duration::from_millis(100);
/// The longest interval, and the longest timeout: `lag` is checked between them.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
const TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// The most samples of a request: what Pegel itself accepts.
const SAMPLES_PER_SEND_MAX: u32 = 100_000;

settings! {
    /// How samples are sent to one receiver of remote write.
    pub struct RemoteWriteSettings {
        /// The receiver, such as http://vm:8428/api/v1/write.
        url: Option<WriteUrl> = None,
        /// Names the target in metrics and messages. Without this key: host and port of the URL.
        name: Option<String> = None,
        /// The message to send: prometheus.WriteRequest is version 1.0,
        /// io.prometheus.write.v2.Request version 2.0. A receiver that does not read 2.0 gets 1.0.
        protobuf_message: WriteMessage = WriteMessage::V1,
        /// Send only series that one of these PromQL selectors matches. Without this key: all.
        keep: Vec<SeriesSelector> = Vec::new(),
        /// Do not send series that one of these PromQL selectors matches.
        drop: Vec<SeriesSelector> = Vec::new(),
        /// Labels for all series that do not have them.
        external_labels: BTreeMap<String, String> = BTreeMap::new(),
        /// More headers of requests, such as X-Scope-OrgID.
        headers: BTreeMap<String, Secret> = BTreeMap::new(),
        /// The user name of HTTP's basic authentication.
        user: Option<String> = None,
        /// A file with the password.
        password_file: Option<PathBuf> = None,
        /// A file with a token that is sent as `Authorization: Bearer TOKEN`.
        bearer_token_file: Option<PathBuf> = None,
        /// The certificates of authorities (PEM) for https URLs.
        ca_file: Option<PathBuf> = None,
        /// Verify the server's certificate.
        verify_peer: bool = true,
        /// How often new samples are sent, from 100ms to 1h.
        interval: TimeSpan = TimeSpan::seconds(5),
        /// How long one request may take, from 100ms to 10m.
        timeout: TimeSpan = TimeSpan::seconds(30),
        /// How many requests are under way at a time. The samples of a series stay in order.
        shards: NonZeroU32 = NonZeroU32::MIN,
        /// The most samples of a request.
        max_samples_per_send: NonZeroU32 = NonZeroU32::new(10_000).expect("not zero"),
        /// How many bytes of the log wait for the receiver, besides keep.bytes. Beyond that the
        /// oldest samples are dropped and counted. Without this key: 256MiB, or 16MiB if the store
        /// is on a tmpfs.
        lag: Option<ByteSize> = None,
    }
}

impl RemoteWriteSettings {
    /// Returns the name of the target.
    pub fn target_name(&self) -> String {
        let of_url = || self.url.as_ref().map(|url| url.0.host_and_port());
        self.name.clone().or_else(of_url).unwrap_or_default()
    }

    /// Returns a warning about a URL without a path: receivers accept samples below a path only.
    pub fn missing_path_warning(&self) -> Option<String> {
        let url = &self.url.as_ref()?.0;
        matches!(&*url.path, "" | "/").then(|| {
            format!(
                "remote_write: {url} has no path; VictoriaMetrics: /api/v1/write, Mimir: \
                 /api/v1/push"
            )
        })
    }

    pub(super) fn authorization(&self) -> Authorization<'_> {
        Authorization {
            bearer_token_file: self.bearer_token_file.as_deref(),
            user: self.user.as_deref(),
            password_file: self.password_file.as_deref(),
        }
    }

    /// Returns how many bytes of the log may wait.
    pub fn lag_bytes(&self) -> u64 {
        self.lag.as_ref().map_or(256 << 20, ByteSize::count)
    }
}

/// A validated entry of the list `remote_write`.
#[derive(Debug, Clone)]
pub struct RemoteWriteTarget(pub RemoteWriteSettings);

impl Setting for RemoteWriteTarget {
    fn accepts() -> String {
        "a receiver, such as {url: \"http://vm:8428/api/v1/write\"}".to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<RemoteWriteTarget> {
        let settings = RemoteWriteSettings::read(tree, problems)?;
        if let Some(message) = validation_error(&settings) {
            let accepts = RemoteWriteTarget::accepts();
            problems.push(ConfigProblem::value(tree, message, &accepts));
            return None;
        }
        Some(RemoteWriteTarget(settings))
    }

    fn to_value(&self) -> ConfigValue {
        self.0.to_value()
    }
}

/// The list `remote_write`, whose targets have different names.
#[derive(Debug, Clone, Default)]
pub struct RemoteWriteTargets(pub Vec<RemoteWriteTarget>);

impl Setting for RemoteWriteTargets {
    fn accepts() -> String {
        Vec::<RemoteWriteTarget>::accepts()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<RemoteWriteTargets> {
        let targets = Vec::<RemoteWriteTarget>::read(tree, problems)?;
        let mut names: Vec<String> = targets.iter().map(|one| one.0.target_name()).collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!(
                "two targets have the name {}; set name to tell them apart",
                twice[0]
            );
            let accepts = RemoteWriteTargets::accepts();
            problems.push(ConfigProblem::value(tree, message, &accepts));
            return None;
        }
        Some(RemoteWriteTargets(targets))
    }

    fn to_value(&self) -> ConfigValue {
        self.0.to_value()
    }
}

fn validation_error(settings: &RemoteWriteSettings) -> Option<String> {
    if settings.url.is_none() {
        return Some("url is missing".to_owned());
    }
    if settings.target_name().is_empty() {
        return Some("the name is empty".to_owned());
    }
    if settings.user.is_some() != settings.password_file.is_some() {
        return Some("user requires password_file, and vice versa".to_owned());
    }
    if settings.user.is_some() && settings.bearer_token_file.is_some() {
        return Some("set either user or bearer_token_file".to_owned());
    }
    let interval = settings.interval.duration();
    if !(TIME_MIN..=INTERVAL_MAX).contains(&interval) {
        return Some("interval is not between 100ms and 1h".to_owned());
    }
    let timeout = settings.timeout.duration();
    if !(TIME_MIN..=TIMEOUT_MAX).contains(&timeout) {
        return Some("timeout is not between 100ms and 10m".to_owned());
    }
    if settings.shards.get() > SHARDS_MAX {
        return Some(format!("shards exceeds {SHARDS_MAX}"));
    }
    if settings.max_samples_per_send.get() > SAMPLES_PER_SEND_MAX {
        return Some(format!(
            "max_samples_per_send exceeds {SAMPLES_PER_SEND_MAX}"
        ));
    }
    let mut labels = settings.external_labels.keys();
    if let Some(key) = labels.find(|key| key.is_empty() || label_key(key) != key.as_str()) {
        return Some(format!(
            "external_labels: {key:?} is not a label name of Prometheus"
        ));
    }
    settings.headers.iter().find_map(|(name, value)| {
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_token) {
            return Some(format!("headers: {name:?} is not the name of a header"));
        }
        if OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return Some(format!("headers: {name} is set by the agent"));
        }
        let value = value.reveal().as_bytes();
        let is_plain = value.iter().all(|byte| (b' '..=b'~').contains(byte));
        (!is_plain).then(|| format!("headers: the value of {name} is not printable ASCII"))
    })
}

/// Headers that every request has, or that its form requires.
const OWN_HEADERS: [&str; 9] = [
    "Authorization",
    "Connection",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "Host",
    "Retry-Attempt",
    "Transfer-Encoding",
    "X-Prometheus-Remote-Write-Version",
];

/// A URL to which samples are sent. Its path is shown; its query is not, it may contain a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteUrl(pub ServerUrl);

impl fmt::Display for WriteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A query may contain a key.
        let path = self.0.path.split('?').next().unwrap_or_default();
        let query = if path.len() < self.0.path.len() {
            "?[hidden]"
        } else {
            ""
        };
        write!(f, "{}{path}{query}", self.0)
    }
}

impl FromStr for WriteUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<WriteUrl, String> {
        text.parse().map(WriteUrl)
    }
}

text_setting!(WriteUrl, "a URL such as http://vm:8428/api/v1/write");

/// The version of remote write, by the name of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMessage {
    V1,
    V2,
}

impl fmt::Display for WriteMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WriteMessage::V1 => "prometheus.WriteRequest",
            WriteMessage::V2 => "io.prometheus.write.v2.Request",
        })
    }
}

impl FromStr for WriteMessage {
    type Err = String;

    fn from_str(text: &str) -> Result<WriteMessage, String> {
        [WriteMessage::V1, WriteMessage::V2]
            .into_iter()
            .find(|message| message.to_string() == text)
            .ok_or_else(|| format!("unknown message \"{text}\""))
    }
}

text_setting!(
    WriteMessage,
    "prometheus.WriteRequest or io.prometheus.write.v2.Request"
);

/// A PromQL selector of series.
#[derive(Debug, Clone)]
pub struct SeriesSelector {
    text: String,
    matchers: Vec<LabelMatcher>,
}

impl SeriesSelector {
    pub(super) fn matches(&self, labels: &LabelSet) -> bool {
        self.matchers.iter().all(|matcher| matcher.matches(labels))
    }
}

impl fmt::Display for SeriesSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for SeriesSelector {
    type Err = String;

    fn from_str(text: &str) -> Result<SeriesSelector, String> {
        let matchers = parse_selector(text).map_err(|error| error.to_string())?;
        Ok(SeriesSelector {
            text: text.to_owned(),
            matchers,
        })
    }
}

text_setting!(
    SeriesSelector,
    "a PromQL selector, such as {__name__=~\"node_.*\"}"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RemoteWriteTargets, String> {
        let text = format!("targets: {text}\n");
        let tree = pegel_config::parse("pegel.yaml".as_ref(), &text).expect("YAML");
        let ConfigValue::Map(entries) = &tree.value else {
            panic!("a map");
        };
        let read = pegel_config::read::<RemoteWriteTargets>(&entries[0].value);
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn a_target_needs_a_url_only() {
        let targets = read("[{url: 'http://vm:8428/api/v1/write'}]").expect("valid");
        let settings = &targets.0[0].0;
        assert_eq!(settings.target_name(), "vm:8428");
        assert_eq!(settings.protobuf_message, WriteMessage::V1);
        assert_eq!(settings.lag_bytes(), 256 << 20);
        let shown = targets.to_value().to_inline();
        assert!(shown.contains("http://vm:8428/api/v1/write"), "{shown}");
        let keyed = read("[{url: 'http://vm/w?key=planted', headers: {X-Key: planted}}]");
        let shown = keyed.expect("valid").to_value().to_inline();
        assert!(!shown.contains("planted"), "{shown}");
    }

    #[test]
    fn a_url_without_a_path_is_reported() {
        let warning = |url: &str| {
            let targets = read(&format!("[{{url: '{url}'}}]")).expect("valid");
            targets.0[0].0.missing_path_warning()
        };
        for url in ["http://vm:8428", "http://vm:8428/"] {
            let text = warning(url).expect("a warning");
            let expected =
                "remote_write: http://vm:8428 has no path; VictoriaMetrics: /api/v1/write";
            assert!(text.starts_with(expected), "{text}");
        }
        assert_eq!(warning("http://vm:8428/api/v1/write"), None);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("[{name: x}]", "url is missing"),
            ("[{url: 'vm:8428'}]", "http://"),
            (
                "[{url: 'http://a/1'}, {url: 'http://a/2'}]",
                "two targets have the name a:80",
            ),
            (
                "[{url: 'http://a', user: u}]",
                "user requires password_file",
            ),
            (
                "[{url: 'http://a', user: u, password_file: /p, bearer_token_file: /t}]",
                "set either user or bearer_token_file",
            ),
            ("[{url: 'http://a', shards: 65}]", "shards exceeds 64"),
            (
                "[{url: 'http://a', interval: 1ms}]",
                "interval is not between 100ms and 1h",
            ),
            (
                "[{url: 'http://a', interval: 2h}]",
                "interval is not between 100ms and 1h",
            ),
            (
                "[{url: 'http://a', timeout: 10ms}]",
                "timeout is not between 100ms and 10m",
            ),
            (
                "[{url: 'http://a', timeout: 1d}]",
                "timeout is not between 100ms and 10m",
            ),
            (
                "[{url: 'http://a', max_samples_per_send: 100001}]",
                "max_samples_per_send exceeds 100000",
            ),
            ("[{url: 'http://a', keep: ['sum(x)']}]", "selector"),
            ("[{url: 'http://a', drop: ['{}']}]", "selector"),
            (
                "[{url: 'http://a', external_labels: {a.b: c}}]",
                "\"a.b\" is not a label name",
            ),
            (
                "[{url: 'http://a', headers: {host: x}}]",
                "host is set by the agent",
            ),
            (
                "[{url: 'http://a', headers: {'a b': x}}]",
                "is not the name of a header",
            ),
            (
                "[{url: 'http://a', protobuf_message: v3}]",
                "io.prometheus.write.v2.Request",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
