//! Distributes the limit on open files among all components that open them. A connection, lane,
//! child or session beyond its share is refused or waits; without shares, the store could lack a
//! descriptor for its log.

use std::num::NonZeroU32;

use pegel_ingest::lanes::LanesSettings;
use pegel_ingest::statsd::StatsdListenOptions;
use pegel_run::DESCRIPTORS_PER_PROGRAM;
use pegel_serve::ServeSettings;
use pegel_session::SessionSettings;
use pegel_store::StoreOptions;
use pegel_tree::TreeSettings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::AgentConfig;

/// Descriptors for the agent itself: files of the collectors, the log, blocks that are being
/// written, listeners. An idle agent on a small node has about 60 open.
const RESERVED_MIN: usize = 96;
const RESERVED_MAX: usize = 320;
/// With fewer descriptors there is no room for connections.
const DESCRIPTORS_MIN: usize = 112;
/// A connection of a blocking client: its socket, and the event queue that waits for it.
const CLIENT_DESCRIPTORS: usize = 6;
/// A task that is recorded: its process and cgroup, the spool, and the connection to its storage.
const SESSION_DESCRIPTORS: usize = 12;

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
    /// Connections of children in a tree, and of peers that are not children yet.
    pub children: usize,
    /// For tasks that are recorded.
    pub sessions: usize,
}

/// The components whose settings are lowered to the limit.
pub(crate) struct LimitedSettings<'a> {
    pub store: &'a mut StoreOptions,
    pub serve: &'a mut ServeSettings,
    pub statsd: &'a mut StatsdListenOptions,
    pub lanes: Option<&'a mut LanesSettings>,
    pub programs_max: &'a mut usize,
    pub tree: &'a mut TreeSettings,
    pub session: &'a mut SessionSettings,
}

/// The limit on open files that the components are sized for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenFiles {
    pub limit: usize,
    /// With a lower limit the agent does not start.
    pub required: usize,
}

impl DescriptorBudget {
    /// Distributes what a limit leaves, by weight. What a component does not request goes to the
    /// others.
    fn shared_within(self, limit: usize) -> DescriptorBudget {
        let requests = self.to_array();
        let mut shares = [0; PARTS];
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
    fn required_limit(self) -> usize {
        let requests = self.to_array();
        requests
            .iter()
            .fold(RESERVED_MAX, |sum, request| sum.saturating_add(*request))
    }

    fn to_array(self) -> [usize; PARTS] {
        [
            self.tcp,
            self.socket,
            self.refusals,
            self.blocks,
            self.statsd,
            self.programs,
            self.lanes,
            self.children,
            self.sessions,
        ]
    }

    fn from_array(shares: [usize; PARTS]) -> DescriptorBudget {
        let [
            tcp,
            socket,
            refusals,
            blocks,
            statsd,
            programs,
            lanes,
            children,
            sessions,
        ] = shares;
        DescriptorBudget {
            tcp: tcp.max(2),
            socket: socket.max(2),
            refusals,
            blocks,
            statsd: statsd.max(1),
            programs,
            lanes,
            children,
            sessions,
        }
    }

    /// Reads the requests from the settings and lowers them to what the limit on open files
    /// permits, without the `configured` descriptors. Returns the limit.
    pub(crate) fn distribute(settings: LimitedSettings<'_>, configured: usize) -> OpenFiles {
        let LimitedSettings {
            store,
            serve,
            statsd,
            lanes,
            programs_max,
            tree,
            session,
        } = settings;
        let listeners = serve.listen.len() + 1;
        let requested = DescriptorBudget {
            tcp: serve.limits.connections.get() as usize,
            socket: serve.socket_connections_max,
            refusals: serve.refusals_max * listeners,
            blocks: store.block_files_max * serve.queries_max,
            statsd: statsd.connections,
            programs: *programs_max * DESCRIPTORS_PER_PROGRAM,
            lanes: lanes.as_ref().map_or(0, |lanes| lanes.lanes_max),
            children: match tree.accept {
                Some(_) => tree.children_max as usize + tree.unproven_max,
                None => 0,
            },
            sessions: usize::from(session.sessions) * SESSION_DESCRIPTORS,
        };
        let wanted = requested.required_limit().saturating_add(configured);
        let limit = reachable_limit(wanted.saturating_add(udp_descriptors(statsd)));
        statsd.threads = udp_threads(statsd, limit);
        let taken = configured + udp_descriptors(statsd);
        let shares = requested.shared_within(limit.saturating_sub(taken));
        serve.limits.connections = connections(shares.tcp);
        serve.socket_connections_max = shares.socket;
        serve.refusals_max = (shares.refusals / listeners).max(1);
        *programs_max = shares.programs / DESCRIPTORS_PER_PROGRAM;
        store.block_files_max = (shares.blocks / serve.queries_max.max(1)).max(1);
        statsd.connections = shares.statsd;
        if let Some(lanes) = lanes {
            lanes.lanes_max = shares.lanes;
        }
        limit_children(tree, shares.children);
        let sessions = (shares.sessions / SESSION_DESCRIPTORS).max(1);
        session.sessions = session
            .sessions
            .min(sessions.try_into().unwrap_or(u16::MAX));
        OpenFiles {
            limit,
            required: DESCRIPTORS_MIN + configured,
        }
    }
}

/// Lowers the limits on connections of children and of peers that are not children yet. The latter
/// get a third, unless they need less.
fn limit_children(tree: &mut TreeSettings, share: usize) {
    if tree.accept.is_none() || share >= tree.children_max as usize + tree.unproven_max {
        return;
    }
    tree.unproven_max = tree.unproven_max.min((share / 3).max(1));
    let children = share.saturating_sub(tree.unproven_max).max(1);
    let children = u32::try_from(children).unwrap_or(u32::MAX);
    tree.children_max = tree.children_max.min(children);
}

/// Returns the descriptors of the connections and files that the configuration names. They are kept
/// for them, as the agent's own are.
pub(crate) fn configured_descriptors(config: &AgentConfig) -> usize {
    let alerts = &config.alerts;
    let commands = match alerts.command.is_empty() {
        true => 0,
        false => alerts.command_concurrency.get() as usize,
    };
    let history = match config.history.0.url {
        Some(_) => config.history.0.concurrency.get() as usize,
        None => 0,
    };
    // Besides its connections, a target of remote write reads the log and keeps a position.
    let targets = config.remote_write.0.iter();
    let targets = targets.map(|target| target.0.shards.get() as usize + 1);
    let connections = config.inputs.len()
        + config.graphite.len()
        + config.otlp.len()
        + targets.sum::<usize>()
        + alerts.alertmanagers.len()
        + alerts.webhooks.len()
        + commands
        + history
        + usize::from(config.archive.is_configured())
        + usize::from(!config.tree.parents.is_empty());
    connections.saturating_mul(CLIENT_DESCRIPTORS)
}

fn connections(count: usize) -> NonZeroU32 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}

/// Weights in the order of [`DescriptorBudget::to_array`].
const WEIGHTS: [usize; PARTS] = [3, 3, 1, 3, 2, 2, 18, 6, 2];
/// The number of components that share the descriptors.
const PARTS: usize = 9;

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
        children: 0,
        sessions: 16 * SESSION_DESCRIPTORS,
    };
    /// The requests of a parent with the defaults.
    const OF_PARENT: DescriptorBudget = DescriptorBudget {
        children: 64 + 128,
        ..REQUESTED
    };

    #[test]
    fn parts_stay_within_the_limit_and_leave_what_the_agent_needs() {
        for limit in DESCRIPTORS_MIN..5_000 {
            for requested in [REQUESTED, OF_PARENT] {
                let shares = requested.shared_within(limit);
                let used: usize = shares.to_array().iter().sum();
                assert!(used + reserved(limit) <= limit, "{limit}: {shares:?}");
                assert!(shares.tcp >= 2 && shares.socket >= 2 && shares.statsd >= 1);
            }
        }
    }

    #[test]
    fn a_parent_with_few_descriptors_accepts_fewer_children() {
        let shares = OF_PARENT.shared_within(256);
        assert!((16..64).contains(&shares.children), "{shares:?}");
        let mut tree = TreeSettings {
            accept: Some(ListenAddress::loopback(0)),
            ..TreeSettings::default()
        };
        limit_children(&mut tree, 24);
        assert_eq!((tree.children_max, tree.unproven_max), (16, 8));
        let mut tree = TreeSettings {
            children_max: 10_000,
            ..tree
        };
        tree.unproven_max = 128;
        limit_children(&mut tree, 10_128);
        assert_eq!((tree.children_max, tree.unproven_max), (10_000, 128));
        limit_children(&mut tree, 1_128);
        assert_eq!((tree.children_max, tree.unproven_max), (1_000, 128));
    }

    #[test]
    fn connections_that_the_configuration_names_have_their_descriptors() {
        let mut config = AgentConfig::default();
        assert_eq!(configured_descriptors(&config), 0);
        config.history.0.url = Some("http://127.0.0.1:8428".parse().expect("a URL"));
        assert_eq!(configured_descriptors(&config), 4 * CLIENT_DESCRIPTORS);
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
