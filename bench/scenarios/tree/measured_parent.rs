//! An agent with simulated children below it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pegel_bench::{is_trial_run, release_binary, resident_mb, whole_process_cpu_time};
use pegel_testkit::{AgentBuilder, AgentProcess, PLANTED_TOKEN, eventually_within, get};
use pegel_tree_simulator::{ChildSimulation, SimulationPlan};
use tokio::runtime::Handle;

/// The time for all children to connect.
const CONNECT_MAX: Duration = Duration::from_secs(120);
/// Connections per second at the start.
const CONNECTS_PER_SECOND: u64 = 200;

/// The figures of a parent in steady state; each list has one figure per repetition.
pub(crate) struct ParentCost {
    /// CPU time per second of the same agent before children connected: its own sampling.
    pub idle_micros: f64,
    /// CPU time of the parent per child and second, beyond that of an agent without children.
    pub micros: Vec<f64>,
    pub bytes_up: Vec<f64>,
    pub bytes_down: Vec<f64>,
    pub resident_mb: f64,
    /// Ticks that children did not send because the parent had not permitted them.
    pub withheld_percent: f64,
}

pub(crate) struct MeasuredParent {
    agent: AgentProcess,
    /// The parents between the agent and the simulated children, if there are two levels.
    _middles: Vec<AgentProcess>,
    simulations: Vec<ChildSimulation>,
    nodes: usize,
    /// CPU time per second without children.
    idle: f64,
}

/// Returns an address for a parent on loopback.
fn accept_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let pid = std::process::id();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let address = Ipv4Addr::new(127, 77, (pid % 250) as u8, number as u8 + 1);
    SocketAddr::from((address, 1338))
}

fn start_agent(node: &str, address: SocketAddr, parent: Option<SocketAddr>) -> AgentProcess {
    let parents = parent.map_or(String::new(), |parent| format!(", parents: [\"{parent}\"]"));
    let config =
        format!("node: {node}\ntree: {{accept: \"{address}\", children_max: 10000{parents}}}\n");
    AgentBuilder::new(release_binary()).config(&config).start()
}

fn simulate(
    runtime: &Handle,
    address: SocketAddr,
    prefix: &str,
    children: usize,
) -> ChildSimulation {
    let plan = SimulationPlan {
        address,
        token: Some(PLANTED_TOKEN.to_owned()),
        prefix: prefix.to_owned(),
        children,
        ramp: Duration::from_secs_f64(children as f64 / CONNECTS_PER_SECOND as f64),
    };
    ChildSimulation::start(runtime, plan)
}

fn window() -> Duration {
    Duration::from_secs(if is_trial_run() { 2 } else { 10 })
}

/// Returns the CPU time per second of a process over a window.
fn cpu_share(pid: u32) -> f64 {
    // The parent starts threads for back-filling and ends them.
    let (before, started) = (whole_process_cpu_time(pid), Instant::now());
    thread::sleep(window());
    let used = whole_process_cpu_time(pid) - before;
    used.as_secs_f64() / started.elapsed().as_secs_f64()
}

impl MeasuredParent {
    pub(crate) fn start(runtime: &Handle, children: usize) -> MeasuredParent {
        let address = accept_address();
        let agent = start_agent("head", address, None);
        thread::sleep(Duration::from_secs(2));
        let idle = cpu_share(agent.pid());
        let simulations = vec![simulate(runtime, address, "nid", children)];
        MeasuredParent::connected(agent, Vec::new(), simulations, children, idle)
    }

    /// Starts a root with `middles` parents below it, each with simulated children.
    pub(crate) fn start_levels(
        runtime: &Handle,
        middles: usize,
        children: usize,
    ) -> MeasuredParent {
        let address = accept_address();
        let agent = start_agent("head", address, None);
        thread::sleep(Duration::from_secs(2));
        let idle = cpu_share(agent.pid());
        let (mut below, mut simulations) = (Vec::new(), Vec::new());
        for number in 0..middles {
            let own = accept_address();
            below.push(start_agent(&format!("mid{number}"), own, Some(address)));
            let prefix = format!("nid{number:02}x");
            simulations.push(simulate(runtime, own, &prefix, children));
        }
        let nodes = middles * (children + 1);
        MeasuredParent::connected(agent, below, simulations, nodes, idle)
    }

    fn connected(
        agent: AgentProcess,
        middles: Vec<AgentProcess>,
        simulations: Vec<ChildSimulation>,
        nodes: usize,
        idle: f64,
    ) -> MeasuredParent {
        eventually_within(CONNECT_MAX, "all children are connected", || {
            simulations
                .iter()
                .try_for_each(ChildSimulation::check_connected)
        });
        eventually_within(CONNECT_MAX, "all nodes are up", || {
            let tree = agent.get("/api/v1/tree").json();
            let is_up = tree["up"].as_u64() == Some(nodes as u64 + 1);
            is_up
                .then_some(())
                .ok_or((tree["up"].clone(), tree["problems"].clone()))
        });
        let warm_up = if is_trial_run() { 2 } else { 10 };
        thread::sleep(Duration::from_secs(warm_up));
        eventually_within(CONNECT_MAX, "the past is filled in", || {
            let tree = agent.get("/api/v1/tree").json();
            let left = tree["dirty_ticks"].as_u64();
            (left == Some(0)).then_some(()).ok_or(left)
        });
        MeasuredParent {
            agent,
            _middles: middles,
            simulations,
            nodes,
            idle,
        }
    }

    fn sum(&self, figure: impl Fn(&ChildSimulation) -> u64) -> f64 {
        self.simulations.iter().map(figure).sum::<u64>() as f64
    }

    pub(crate) fn cost(&self, repetitions: usize) -> ParentCost {
        let mut cost = ParentCost {
            idle_micros: self.idle * 1e6,
            micros: Vec::new(),
            bytes_up: Vec::new(),
            bytes_down: Vec::new(),
            resident_mb: 0.0,
            withheld_percent: 0.0,
        };
        let withheld = self.sum(ChildSimulation::ticks_without_credit);
        let ended = self.sum(ChildSimulation::ended);
        let (up, down) = (
            |child: &ChildSimulation| child.bytes().0,
            |child: &ChildSimulation| child.bytes().1,
        );
        let first = self.sum(ChildSimulation::ticks);
        for _ in 0..repetitions {
            let (ticks, up_before, down_before) = (
                self.sum(ChildSimulation::ticks),
                self.sum(up),
                self.sum(down),
            );
            let share = cpu_share(self.agent.pid());
            let ticks = (self.sum(ChildSimulation::ticks) - ticks).max(1.0);
            cost.micros
                .push((share - self.idle) * 1e6 / self.nodes as f64);
            cost.bytes_up.push((self.sum(up) - up_before) / ticks);
            cost.bytes_down.push((self.sum(down) - down_before) / ticks);
        }
        assert_eq!(self.sum(ChildSimulation::ended), ended, "connections ended");
        let withheld = self.sum(ChildSimulation::ticks_without_credit) - withheld;
        let ticks = (self.sum(ChildSimulation::ticks) - first).max(1.0);
        cost.withheld_percent = withheld / (ticks + withheld) * 100.0;
        cost.resident_mb = resident_mb(self.agent.pid());
        cost
    }

    /// Returns median and 99th percentile of the time of a query, in milliseconds.
    pub(crate) fn query_ms(&self, query: &str, count: usize) -> (f64, f64) {
        let path = format!("/api/v1/query?query={query}");
        let mut times: Vec<f64> = (0..count)
            .map(|_| {
                let started = Instant::now();
                let answer = get(self.agent.http(), &path).expect("an answer");
                let took = started.elapsed().as_secs_f64() * 1e3;
                assert_eq!(answer.status, 200, "{}", answer.text());
                let all = self.nodes + 1;
                let expected = format!("answered={all} expected={all}");
                assert_eq!(
                    answer.header("pegel-nodes"),
                    Some(expected.as_str()),
                    "{path}"
                );
                took
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((count - 1) as f64 * share).round() as usize];
        (at(0.5), at(0.99))
    }
}
