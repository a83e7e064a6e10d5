//! How many connections there are descriptors for. A connection too many is refused; a descriptor too few
//! would be missing where the store writes its log.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::settings::Settings;

/// What the rest of the agent may need: the files of the collectors, the log, and the blocks that four
/// questions about days read at once.
const OTHERS: usize = 320;
/// Programs that are counted for others.
const WATCHED: usize = pegel_run::STATION_DESCRIPTORS_MAX;
/// A lane takes one. Where the limit does not allow that many, further lanes wait until there is room.
const LANES: usize = 4096;
/// How many refused clients per listener are told why at one time; others are only closed.
const FAREWELLS_MAX: usize = 32;

/// How many connections may be open at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub tcp: usize,
    pub socket: usize,
    /// Refused ones, on each listener.
    pub farewells: usize,
}

impl Allowance {
    /// Raises the soft limit where that is needed and allowed, and keeps to what there is.
    pub fn new(settings: &Settings) -> Allowance {
        let listeners = settings.listen.len() + 1;
        let wished = Allowance {
            tcp: settings.connections_max,
            socket: settings.socket_connections_max,
            farewells: FAREWELLS_MAX,
        };
        let limit = raise(OTHERS + LANES + WATCHED + wished.total(listeners));
        let allowed = wished.within(limit, listeners);
        if allowed != wished {
            tracing::warn!(
                open_files = limit,
                connections = allowed.tcp,
                "the limit on open files allows fewer connections than limits.connections"
            );
        }
        allowed
    }

    fn total(self, listeners: usize) -> usize {
        self.tcp
            .saturating_add(self.socket)
            .saturating_add(self.farewells * listeners)
    }

    /// Connections get what the others leave, and a quarter where that is more.
    fn within(self, limit: usize, listeners: usize) -> Allowance {
        let share = limit.saturating_sub(OTHERS).max(limit / 4);
        let farewells = self.farewells.min(share / 7 / listeners).max(1);
        let socket = self.socket.min((share / 4).max(1));
        let tcp = share.saturating_sub(socket + farewells * listeners).max(1);
        Allowance {
            tcp: self.tcp.min(tcp),
            socket,
            farewells,
        }
    }
}

/// The limit on open files, raised towards `wanted` if it was lower.
fn raise(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let raised = (wanted as u64).min(limit.maximum.unwrap_or(u64::MAX));
    let is_raised = raised > current
        && setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(raised),
                maximum: limit.maximum,
            },
        )
        .is_ok();
    let limit = if is_raised { raised } else { current };
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WISHED: Allowance = Allowance {
        tcp: 512,
        socket: 64,
        farewells: 32,
    };

    #[test]
    fn the_usual_limit_is_enough_for_the_defaults() {
        assert_eq!(WISHED.within(1024, 3), WISHED);
    }

    #[test]
    fn a_low_limit_leaves_most_to_the_rest_of_the_agent() {
        for limit in [0, 16, 64, 128, 256, 512, 1000] {
            let allowed = WISHED.within(limit, 3);
            assert!(allowed.tcp >= 1 && allowed.socket >= 1 && allowed.farewells >= 1);
            let others = limit.saturating_sub(allowed.total(3));
            assert!(
                others >= (limit * 3 / 4).min(OTHERS) || limit < 32,
                "{limit}: {allowed:?}"
            );
        }
        let allowed = WISHED.within(64, 2);
        assert_eq!((allowed.tcp, allowed.socket, allowed.farewells), (10, 4, 1));
    }
}
