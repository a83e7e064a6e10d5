//! Checks the system clock, the source of every sample's timestamp.

use pegel_machine::MachineFiles;
use serde_json::Value;

use super::finding::Finding;
use super::pluralize;

const CLOCKSOURCE_FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// Clock sources that are read without a system call; the others are much more expensive.
const FAST_CLOCKSOURCES: [&str; 4] = [
    "tsc",
    "arch_sys_counter",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
];

#[derive(Debug, Clone, Default)]
pub(super) struct ClockProbe {
    pub is_synchronised: Option<bool>,
    pub clocksource: Option<String>,
    /// Number of clock steps that the agent has seen.
    pub steps: Option<u64>,
}

pub(crate) fn probe(machine: &MachineFiles, status: Option<&Value>) -> ClockProbe {
    ClockProbe {
        is_synchronised: machine
            .is_local()
            .then(|| pegel_agent::is_synchronised().ok())
            .flatten(),
        clocksource: machine.read_text(CLOCKSOURCE_FILE).ok(),
        steps: status.and_then(|status| status["sampling"]["clock_steps"].as_u64()),
    }
}

pub(super) fn evaluate(facts: &ClockProbe) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(facts.is_synchronised.map(|is_synchronised| {
        if is_synchronised {
            return Finding::ok("synchronised", "the clock is synchronised");
        }
        Finding::better(
            "synchronised",
            "the clock is not synchronised: timestamps of different nodes do not agree",
            "sudo timedatectl set-ntp true (or start chronyd; in a virtual machine, synchronise its host)",
        )
    }));
    findings.extend(facts.clocksource.as_deref().map(|source| {
        if FAST_CLOCKSOURCES.contains(&source) {
            return Finding::ok("source", source);
        }
        Finding::better(
            "source",
            format!("{source}: reading the time is slow for every program"),
            format!("echo tsc | sudo tee {CLOCKSOURCE_FILE} (only if dmesg does not report the TSC as unstable)"),
        )
    }));
    findings.extend(facts.steps.map(|steps| match steps {
        0 => Finding::ok("steps", "no clock steps since the agent started"),
        steps => Finding::better(
            "steps",
            format!(
                "{} since the agent started: samples have gaps or overlap",
                pluralize::pluralized(steps, "clock step")
            ),
            "configure NTP to slew the clock instead of stepping it (chrony: makestep 1 3)",
        ),
    }));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingState;

    fn states(is_synchronised: bool, source: &str, steps: u64) -> Vec<FindingState> {
        let facts = ClockProbe {
            is_synchronised: Some(is_synchronised),
            clocksource: Some(source.to_owned()),
            steps: Some(steps),
        };
        evaluate(&facts)
            .into_iter()
            .map(|finding| finding.state)
            .collect()
    }

    #[test]
    fn a_synchronised_clock_is_ok() {
        assert_eq!(states(true, "tsc", 0), [FindingState::Ok; 3]);
    }

    #[test]
    fn a_slow_unsynchronised_and_stepped_clock_could_be_better() {
        assert_eq!(states(false, "hpet", 2), [FindingState::Better; 3]);
    }

    #[test]
    fn unknown_facts_yield_no_findings() {
        assert_eq!(evaluate(&ClockProbe::default()), []);
    }
}
