//! Lanes, from the outside: a program counts in shared memory, and every reader of the agent sees it.

use std::time::Duration;

use pegel_lane::{Counter, Gauge, Handle, Home, Kind, Points, Spec};
use pegel_testkit::{AgentBuilder, AgentProcess, Forked, TempDir, eventually};
use rustix::process::Signal;

const PEGEL: &str = env!("CARGO_BIN_EXE_pegel");

struct Scene {
    dir: TempDir,
    home: &'static Home,
}

impl Scene {
    fn new() -> Scene {
        let dir = TempDir::new();
        std::fs::create_dir(dir.join("lanes")).expect("made");
        let home = Home::in_directory(dir.join("lanes"));
        Scene { dir, home }
    }

    fn agent(&self) -> AgentProcess {
        self.agent_with("")
    }

    fn agent_with(&self, yaml: &str) -> AgentProcess {
        AgentBuilder::new(PEGEL)
            .dir(self.dir.join("store"))
            .env("PEGEL_LANES", self.dir.join("lanes"))
            .config(&format!("rate: 100ms\n{yaml}"))
            .start()
    }

    fn counter(&self, name: &str) -> Counter {
        Counter::create_in(self.home, &Spec::new(Kind::Counter, name)).expect("made")
    }
}

/// The current value as `pegel get` prints it.
fn value(agent: &AgentProcess, name: &str) -> Option<f64> {
    let got = agent.client(PEGEL, &["get", name, "-f", "json"]);
    let values: serde_json::Value = serde_json::from_str(&got.stdout).ok()?;
    values.as_array()?.first()?["value"].as_f64()
}

#[test]
fn what_a_program_counted_is_shown_when_asked() {
    let scene = Scene::new();
    let agent = scene.agent();
    let steps = scene.counter("steps_total");
    for count in 1..=20_u32 {
        steps.add(1);
        // Not at the next tick: now.
        assert_eq!(value(&agent, "steps_total"), Some(f64::from(count)));
    }
    let answer = agent.get("/metrics");
    let text = answer.text();
    assert!(text.contains("\nsteps_total 20\n"), "{text}");
    eventually("the store has it", || {
        let answer = agent.get("/api/v1/range?match=steps_total");
        let samples = answer.text().to_string();
        samples.contains(",20.0]").then_some(()).ok_or(samples)
    });
    let status = agent.status();
    assert_eq!(status["lanes"]["alive"], 1, "{}", status["lanes"]);
    let sender = &status["senders"][0];
    assert!(
        sender["sender"]
            .as_str()
            .is_some_and(|who| who.starts_with("uid ")),
        "{sender}"
    );
    agent.assert_conserved();
    agent.stop();
}

#[test]
fn totals_are_exact_while_agent_and_programs_are_killed() {
    let scene = Scene::new();
    let own = scene.counter("steps_total");
    let mut expected = 0;
    for round in 0..6_u32 {
        let agent = scene.agent();
        let home = scene.home;
        let children: Vec<Forked> = (0..3)
            .map(|_| {
                Forked::run(|| {
                    let spec = Spec::new(Kind::Counter, "steps_total");
                    let steps = Counter::create_in(home, &spec).expect("made");
                    for _ in 0..1000 {
                        steps.add(1);
                    }
                    std::thread::sleep(Duration::from_secs(60));
                })
            })
            .collect();
        own.add(7);
        expected += 3007;
        eventually("all is counted", || {
            let found = value(&agent, "steps_total");
            (found == Some(f64::from(expected)))
                .then_some(())
                .ok_or(found)
        });
        match round % 3 {
            0 => {
                agent.kill();
                children.into_iter().for_each(Forked::kill);
            }
            1 => {
                children.into_iter().for_each(Forked::kill);
                agent.kill();
            }
            _ => {
                agent.signal(Signal::STOP);
                children.into_iter().for_each(Forked::kill);
                agent.signal(Signal::CONT);
                agent.stop();
            }
        }
        // Without an agent.
        own.add(1);
        expected += 1;
    }
    let agent = scene.agent();
    assert_eq!(value(&agent, "steps_total"), Some(f64::from(expected)));
    agent.assert_conserved();
}

#[test]
fn gauges_go_with_their_program_and_points_stay() {
    let scene = Scene::new();
    let agent = scene.agent();
    let (home, said) = (scene.home, scene.dir.join("said"));
    let child = Forked::run(|| {
        Gauge::create_in(home, &Spec::new(Kind::Gauge, "depth"))
            .expect("made")
            .set(2.5);
        let points = Points::create_in(home, &Spec::new(Kind::Point, "moments")).expect("made");
        for at in 0..10 {
            points.add_at(f64::from(at), pegel_lane::now_ms() - 1000 + i64::from(at));
        }
        std::fs::write(&said, "x").expect("written");
        std::thread::sleep(Duration::from_secs(60));
    });
    eventually("set", || said.exists().then_some(()).ok_or("not yet"));
    assert_eq!(value(&agent, "depth"), Some(2.5));
    child.kill();
    eventually("the gauge is gone", || match value(&agent, "depth") {
        None => Ok(()),
        found => Err(found),
    });
    let samples = agent.samples("moments");
    let status = agent.status();
    let lane = status["inputs"].as_array().and_then(|inputs| {
        inputs
            .iter()
            .find(|input| input["input"] == "lane")
            .cloned()
    });
    let lane = lane.expect("an account");
    assert_eq!(
        (&lane["received"], &lane["kept"]),
        (&10.into(), &10.into()),
        "{samples:?}"
    );
    agent.assert_conserved();
}

#[test]
fn rules_and_limits_hold_for_lanes() {
    let scene = Scene::new();
    let yaml = "limits: {series_per_sender: 5}\nrules:\n  - {name: \"noise*\", drop: true}\n  \
                - {name: \"flux.{rank:int}.{rest:any}\", rename: \"flux.{rest}\", label: {rank: \"{rank}\"}}\n";
    let agent = scene.agent_with(yaml);
    scene.counter("noise_total").add(1);
    scene.counter("flux.3.jobs").add(4);
    for at in 0..10 {
        scene.counter(&format!("c{at}_total")).add(1);
    }
    assert_eq!(value(&agent, "flux.jobs"), Some(4.0));
    assert_eq!(value(&agent, "noise_total"), None);
    let status = agent.status();
    let sender = &status["senders"][0];
    assert_eq!(sender["series"], 5, "{sender}");
    assert_eq!(sender["dropped"]["sender_limit"], 6, "{sender}");
    assert_eq!(sender["dropped"]["rule"], 1, "{sender}");
    agent.assert_conserved();
}
