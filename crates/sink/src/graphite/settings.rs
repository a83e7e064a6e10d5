//! The keys of the section `graphite`.

use std::fmt;
use std::str::FromStr;

use pegel_config::{
    ByteSize, ConfigProblem, ConfigTree, ConfigValue, OptionalTimeSpan, Setting, TimeSpan,
    settings, text_setting,
};

settings! {
    /// How values are sent to one Graphite server.
    pub struct GraphiteSettings {
        /// The host on which carbon runs.
        host: String = "localhost".to_owned(),
        /// The port of carbon: usually 2003 for plaintext, 2004 for pickle.
        port: u16 = 2003,
        protocol: GraphiteProtocol = GraphiteProtocol::Tcp,
        /// The format of batches: one line for each value, or Python's pickle.
        format: GraphiteFormat = GraphiteFormat::Plaintext,
        /// How often values are sent.
        interval: TimeSpan = TimeSpan::seconds(10),
        /// Patterns with * and ? for the names of the metrics to send. Without this key: all.
        names: Vec<String> = Vec::new(),
        /// How a path is made from name and labels: as collectd does, or from the name alone.
        paths: PathStyle = PathStyle::Collectd,
        /// Text before the host in a path. End it with a dot to make a folder.
        prefix: Option<String> = None => "collectd.",
        /// Text directly after the host in a path.
        postfix: Option<String> = None => ".pegel",
        /// The host in paths. Without this key: the name of this node.
        host_name: Option<String> = None => "nid0001",
        /// Send counters as increase per second instead of totals.
        store_rates: bool = true,
        /// Append `.value`, collectd's name for a single data source, to every path.
        always_append_ds: bool = false,
        /// Replaces characters that a path cannot contain.
        escape_character: EscapeCharacter = EscapeCharacter('_'),
        /// Put the instances of plugin and type into folders of their own.
        separate_instances: bool = false,
        /// Keep dots of names and labels, so that they make folders.
        preserve_separator: bool = false,
        /// Write a part of the path that equals the one before it only once.
        drop_duplicate_fields: bool = false,
        /// Send Graphite's tags instead of folders.
        use_tags: bool = false,
        /// Reverse the parts of the host: a.b.c becomes c.b.a.
        reverse_host: bool = false,
        /// Close the connection and open it again after this time; 0 is never.
        reconnect_interval: OptionalTimeSpan = OptionalTimeSpan::NEVER,
        /// Log failures to connect or send. They are counted in any case.
        log_send_errors: bool = true,
        /// How long connecting, or sending one batch, may take.
        timeout: TimeSpan = TimeSpan::seconds(10),
        /// How many bytes wait on disk while the server does not accept them. When they are used
        /// up, the oldest values are dropped and counted.
        spool_bytes: ByteSize = ByteSize::mebibytes(64),
    }
}

/// A validated entry of the list `graphite`.
#[derive(Debug, Clone)]
pub struct GraphiteServer(pub GraphiteSettings);

impl Setting for GraphiteServer {
    fn accepts() -> String {
        "a Graphite server, such as {host: carbon1, port: 2003}".to_owned()
    }

    fn read(tree: &ConfigTree, problems: &mut Vec<ConfigProblem>) -> Option<GraphiteServer> {
        let settings = GraphiteSettings::read(tree, problems)?;
        if let Some(message) = validation_error(&settings) {
            let accepts = GraphiteServer::accepts();
            problems.push(ConfigProblem::value(tree, message.to_owned(), &accepts));
            return None;
        }
        Some(GraphiteServer(settings))
    }

    fn to_value(&self) -> ConfigValue {
        self.0.to_value()
    }
}

fn validation_error(settings: &GraphiteSettings) -> Option<&'static str> {
    let is_pickle = settings.format == GraphiteFormat::Pickle;
    if is_pickle && settings.protocol == GraphiteProtocol::Udp {
        return Some("carbon accepts pickle over TCP only: set protocol: tcp");
    }
    if settings.port == 0 {
        return Some("the port is 0");
    }
    None
}

impl GraphiteSettings {
    /// Returns host and port, by which messages and metrics name the server.
    pub fn server_name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Declares an enum whose values are words in the configuration.
macro_rules! words {
    ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $value_doc:literal])* $value:ident = $word:literal),* $(,)? }) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $value_doc])* $value,)*
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$value => $word,)* })
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($word => Ok($name::$value),)*
                    _ => Err(format!("\"{text}\" is none of them")),
                }
            }
        }

        text_setting!($name, [$($word),*].join(" or "));
    };
}

words! {
    /// The transport.
    GraphiteProtocol { Tcp = "tcp", Udp = "udp" }
}

words! {
    /// The format of a batch.
    GraphiteFormat { Plaintext = "plaintext", Pickle = "pickle" }
}

words! {
    /// How a path is made from name and labels.
    PathStyle {
        /// `host.plugin-instance.type-instance`.
        Collectd = "collectd",
        /// The name, then the values of labels.
        Name = "name",
    }
}

/// A character that may stand in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EscapeCharacter(pub char);

impl fmt::Display for EscapeCharacter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for EscapeCharacter {
    type Err = String;

    fn from_str(text: &str) -> Result<EscapeCharacter, String> {
        let mut characters = text.chars();
        match (characters.next(), characters.next()) {
            (Some(c), None) if !super::path::must_escape(c, false) => Ok(EscapeCharacter(c)),
            (Some(_), None) => Err(format!("\"{text}\" is not allowed in a path itself")),
            _ => Err(format!("\"{text}\" is not a single character")),
        }
    }
}

text_setting!(EscapeCharacter, "a single character");
