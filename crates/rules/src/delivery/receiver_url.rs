//! URLs of receivers.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use pegel_config::{ConfigProblem, ConfigTree, ConfigValue, Setting, read_scalar};
use pegel_http_client::ServerUrl;

/// A URL to which requests are sent: `http[s]://HOST[:PORT][/PATH]`. Its path may be a secret, as
/// those of many webhooks are: only scheme, host and port are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverUrl(ServerUrl);

const ACCEPTS: &str = "a URL such as http://127.0.0.1:9093";

impl Deref for ReceiverUrl {
    type Target = ServerUrl;

    fn deref(&self) -> &ServerUrl {
        &self.0
    }
}

impl fmt::Display for ReceiverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ReceiverUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<ReceiverUrl, String> {
        text.parse().map(ReceiverUrl)
    }
}

impl Setting for ReceiverUrl {
    fn accepts() -> String {
        ACCEPTS.to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<ReceiverUrl> {
        read_scalar(tree, problems, str::parse)
    }

    fn to_value(&self) -> ConfigValue {
        let hidden = if self.path.len() > 1 { "/[hidden]" } else { "" };
        ConfigValue::Scalar(format!("{self}{hidden}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_receivers_are_not_shown() {
        let secret: ReceiverUrl = "https://a:8443/hooks/secret".parse().expect("valid");
        assert_eq!(secret.to_string(), "https://a:8443");
        assert!(!format!("{secret:?}").contains("hooks"));
        assert_eq!(
            secret.to_value(),
            ConfigValue::Scalar("https://a:8443/[hidden]".to_owned())
        );
    }
}
