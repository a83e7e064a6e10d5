//! Classes of inputs. Each has its own blocks and a share of `keep.bytes`, so that an input that
//! fills the disk drops its own history and no other's. A series belongs to the class of its
//! family's input.

use pegel_metric::{Input, Series};

/// The class of inputs whose samples a block holds. The order is that of precedence: of the blocks
/// written from one head, later classes have higher ids, so that points take precedence over
/// groups, as they do in a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum InputClass {
    /// All inputs: blocks written before classes existed. Accounted to the node.
    Mixed,
    /// The node's own collectors.
    Node,
    /// Values that programs count in lanes.
    Lanes,
    Statsd,
    /// Points received over the socket and HTTP, and those that the agent read by itself.
    Points,
    /// Series of other systems, received by remote write.
    Remote,
    /// Series that the agent computes: results of rules, and values of a parent's nodes, reduced.
    Derived,
}

impl InputClass {
    pub(crate) const ALL: [InputClass; 7] = [
        InputClass::Mixed,
        InputClass::Node,
        InputClass::Lanes,
        InputClass::Statsd,
        InputClass::Points,
        InputClass::Remote,
        InputClass::Derived,
    ];
    /// Classes that have shares.
    pub(crate) const WITH_SHARES: [InputClass; 6] = [
        InputClass::Node,
        InputClass::Lanes,
        InputClass::Statsd,
        InputClass::Points,
        InputClass::Remote,
        InputClass::Derived,
    ];
    /// Classes other than the node's. They are the first to return bytes beyond their shares.
    pub(crate) const PROGRAM_CLASSES: [InputClass; 5] = [
        InputClass::Lanes,
        InputClass::Statsd,
        InputClass::Points,
        InputClass::Remote,
        InputClass::Derived,
    ];

    pub(crate) fn of(series: &Series) -> InputClass {
        match series.family().input {
            Input::Collect => InputClass::Node,
            Input::Programs | Input::Lane => InputClass::Lanes,
            Input::Statsd => InputClass::Statsd,
            Input::Push
            | Input::Http
            | Input::Put
            | Input::Pull
            | Input::Influx
            | Input::Pushgateway
            | Input::Otlp => InputClass::Points,
            Input::RemoteWrite => InputClass::Remote,
            Input::Rules | Input::Tree => InputClass::Derived,
        }
    }

    /// Returns the name used in `/status`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            InputClass::Mixed => "mixed",
            InputClass::Node => "node",
            InputClass::Lanes => "lanes",
            InputClass::Statsd => "statsd",
            InputClass::Points => "points",
            InputClass::Remote => "remote_write",
            InputClass::Derived => "derived",
        }
    }

    /// Returns the class with this code in a block's header.
    pub(crate) fn from_code(code: u32) -> Option<InputClass> {
        InputClass::ALL
            .into_iter()
            .find(|class| *class as u32 == code)
    }

    /// Returns the class to which the bytes of this one are accounted.
    pub(crate) fn accounted_to(self) -> InputClass {
        match self {
            InputClass::Mixed => InputClass::Node,
            class => class,
        }
    }

    /// Returns how much of `bytes` is reserved for the class: half for the node, a tenth for
    /// each of the others.
    pub(crate) fn share(self, bytes: u64) -> u64 {
        match self.accounted_to() {
            InputClass::Node | InputClass::Mixed => bytes / 2,
            InputClass::Lanes
            | InputClass::Statsd
            | InputClass::Points
            | InputClass::Remote
            | InputClass::Derived => bytes / 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fit_together_and_codes_read_back() {
        for bytes in [0, 1, 7, 1 << 30, u64::MAX] {
            let shares = InputClass::WITH_SHARES
                .iter()
                .map(|class| class.share(bytes));
            let shares: u64 = shares.sum();
            assert!(shares <= bytes, "{shares} of {bytes}");
        }
        for class in InputClass::ALL {
            assert_eq!(InputClass::from_code(class as u32), Some(class));
        }
        assert_eq!(InputClass::from_code(7), None);
    }
}
