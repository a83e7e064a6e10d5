//! The keys of the list `otlp`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use pegel_config::{
    ConfigProblem, ConfigTree, ConfigValue, Secret, Setting, TimeSpan, settings, text_setting,
};
use pegel_http_client::ServerUrl;

/// The path of a URL without one, as for OTEL_EXPORTER_OTLP_ENDPOINT.
const HTTP_PATH: &str = "/v1/metrics";

settings! {
    /// How values are sent to one receiver.
    pub struct OtlpSettings {
        /// The URL of the receiver. Without a path: /v1/metrics of it, over HTTP.
        url: OtlpUrl = OtlpUrl::local(),
        /// How requests are sent: http (protobuf) or grpc.
        protocol: OtlpProtocol = OtlpProtocol::Http,
        /// How often values are sent.
        interval: TimeSpan = TimeSpan::seconds(60),
        /// Patterns with * and ? for the names of the metrics to send. Without this key: all.
        names: Vec<String> = Vec::new(),
        /// Patterns for the names of metrics that are not sent, though one above matches them.
        except: Vec<String> = Vec::new(),
        /// Compress requests with gzip.
        gzip: bool = true,
        /// Headers of every request, such as authorization. Their values are never shown.
        headers: BTreeMap<String, Secret> = BTreeMap::new(),
        /// Attributes of the resource, besides service.name, service.instance.id, service.version
        /// and host.name, which they may replace.
        resource: BTreeMap<String, String> = BTreeMap::new(),
        /// The certificates of the authorities that sign the receiver's (PEM). Without this key:
        /// those of the system.
        ca_file: Option<PathBuf> = None => "/etc/pegel/ca.pem",
        /// Whether the certificate of the receiver is verified.
        verify_peer: bool = true,
        /// How long connecting and sending one request may take.
        timeout: TimeSpan = TimeSpan::seconds(10),
    }
}

/// A validated entry of the list `otlp`.
#[derive(Debug, Clone)]
pub struct OtlpReceiver(pub OtlpSettings);

impl Setting for OtlpReceiver {
    fn accepts() -> String {
        "a receiver of OTLP, such as {url: \"http://collector:4318\"}".to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<OtlpReceiver> {
        let settings = OtlpSettings::read(tree, problems)?;
        if let Some(message) = validation_error(&settings) {
            let accepts = OtlpReceiver::accepts();
            problems.push(ConfigProblem::value(tree, message, &accepts));
            return None;
        }
        Some(OtlpReceiver(settings))
    }

    fn to_value(&self) -> ConfigValue {
        self.0.to_value()
    }
}

fn validation_error(settings: &OtlpSettings) -> Option<String> {
    let has_path = !matches!(&*settings.url.0.path, "" | "/");
    if has_path && settings.protocol == OtlpProtocol::Grpc {
        return Some("protocol grpc accepts no path; remove it from the URL".to_owned());
    }
    let is_invalid = |name: &&String| {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        name.is_empty() || !name.chars().all(is_part)
    };
    let invalid = settings.headers.keys().find(is_invalid);
    if let Some(name) = invalid {
        return Some(format!("\"{name}\" is not the name of a header"));
    }
    let is_text = |value: &Secret| value.reveal().bytes().all(|b| (b' '..=b'~').contains(&b));
    let invalid = settings.headers.iter().find(|(_, value)| !is_text(value));
    invalid.map(|(name, _)| format!("headers: the value of {name} is not printable ASCII"))
}

impl OtlpSettings {
    /// Returns scheme, host and port, by which messages and metrics name the receiver.
    pub fn receiver_name(&self) -> String {
        self.url.0.to_string()
    }

    /// Returns the path of requests over HTTP.
    pub(super) fn http_path(&self) -> &str {
        match &*self.url.0.path {
            "" | "/" => HTTP_PATH,
            path => path,
        }
    }
}

/// The URL of a receiver. Its path may contain a secret and is never shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpUrl(pub ServerUrl);

impl OtlpUrl {
    fn local() -> OtlpUrl {
        OtlpUrl("http://localhost:4318".parse().expect("a valid URL"))
    }
}

impl fmt::Display for OtlpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for OtlpUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<OtlpUrl, String> {
        text.parse().map(OtlpUrl)
    }
}

text_setting!(OtlpUrl, "a URL such as http://127.0.0.1:4318");

/// The transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpProtocol {
    Http,
    Grpc,
}

impl fmt::Display for OtlpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OtlpProtocol::Http => "http",
            OtlpProtocol::Grpc => "grpc",
        })
    }
}

impl FromStr for OtlpProtocol {
    type Err = String;

    fn from_str(text: &str) -> Result<OtlpProtocol, String> {
        match text {
            "http" => Ok(OtlpProtocol::Http),
            "grpc" => Ok(OtlpProtocol::Grpc),
            _ => Err(format!("unknown protocol \"{text}\"")),
        }
    }
}

text_setting!(OtlpProtocol, "http or grpc");
