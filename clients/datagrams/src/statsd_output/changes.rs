//! Finds the values of this process that changed, and sends them.

use pegel_lane::ProcessLanes;
use pegel_lane::reader::LaneView;

use super::config::StatsdConfig;
use super::lines::{DatagramPacker, SeriesState, name_and_tags};
use super::switches::SourceSwitches;

/// What was sent of each series, by the number of its lane and its index there.
#[derive(Debug, Default)]
pub(super) struct SentValues {
    lanes: Vec<Vec<SeriesState>>,
    /// Reused for the copy of a lane.
    buffer: Vec<u8>,
}

/// A series and the state that it has once its datagram is sent.
type PendingState = (usize, usize, SeriesState);

/// The number of lines and datagrams of one pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PassCounts {
    pub lines: u64,
    pub datagrams: u64,
    /// Datagrams that were not sent, and lines that fit into none.
    pub errors: u64,
}

impl SentValues {
    /// Sends what changed since the last pass. The values of a datagram that was not sent stay
    /// unsent.
    pub(super) fn send_changes(
        &mut self,
        process: &ProcessLanes,
        config: &StatsdConfig,
        switches: &SourceSwitches,
        send: &mut dyn FnMut(&[u8]) -> bool,
    ) -> PassCounts {
        let mut pass = SendPass {
            config,
            switches,
            send,
            packer: DatagramPacker::new(),
            lines: String::new(),
            counts: PassCounts::default(),
        };
        let lanes = &mut self.lanes;
        process.visit_copies(&mut self.buffer, &mut |number, view| {
            if lanes.len() <= number {
                lanes.resize_with(number + 1, Vec::new);
            }
            lanes[number].resize(view.len(), SeriesState::default());
            pass.add_lane(number, view, lanes);
        });
        pass.send_datagram(lanes);
        pass.counts
    }
}

struct SendPass<'a> {
    config: &'a StatsdConfig,
    switches: &'a SourceSwitches,
    send: &'a mut dyn FnMut(&[u8]) -> bool,
    packer: DatagramPacker<PendingState>,
    /// Reused for the lines of each series.
    lines: String,
    counts: PassCounts,
}

impl SendPass<'_> {
    fn add_lane(&mut self, number: usize, view: &LaneView<'_>, lanes: &mut [Vec<SeriesState>]) {
        for (index, value) in view.iter() {
            let (Some(value), Some(kind)) = (value, view.kind(index)) else {
                continue;
            };
            let before = lanes[number][index];
            let Some(now) = SeriesState::of(&value).filter(|now| *now != before) else {
                continue;
            };
            let Ok(series) = view.series(index) else {
                continue;
            };
            if !self.switches.is_on(series.name) {
                lanes[number][index] = now;
                continue;
            }
            let (name, tags) = name_and_tags(&series, view.header(), self.config);
            self.lines.clear();
            now.write_changes(&before, kind, (&name, &tags), &mut self.lines);
            if self.lines.is_empty() {
                continue;
            }
            if !self.packer.fits(&self.lines) {
                self.send_datagram(lanes);
            }
            if self.packer.fits(&self.lines) {
                self.counts.lines += self.lines.lines().count() as u64;
                self.packer.add(&self.lines, (number, index, now));
            } else {
                self.counts.errors += 1;
                lanes[number][index] = now;
            }
        }
    }

    fn send_datagram(&mut self, lanes: &mut [Vec<SeriesState>]) {
        let Some((datagram, pending)) = self.packer.take() else {
            return;
        };
        if !(self.send)(datagram.as_bytes()) {
            self.counts.errors += 1;
            self.counts.lines -= datagram.lines().count() as u64;
            return;
        }
        self.counts.datagrams += 1;
        for (number, index, state) in pending {
            lanes[number][index] = state;
        }
    }
}

#[cfg(test)]
mod tests {
    use pegel_lane::{Counter, Gauge, Handle, LaneKind, LaneSeriesSpec, Timer};
    use pegel_testkit::TempDir;

    use super::*;

    fn config(labels: &str) -> StatsdConfig {
        let mut config = StatsdConfig::new("127.0.0.1:9").expect("valid");
        config.prefix = "app.".to_owned();
        config.labels = match labels {
            "tags" => super::super::LabelStyle::Tags,
            _ => super::super::LabelStyle::Name,
        };
        config
    }

    fn pass(sent: &mut SentValues, lanes: &ProcessLanes, switches: &SourceSwitches) -> String {
        let mut lines = Vec::new();
        sent.send_changes(lanes, &config("name"), switches, &mut |datagram| {
            lines.push(String::from_utf8_lossy(datagram).into_owned());
            true
        });
        lines.join("\n").replace('\n', " ")
    }

    #[test]
    fn only_changes_are_sent_and_a_failed_send_is_repeated() {
        let dir = TempDir::new();
        let lanes = ProcessLanes::in_directory(dir.path());
        let labels = [("q", "main:1"), ("disk", "a.b")];
        let spec = LaneSeriesSpec {
            labels: &labels,
            ..LaneSeriesSpec::new(LaneKind::Counter, "jobs.done")
        };
        let jobs = Counter::create_in(lanes, &spec).expect("made");
        let spec = LaneSeriesSpec::new(LaneKind::Gauge, "depth");
        let depth = Gauge::create_in(lanes, &spec).expect("made");
        let mut sent = SentValues::default();
        let mut switches = SourceSwitches::default();
        assert_eq!(pass(&mut sent, lanes, &switches), "");
        jobs.add(3);
        depth.set(-1.5);
        let first = "app.jobs.done.disk.a_b.q.main_1:3|c app.depth:0|g app.depth:-1.5|g";
        assert_eq!(pass(&mut sent, lanes, &switches), first);
        assert_eq!(pass(&mut sent, lanes, &switches), "");
        jobs.add(4);
        let failed = sent.send_changes(lanes, &config("tags"), &switches, &mut |datagram| {
            assert_eq!(datagram, b"app.jobs.done:4|c|#disk:a.b,q:main:1");
            false
        });
        assert_eq!((failed.lines, failed.datagrams, failed.errors), (0, 0, 1));
        jobs.add(1);
        // Off: what is counted meanwhile is not sent later.
        switches.set("depth", false);
        depth.set(7.0);
        let again = "app.jobs.done.disk.a_b.q.main_1:5|c";
        assert_eq!(pass(&mut sent, lanes, &switches), again);
        switches.set("depth", true);
        assert_eq!(pass(&mut sent, lanes, &switches), "");
        depth.set(8.0);
        assert_eq!(pass(&mut sent, lanes, &switches), "app.depth:8|g");
        let spec = LaneSeriesSpec::new(LaneKind::Timer, "step");
        let step = Timer::create_in(lanes, &spec).expect("made");
        step.record_seconds(0.5);
        step.record_seconds(1.5);
        assert_eq!(
            pass(&mut sent, lanes, &switches),
            "app.step:1000|ms app.step.count:2|c"
        );
    }

    #[test]
    fn many_series_need_several_datagrams() {
        let dir = TempDir::new();
        let lanes = ProcessLanes::in_directory(dir.path());
        for number in 0..500 {
            let name = format!("counter.{number}");
            let spec = LaneSeriesSpec::new(LaneKind::Counter, &name);
            Counter::create_in(lanes, &spec)
                .expect("made")
                .add(number + 1);
        }
        let mut total = 0_u64;
        let mut sent = SentValues::default();
        let switches = SourceSwitches::default();
        let counts = sent.send_changes(lanes, &config("name"), &switches, &mut |datagram| {
            assert!(datagram.len() <= 1_440);
            for line in std::str::from_utf8(datagram).expect("text").lines() {
                let value = line.split([':', '|']).nth(1).expect("a value");
                total += value.parse::<u64>().expect("a number");
            }
            true
        });
        assert_eq!((total, counts.lines), (500 * 501 / 2, 500));
        assert!(counts.datagrams > 3, "{counts:?}");
    }
}
