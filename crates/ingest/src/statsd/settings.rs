//! The settings of statsd and their value types. `config/pegel.yaml` is generated from the doc
//! comments.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;

use pegel_config::{ByteSize, ListenAddress, TimeSpan, settings, text_setting};

settings! {
    /// Addresses that receive statsd lines, and how the lines are summed.
    pub struct StatsdSettings {
        /// UDP addresses.
        udp: Vec<ListenAddress> = vec![ListenAddress::loopback(8125), ListenAddress::loopback(8126)],
        /// TCP addresses: the same lines, each ended by a newline.
        tcp: Vec<ListenAddress> = vec![ListenAddress::loopback(8125)],
        /// The UNIX datagram socket; auto: statsd.sock beside the push socket; off: none.
        unix: StatsdSocketPath = StatsdSocketPath::Auto,
        /// The UNIX stream socket; auto: statsd-stream.sock beside the push socket; off: none.
        unix_stream: StatsdSocketPath = StatsdSocketPath::Auto,
        /// Maximum number of threads that read UDP datagrams; auto: a quarter of the cores, up to
        /// four. One thread reads while it keeps up; the others help while a socket stays full.
        threads: ReceiverThreads = ReceiverThreads::Auto,
        /// Receive buffer of each socket in the kernel. Without the privilege to exceed it,
        /// net.core.rmem_max is the limit.
        receive_buffer: ByteSize = ByteSize::mebibytes(16),
        /// Close a TCP or UNIX stream connection that sent nothing for this long.
        connection_timeout: TimeSpan = TimeSpan::seconds(600),
        /// Length of the intervals for minima, maxima, percentiles and members of sets.
        flush: TimeSpan = TimeSpan::seconds(10),
        /// Percentiles of timers, histograms and distributions to publish.
        percentiles: Vec<Percentile> = vec![Percentile::of(50), Percentile::of(90), Percentile::of(99)],
        /// What to do with a metric that received no line for an interval: keep or delete. Stored
        /// samples stay.
        idle: IdlePolicy = IdlePolicy::Keep,
        /// The same for counters and meters only.
        idle_counters: Option<IdlePolicy> = None => "delete",
        /// The same for gauges only.
        idle_gauges: Option<IdlePolicy> = None => "delete",
        /// The same for timers, histograms and distributions only.
        idle_timers: Option<IdlePolicy> = None => "delete",
        /// The same for sets only.
        idle_sets: Option<IdlePolicy> = None => "delete",
        /// Whether counters also get NAME.increase, their growth in the last interval.
        counter_sum: bool = false,
        /// Whether timers get NAME.min.
        timer_lower: bool = true,
        /// Whether timers get NAME.max.
        timer_upper: bool = true,
        /// Whether timers get NAME.sum.
        timer_sum: bool = true,
        /// Whether timers get NAME.count.
        timer_count: bool = true,
        /// Memory for the buckets of timers and the members of sets.
        memory: ByteSize = ByteSize::mebibytes(32),
    }
}

/// The number of threads that read UDP datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverThreads {
    Auto,
    Count(NonZeroU32),
}

impl FromStr for ReceiverThreads {
    type Err = String;

    fn from_str(text: &str) -> Result<ReceiverThreads, String> {
        match text {
            "auto" => Ok(ReceiverThreads::Auto),
            count => count
                .parse()
                .map(ReceiverThreads::Count)
                .map_err(|_| format!("{count:?} is neither auto nor a whole number above 0")),
        }
    }
}

impl fmt::Display for ReceiverThreads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReceiverThreads::Auto => f.write_str("auto"),
            ReceiverThreads::Count(count) => count.fmt(f),
        }
    }
}

text_setting!(ReceiverThreads, "auto, or a number above 0");

/// The path of a UNIX socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatsdSocketPath {
    Auto,
    Off,
    Path(PathBuf),
}

impl FromStr for StatsdSocketPath {
    type Err = String;

    fn from_str(text: &str) -> Result<StatsdSocketPath, String> {
        match text {
            "auto" => Ok(StatsdSocketPath::Auto),
            "off" | "false" | "no" => Ok(StatsdSocketPath::Off),
            path if path.starts_with('/') && !path.contains('\0') => {
                Ok(StatsdSocketPath::Path(path.into()))
            }
            other => Err(format!(
                "{other:?} is neither auto, nor off, nor a path that begins with /"
            )),
        }
    }
}

impl fmt::Display for StatsdSocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatsdSocketPath::Auto => f.write_str("auto"),
            StatsdSocketPath::Off => f.write_str("off"),
            StatsdSocketPath::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

text_setting!(StatsdSocketPath, "auto, off, or a path that begins with /");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdlePolicy {
    Keep,
    Delete,
}

impl FromStr for IdlePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<IdlePolicy, String> {
        match text {
            "keep" => Ok(IdlePolicy::Keep),
            "delete" => Ok(IdlePolicy::Delete),
            other => Err(format!("{other:?} is neither keep nor delete")),
        }
    }
}

impl fmt::Display for IdlePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IdlePolicy::Keep => "keep",
            IdlePolicy::Delete => "delete",
        })
    }
}

text_setting!(IdlePolicy, "keep or delete");

/// A percentile, above 0 and at most 100; written as it appears in names: `p99.9`.
#[derive(Debug, Clone, PartialEq)]
pub struct Percentile {
    text: String,
    percent: f64,
}

impl Percentile {
    fn of(percent: u8) -> Percentile {
        Percentile {
            text: percent.to_string(),
            percent: f64::from(percent),
        }
    }

    pub fn get(&self) -> f64 {
        self.percent
    }
}

impl FromStr for Percentile {
    type Err = String;

    fn from_str(text: &str) -> Result<Percentile, String> {
        let trimmed = text.trim();
        let is_plain = trimmed.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        match trimmed.parse::<f64>() {
            Ok(percent) if is_plain && percent > 0.0 && percent <= 100.0 => Ok(Percentile {
                text: trimmed.to_owned(),
                percent,
            }),
            _ => Err(format!("{text:?} is not a number above 0 and at most 100")),
        }
    }
}

impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

text_setting!(
    Percentile,
    "a number above 0 and at most 100, such as 50 or 99.9"
);
