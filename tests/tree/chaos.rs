//! Eight nodes in three levels, each in a network namespace of its own. For a minute agents are
//! killed and started again, and links are cut, slowed down and half-closed, while programs on the
//! leaves count. Afterwards every sum at the root is exact, for every second of that minute.
//!
//! `PEGEL_CHAOS_SECONDS=600 PEGEL_SEED=7 cargo test -p pegel --test tree chaos` does it longer,
//! with other random numbers.

#![allow(clippy::print_stderr)] // A failing test shows what it did; a passing one does not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pegel_testkit::{
    LinkFault, NetworkLink, NetworkNamespace, Rng, eventually_within, get, need, now_millis,
};

use crate::refused_children::TreeCertificates;
use crate::tree_agent::TreeAgent;

const LEAVES: usize = 5;
const NAMES: [&str; 8] = ["l1", "l2", "l3", "l4", "l5", "m1", "m2", "root"];
const PORT: u16 = 1338;
/// The time for connections, queues and back-filling to recover.
const HEALING_MAX: Duration = Duration::from_secs(120);
const FAULTS: [LinkFault; 5] = [
    LinkFault::Cut,
    LinkFault::FirstEndMuted,
    LinkFault::SecondEndMuted,
    LinkFault::Silent,
    LinkFault::Slow,
];

fn chaos_time() -> Duration {
    let seconds = std::env::var("PEGEL_CHAOS_SECONDS").map(|text| text.parse());
    Duration::from_secs(seconds.map_or(60, |seconds| seconds.expect("a whole number")))
}

/// The nodes in the order of `NAMES`, and the links between them.
struct ChaosTree {
    nodes: Vec<TreeAgent>,
    links: Vec<(String, NetworkLink)>,
    /// The number of programs' increments so far.
    counted: Arc<AtomicU64>,
    /// When which node was not running, in milliseconds.
    downtimes: BTreeMap<usize, Vec<(i64, i64)>>,
}

/// Builds a tree in namespaces; None, with the skip recorded, if that is not permitted.
#[track_caller]
fn build() -> Option<ChaosTree> {
    need("ip")?;
    let mut spaces = Vec::new();
    for _ in NAMES {
        spaces.push(Arc::new(NetworkNamespace::new()?));
    }
    let index = |name: &str| {
        NAMES
            .iter()
            .position(|known| *known == name)
            .expect("known")
    };
    let mut links = Vec::new();
    // The parents of each node, in order of preference.
    let mut parents: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (child, preferred) in [
        ("m1", &["root"][..]),
        ("m2", &["root"]),
        ("l1", &["m1", "m2"]),
        ("l2", &["m1", "m2"]),
        ("l3", &["m1", "m2"]),
        ("l4", &["m2", "m1"]),
        ("l5", &["m2", "m1"]),
    ] {
        for parent in preferred {
            let (above, below) = (&spaces[index(parent)], &spaces[index(child)]);
            let link = NetworkLink::new(above, below, links.len() as u8 + 1)?;
            parents.entry(index(child)).or_default().push(links.len());
            links.push((format!("{child}-{parent}"), link));
        }
    }
    let hosts: Vec<String> = links
        .iter()
        .map(|(_, link)| link.address(0).to_string())
        .collect();
    let certificates = Arc::new(TreeCertificates::for_hosts(&hosts, &[]));
    let nodes = NAMES.iter().enumerate().map(|(number, name)| {
        let mut section = Vec::new();
        if number >= LEAVES {
            section.push(certificates.parent(&format!("0.0.0.0:{PORT}")));
        }
        if let Some(above) = parents.get(&number) {
            let above = above
                .iter()
                .map(|link| format!("\"{}:{PORT}\"", links[*link].1.address(0)));
            let above = above.collect::<Vec<_>>().join(", ");
            section.push(certificates.child(&above));
        }
        let mut node = TreeAgent::new(name, &section.join(", "));
        node.place_in(spaces[number].clone(), certificates.clone());
        node
    });
    Some(ChaosTree {
        nodes: nodes.collect(),
        links,
        counted: Arc::default(),
        downtimes: BTreeMap::new(),
    })
}

impl ChaosTree {
    fn root(&self) -> &TreeAgent {
        &self.nodes[NAMES.len() - 1]
    }

    fn total(&self) -> f64 {
        self.counted.load(Ordering::SeqCst) as f64
    }

    /// Counts on each leaf at its own rate, until `is_over`.
    fn count(&self, is_over: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
        let counters: Vec<_> = self.nodes[..LEAVES]
            .iter()
            .map(|leaf| leaf.counter("hits_total"))
            .collect();
        let (counted, is_over) = (self.counted.clone(), is_over.clone());
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                for (rate, counter) in (1..).zip(&counters) {
                    // Before it is counted, so that readers never see more than this.
                    counted.fetch_add(rate, Ordering::SeqCst);
                    counter.add(rate);
                }
                thread::sleep(Duration::from_millis(20));
            }
            // The series exist as long as the counters.
            thread::park_timeout(HEALING_MAX * 2);
        })
    }

    /// Reads the sum at the root until `is_over`: it never exceeds what was counted.
    fn watch(&self, is_over: &Arc<AtomicBool>) -> thread::JoinHandle<u64> {
        let (address, counted) = (self.root().unix(), self.counted.clone());
        let is_over = is_over.clone();
        thread::spawn(move || {
            let mut answers = 0;
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(100));
                let started = Instant::now();
                // The root may be down, or be killed while it answers.
                let Ok(answer) = get(&address, "/api/v1/values?match=hits_total") else {
                    continue;
                };
                let took = started.elapsed();
                assert!(took < Duration::from_secs(15), "an answer took {took:?}");
                let sum = answer.json()[0]["value"].as_f64().unwrap_or(0.0);
                let counted = counted.load(Ordering::SeqCst) as f64;
                assert!(
                    sum <= counted,
                    "{sum} of {counted}; {:?}",
                    answer.header("pegel-nodes")
                );
                answers += 1;
            }
            answers
        })
    }

    /// Kills, starts, breaks and mends at random.
    fn disturb(&mut self, rng: &mut Rng, time: Duration) {
        let began = Instant::now();
        let mut dead: Vec<(usize, Instant, i64)> = Vec::new();
        let mut broken: Vec<(usize, Instant)> = Vec::new();
        loop {
            let (now, is_end) = (Instant::now(), began.elapsed() >= time);
            let said = |what: &str| eprintln!("{:6.2} {what}", began.elapsed().as_secs_f64());
            for (node, _, since) in dead.extract_if(.., |(_, until, _)| is_end || *until <= now) {
                said(&format!("start {}", NAMES[node]));
                self.nodes[node].start();
                let downtime = (since, now_millis());
                self.downtimes.entry(node).or_default().push(downtime);
            }
            for (link, _) in broken.extract_if(.., |(_, until)| is_end || *until <= now) {
                said(&format!("mend {}", self.links[link].0));
                self.links[link].1.set(LinkFault::None);
            }
            if is_end {
                return;
            }
            let pause = Duration::from_millis(500 + rng.below(5000));
            if rng.chance(3) {
                let node = rng.below(NAMES.len() as u64) as usize;
                if dead.iter().all(|(other, _, _)| *other != node) {
                    said(&format!("kill {}", NAMES[node]));
                    self.nodes[node].kill();
                    dead.push((node, now + pause, now_millis()));
                }
            } else {
                let link = rng.below(self.links.len() as u64) as usize;
                if broken.iter().all(|(other, _)| *other != link) {
                    let fault = *rng.pick(&FAULTS);
                    said(&format!("{fault:?} {}", self.links[link].0));
                    self.links[link].1.set(fault);
                    broken.push((link, now + pause));
                }
            }
            thread::sleep(Duration::from_millis(200 + rng.below(800)));
        }
    }

    /// Returns the sum over the leaves' own stores at each multiple of a second.
    fn expected_sums(&self, begin: i64, end: i64) -> BTreeMap<i64, f64> {
        let stores: Vec<_> = self.nodes[..LEAVES]
            .iter()
            .map(|leaf| leaf.stored("hits_total"))
            .collect();
        let at = |samples: &[(i64, f64)], time: i64| {
            let after = samples.partition_point(|(sampled, _)| *sampled <= time);
            after.checked_sub(1).map_or(0.0, |newest| samples[newest].1)
        };
        let times = (begin..=end).step_by(1000);
        times
            .map(|time| (time, stores.iter().map(|samples| at(samples, time)).sum()))
            .collect()
    }

    /// Checks every second of the root's history; the error lists the seconds that are wrong.
    fn check_history(&self, begin: i64, end: i64) -> Result<(), String> {
        let sums: BTreeMap<i64, f64> = self.root().stored("hits_total:sum").into_iter().collect();
        let mut wrong: Vec<String> = Vec::new();
        for (time, expected) in self.expected_sums(begin, end) {
            let found = sums.get(&time);
            if found != Some(&expected) {
                wrong.push(format!(
                    "+{} s: {found:?} of {expected}",
                    (time - begin) / 1000
                ));
            }
        }
        let counts = self.root().stored("node_load1:count");
        let counts: BTreeMap<i64, f64> = counts.into_iter().collect();
        for time in (begin..=end).step_by(1000) {
            // A node that was down, or had just started, may have no sample.
            let was_down =
                |(since, until): &(i64, i64)| (since - 1000..until + 3000).contains(&time);
            let down = self
                .downtimes
                .values()
                .filter(|times| times.iter().any(was_down))
                .count();
            let found = counts.get(&time).copied().unwrap_or(0.0);
            if !((NAMES.len() - down) as f64..=NAMES.len() as f64).contains(&found) {
                wrong.push(format!(
                    "+{} s: {found} nodes, {down} down",
                    (time - begin) / 1000
                ));
            }
        }
        let shown: Vec<&String> = wrong.iter().take(20).collect();
        let problem = || {
            let dirty = self.root().get("/api/v1/tree").json()["dirty_ticks"].clone();
            format!(
                "{} seconds are wrong, {dirty} dirty: {shown:?}",
                wrong.len()
            )
        };
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(problem())
        }
    }
}

#[test]
fn sums_are_exact_after_a_minute_of_failures() {
    let Some(mut tree) = build() else { return };
    let seed = std::env::var("PEGEL_SEED").map_or(18, |seed| seed.parse().expect("a whole number"));
    let mut rng = Rng::new(seed);
    // Parents first, to save time.
    tree.nodes.iter_mut().rev().for_each(TreeAgent::start);
    let (is_counted, is_over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let counting = tree.count(&is_counted);
    tree.root().all_up(&NAMES);
    // The first ticks of all nodes are there.
    eventually_within(HEALING_MAX, "all leaves are reduced", || {
        let found = tree.root().promql("hits_total:rate:count{host=\"root\"}");
        let is_complete = found.iter().any(|(_, count)| *count == LEAVES as f64);
        is_complete.then_some(()).ok_or(found)
    });
    let begin = now_millis() / 1000 * 1000;
    let watching = tree.watch(&is_over);
    tree.disturb(&mut rng, chaos_time());
    is_over.store(true, Ordering::Relaxed);
    let answers = watching.join().expect("no sum was too large");
    assert!(answers > 0, "the root never answered");
    thread::sleep(Duration::from_secs(1));
    is_counted.store(true, Ordering::Relaxed);
    let end = now_millis() / 1000 * 1000;

    let healing = Instant::now();
    eventually_within(HEALING_MAX, "all nodes are up", || {
        let states = tree.root().node_states();
        let is_up = states.len() == NAMES.len() && states.iter().all(|(_, state)| state == "up");
        is_up.then_some(()).ok_or(states)
    });
    eprintln!(
        "all up {:.1} s after the last failure",
        healing.elapsed().as_secs_f64()
    );
    let total = tree.total();
    eventually_within(HEALING_MAX, "the sum is exact", || {
        let found = tree.root().values("match=hits_total");
        (found == [("hits_total".to_owned(), total)])
            .then_some(())
            .ok_or((found, total))
    });
    eventually_within(HEALING_MAX, "the reduction is exact", || {
        let found = tree.root().promql("hits_total:sum{host=\"root\"}");
        (found.len() == 1 && found[0].1 == total)
            .then_some(())
            .ok_or((found, total))
    });
    eventually_within(HEALING_MAX, "every second is exact", || {
        tree.check_history(begin, end)
    });
    eprintln!(
        "exact {:.1} s after the last failure",
        healing.elapsed().as_secs_f64()
    );
    // Nothing is doubled.
    tree.root().evaluates("count(hits_total)", LEAVES as f64);
    tree.root()
        .evaluates("count(node_load1)", NAMES.len() as f64);
    let answer = tree.root().get("/api/v1/series?match[]=hits_total").json();
    assert_eq!(
        answer["data"].as_array().map(Vec::len),
        Some(LEAVES),
        "{answer}"
    );
    tree.root().all_up(&NAMES);
    for node in &tree.nodes {
        let log = node.agent().stderr();
        assert!(!log.contains("panic"), "{}: {log}", node.name);
    }
    counting.thread().unpark();
    counting.join().expect("it ended");
}
