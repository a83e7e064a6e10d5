//! Distributes the limit on open files among all components that open them. A connection or lane
//! beyond its share is refused or waits; without shares, the store could lack a descriptor for its
//! log.

use std::num::NonZeroU32;

use pegel_ingest::lanes::LanesSettings;
use pegel_ingest::statsd::StatsdListenOptions;
use pegel_run::DESCRIPTORS_PER_PROGRAM;
use pegel_serve::ServeSettings;
use pegel_store::StoreOptions;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for the agent itself: files of the collectors, the log, blocks that are being
/// written, listeners. An idle agent on a small node has about 60 open.
const RESERVED_MIN: usize = 96;
const RESERVED_MAX: usize = 320;
/// With fewer descriptors there is no room for connections.
pub(crate) const DESCRIPTORS_MIN: usize = 112;

/// How many descriptors each component may have open at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorBudget {
    /// Connections over TCP and on the UNIX socket.
    pub tcp: usize,
    pub socket: usize,
    /// Refused clients that are sent the reason, over all listeners.
    pub refusals: usize,
    /// Files of blocks that are being read.
    pub blocks: usize,
    /// Connections that send statsd lines.
    pub statsd: usize,
    pub lanes: usize,
    /// For programs that are watched for wrappers.
    pub programs: usize,
}

impl DescriptorBudget {
    /// Distributes what a limit leaves, by weight. What a component does not request goes to the
    /// others.
    pub(crate) fn shared_within(self, limit: usize) -> DescriptorBudget {
        let requests = self.to_array();
        let mut shares = [0; 7];
        let mut rest = limit.saturating_sub(reserved(limit));
        let mut open: Vec<usize> = (0..requests.len()).collect();
        loop {
            let weights: usize = open.iter().map(|part| WEIGHTS[*part]).sum();
            let share = |part: usize| rest * WEIGHTS[part] / weights.max(1);
            let Some(at) = open.iter().position(|part| requests[*part] <= share(*part)) else {
                for part in open {
                    shares[part] = share(part);
                }
                return DescriptorBudget::from_array(shares);
            };
            let part = open.remove(at);
            shares[part] = requests[part];
            rest -= requests[part];
        }
    }

    /// The limit that satisfies every request.
    pub(crate) fn required_limit(self) -> usize {
        let requests = self.to_array();
        requests
            .iter()
            .fold(RESERVED_MAX, |sum, request| sum.saturating_add(*request))
    }

    fn to_array(self) -> [usize; 7] {
        [
            self.tcp,
            self.socket,
            self.refusals,
            self.blocks,
            self.statsd,
            self.programs,
            self.lanes,
        ]
    }

    fn from_array(
        [tcp, socket, refusals, blocks, statsd, programs, lanes]: [usize; 7],
    ) -> DescriptorBudget {
        DescriptorBudget {
            tcp: tcp.max(2),
            socket: socket.max(2),
            refusals,
            blocks,
            statsd: statsd.max(1),
            programs,
            lanes,
        }
    }

    /// Reads the requests from the settings and lowers them to what the limit on open files
    /// permits. Returns the limit.
    pub(crate) fn distribute(
        store: &mut StoreOptions,
        serve: &mut ServeSettings,
        statsd: &mut StatsdListenOptions,
        lanes: Option<&mut LanesSettings>,
        programs_max: &mut usize,
    ) -> usize {
        let listeners = serve.listen.len() + 1;
        let requested = DescriptorBudget {
            tcp: serve.limits.connections.get() as usize,
            socket: serve.socket_connections_max,
            refusals: serve.refusals_max * listeners,
            blocks: store.block_files_max * serve.queries_max,
            statsd: statsd.connections,
            programs: *programs_max * DESCRIPTORS_PER_PROGRAM,
            lanes: lanes.as_ref().map_or(0, |lanes| lanes.lanes_max),
        };
        let wanted = requested.required_limit();
        let limit = reachable_limit(wanted.saturating_add(udp_descriptors(statsd)));
        statsd.threads = udp_threads(statsd, limit);
        let shares = requested.shared_within(limit.saturating_sub(udp_descriptors(statsd)));
        serve.limits.connections = connections(shares.tcp);
        serve.socket_connections_max = shares.socket;
        serve.refusals_max = (shares.refusals / listeners).max(1);
        *programs_max = shares.programs / DESCRIPTORS_PER_PROGRAM;
        store.block_files_max = (shares.blocks / serve.queries_max.max(1)).max(1);
        statsd.connections = shares.statsd;
        if let Some(lanes) = lanes {
            lanes.lanes_max = shares.lanes;
        }
        limit
    }
}

fn connections(count: usize) -> NonZeroU32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}

/// Weights in the order of [`DescriptorBudget::to_array`].
const WEIGHTS: [usize; 7] = [3, 3, 1, 3, 2, 2, 18];

/// The descriptors of statsd's UDP sockets beyond the first one of each address, which counts as a
/// listener. Each thread has one socket per address, and a duplicate of it to read its drop
/// counter.
fn udp_descriptors(statsd: &StatsdListenOptions) -> usize {
    statsd.threads.saturating_sub(1) * statsd.keys.udp.len() * 2
}

/// The number of statsd threads whose sockets take at most a sixteenth of the limit.
fn udp_threads(statsd: &StatsdListenOptions, limit: usize) -> usize {
    let most = limit / 16 / (2 * statsd.keys.udp.len()).max(1);
    statsd.threads.min(most).max(1)
}

fn reserved(limit: usize) -> usize {
    (limit / 4).clamp(RESERVED_MIN, RESERVED_MAX)
}

/// The limit on open files that [`raise_limit`] can reach, up to `wanted`.
pub(crate) fn reachable_limit(wanted: usize) -> usize {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    let most = (wanted as u64).min(limit.maximum.unwrap_or(u64::MAX));
    usize::try_from(most.max(current)).unwrap_or(usize::MAX)
}

/// Raises the soft limit on open files to what [`reachable_limit`] returned.
pub(crate) fn raise_limit(to: usize) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < to as u64) {
        let raised = Rlimit {
            current: Some(to as u64),
            maximum: limit.maximum,
        };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "cannot raise the limit on open files");
        }
    }
}

#[cfg(test)]
mod tests {
    use pegel_config::ListenAddress;
    use pegel_ingest::lanes::LANES_MAX;
    use pegel_ingest::statsd::StatsdSettings;
    use pegel_run::PROGRAMS_MAX;

    use super::*;

    const REQUESTED: DescriptorBudget = DescriptorBudget {
        tcp: 512,
        socket: 576,
        refusals: 96,
        blocks: 256,
        statsd: 256,
        lanes: LANES_MAX,
        programs: PROGRAMS_MAX * DESCRIPTORS_PER_PROGRAM,
    };

    #[test]
    fn parts_stay_within_the_limit_and_leave_what_the_agent_needs() {
        for limit in DESCRIPTORS_MIN..5_000 {
            let shares = REQUESTED.shared_within(limit);
            let used: usize = shares.to_array().iter().sum();
            assert!(used + reserved(limit) <= limit, "{limit}: {shares:?}");
            assert!(shares.tcp >= 2 && shares.socket >= 2 && shares.statsd >= 1);
        }
    }

    #[test]
    fn sockets_of_statsd_threads_are_part_of_the_limit() {
        let mut statsd = StatsdListenOptions::new(&StatsdSettings::default(), None, false);
        for (addresses, threads) in [(0, 64), (1, 64), (2, 4), (2, 64), (16, 64)] {
            statsd.keys.udp = vec![ListenAddress::loopback(8125); addresses];
            for limit in DESCRIPTORS_MIN..5_000 {
                statsd.threads = threads;
                statsd.threads = udp_threads(&statsd, limit);
                let sockets = udp_descriptors(&statsd);
                let shares = REQUESTED.shared_within(limit - sockets);
                let used = shares.to_array().iter().sum::<usize>() + sockets;
                let reserved = reserved(limit - sockets);
                assert!(used + reserved <= limit, "{limit}: {shares:?}, {sockets}");
                assert!(statsd.threads >= 1 && sockets <= limit / 16);
            }
        }
    }

    #[test]
    fn threads_of_statsd_are_limited_by_few_descriptors_only() {
        let mut statsd = StatsdListenOptions::new(&StatsdSettings::default(), None, false);
        assert_eq!(statsd.keys.udp.len(), 2);
        statsd.threads = 64;
        assert_eq!(udp_threads(&statsd, 256), 4);
        assert_eq!(udp_threads(&statsd, 1024), 16);
        assert_eq!(udp_threads(&statsd, 8192), 64);
        statsd.threads = 4;
        assert_eq!(udp_threads(&statsd, 256), 4, "the most that auto starts");
    }

    #[test]
    fn a_limit_of_1024_has_room_for_400_lanes_and_a_large_one_for_everything() {
        let shares = REQUESTED.shared_within(1024);
        assert!(shares.lanes >= 400, "{shares:?}");
        assert!(shares.tcp >= 64 && shares.socket >= 64, "{shares:?}");
        let all = REQUESTED.shared_within(REQUESTED.required_limit());
        assert_eq!(all, REQUESTED);
    }

    #[test]
    fn what_one_part_does_not_need_goes_to_the_others() {
        let few_lanes = DescriptorBudget {
            lanes: 10,
            ..REQUESTED
        };
        let shares = few_lanes.shared_within(1024);
        assert_eq!(shares.lanes, 10);
        assert!(shares.tcp > REQUESTED.shared_within(1024).tcp, "{shares:?}");
    }
}
