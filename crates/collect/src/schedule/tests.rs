//! The schedule with simulated clocks.

use super::*;

const MS: i64 = 1_000_000;
const HOUR: i64 = 3_600_000;

/// A schedule with clocks that the test advances. All times in milliseconds.
struct SimulatedClocks {
    schedule: Schedule,
    utc: i64,
    monotonic: i64,
    due: Vec<usize>,
}

impl SimulatedClocks {
    fn new(rates: &[u64], utc: i64) -> SimulatedClocks {
        let rates: Vec<Duration> = rates
            .iter()
            .map(|&rate| Duration::from_millis(rate))
            .collect();
        let (utc, monotonic) = (utc * MS, 7_000 * MS);
        let schedule = Schedule::new(&rates, ClockPair { utc, monotonic });
        SimulatedClocks {
            schedule,
            utc,
            monotonic,
            due: Vec::new(),
        }
    }

    fn now(&self) -> ClockPair {
        ClockPair {
            utc: self.utc,
            monotonic: self.monotonic,
        }
    }

    fn advance(&mut self, nanos: i64) {
        self.utc += nanos;
        self.monotonic += nanos;
    }

    /// Takes everything that is due now: nominal times and the tracks of each.
    fn take(&mut self) -> Vec<(i64, Vec<usize>)> {
        self.schedule.observe(self.now());
        let mut taken = Vec::new();
        while let Some(time) = self.schedule.take_due(self.now(), &mut self.due) {
            taken.push((time, self.due.clone()));
        }
        taken
    }

    /// Sleeps until the deadline, as the sampler does (at most a second), and takes what is due.
    fn step(&mut self) -> Vec<(i64, Vec<usize>)> {
        let deadline = nanos(self.schedule.deadline().expect("a track"));
        self.advance((deadline - self.monotonic).clamp(0, 1_000 * MS));
        self.take()
    }

    /// Returns the nominal times of `steps` steps.
    fn times(&mut self, steps: usize) -> Vec<i64> {
        (0..steps)
            .flat_map(|_| self.step())
            .map(|(time, _)| time)
            .collect()
    }

    fn counts(&self) -> (u64, u64, u64) {
        let ScheduleCounts {
            late,
            missed,
            clock_steps,
        } = self.schedule.schedule_counts();
        (late, missed, clock_steps)
    }
}

#[test]
fn the_first_pass_is_at_once_and_then_at_multiples() {
    let mut machine = SimulatedClocks::new(&[500], 1_234);
    assert_eq!(
        machine.take(),
        [(1_234, vec![0])],
        "it carries its own time"
    );
    assert_eq!(machine.take(), []);
    assert_eq!(machine.times(3), [1_500, 2_000, 2_500]);
    assert_eq!(machine.utc, 2_500 * MS, "exactly on time");
    assert_eq!(machine.counts(), (0, 0, 0), "a first pass is not late");
}

#[test]
fn the_first_pass_is_one_for_all_rates() {
    let mut machine = SimulatedClocks::new(&[500, 5_000], 1_234);
    assert_eq!(machine.take(), [(1_234, vec![0, 1])]);
    assert_eq!(
        machine.times(7),
        [1_500, 2_000, 2_500, 3_000, 3_500, 4_000, 4_500]
    );
    assert_eq!(machine.step(), [(5_000, vec![0, 1])]);
    assert_eq!(machine.counts(), (0, 0, 0));
}

#[test]
fn odd_rates_meet_at_their_common_multiples() {
    for (rates, until, first, both) in [
        (
            [3, 500],
            3_100,
            vec![(0, vec![0, 1])],
            vec![0, 1_500, 3_000],
        ),
        (
            [700, 500],
            7_100,
            vec![(0, vec![0, 1])],
            vec![0, 3_500, 7_000],
        ),
        (
            [1, 5_000],
            10_001,
            vec![(0, vec![0, 1])],
            vec![0, 5_000, 10_000],
        ),
    ] {
        let mut machine = SimulatedClocks::new(&rates, 0);
        assert_eq!(machine.take(), first);
        let mut together = vec![0];
        let mut counted = [1, 1];
        while machine.utc < until * MS {
            for (time, tracks) in machine.step() {
                for &track in &tracks {
                    assert_eq!(time % rates[track] as i64, 0);
                    counted[track] += 1;
                }
                if tracks.len() == 2 {
                    together.push(time);
                }
            }
        }
        assert_eq!(together, both);
        for (track, count) in counted.into_iter().enumerate() {
            let expected = machine.utc / MS / rates[track] as i64 + 1;
            assert_eq!(count, expected, "{rates:?}: every multiple once");
        }
        assert_eq!(machine.counts(), (0, 0, 0));
    }
}

#[test]
fn steps_are_counted_and_go_on_with_the_new_time() {
    for step in [
        -3 * HOUR,
        -60_000,
        -5_000,
        -1_000,
        -500,
        500,
        1_000,
        5_000,
        60_000,
        3 * HOUR,
    ] {
        let mut machine = SimulatedClocks::new(&[500], 40_000_000);
        machine.take();
        machine.times(4);
        machine.utc += step * MS;
        let taken = machine.times(3);
        // The wake-up after the step only registers it; sampling continues with the next multiple.
        let first = 40_002_500 + step;
        let first = first.div_euclid(500) * 500 + 500;
        assert_eq!(taken, [first, first + 500], "step by {step} ms");
        assert_eq!(machine.counts(), (0, 0, 1), "step by {step} ms");
    }
}

#[test]
fn a_smaller_difference_is_slew_and_repeats_nothing() {
    for difference in [-499, -300, -1, 1, 300, 499] {
        let mut machine = SimulatedClocks::new(&[500], 0);
        machine.take();
        machine.times(4);
        machine.utc += difference * MS;
        let taken = machine.times(12);
        assert_eq!(taken[0], 2_500, "difference {difference} ms");
        assert!(
            taken.windows(2).all(|pair| pair[1] == pair[0] + 500),
            "{taken:?}"
        );
        assert_eq!(machine.counts().2, 0);
        let expected = taken.last().expect("taken") * MS;
        assert_eq!(machine.utc, expected, "anchored to the new time");
    }
}

#[test]
fn slew_at_1000_hz_never_repeats_a_time() {
    // 500 ppm is the kernel's maximum slew rate; 5 % is a broken clock.
    for (slew, skipped_max) in [(500, 0), (-500, 0), (50_000, 600), (-50_000, 0)] {
        let mut machine = SimulatedClocks::new(&[1], 1_000_000);
        let mut last = machine.take()[0].0;
        let mut skipped = 0;
        for _ in 0..10_000 {
            let before = machine.monotonic;
            let taken = machine.step();
            machine.utc += (machine.monotonic - before) * slew / 1_000_000;
            for (time, _) in taken {
                assert!(time > last, "{time} after {last} at {slew} ppm");
                skipped += time - last - 1;
                last = time;
            }
        }
        assert!(
            (machine.utc / MS - last).abs() <= 60,
            "follows UTC within a second's drift"
        );
        assert!(skipped <= skipped_max, "{skipped} skipped at {slew} ppm");
        assert_eq!(
            machine.counts().1,
            skipped as u64,
            "what is skipped is counted"
        );
        assert_eq!(machine.counts().2, 0);
    }
}

#[test]
fn a_stall_gives_one_pass_and_counts_the_rest() {
    let mut machine = SimulatedClocks::new(&[500, 5_000], 10_000);
    assert_eq!(machine.take(), [(10_000, vec![0, 1])]);
    machine.advance(12_400 * MS);
    assert_eq!(machine.take(), [(20_000, vec![1]), (22_000, vec![0])]);
    // 10.5 … 21.5 s of the fast track and 15 s of the slow one; 400 ms and 2.4 s after the
    // deadline.
    assert_eq!(machine.counts(), (1, 23 + 1, 0));
    assert_eq!(machine.times(2), [22_500, 23_000]);
    assert_eq!(machine.counts(), (1, 24, 0));
}

#[test]
fn late_is_more_than_half_an_interval() {
    for (delay, late) in [(0, 0), (250 * MS, 0), (250 * MS + 1, 1), (499 * MS, 1)] {
        let mut machine = SimulatedClocks::new(&[500], 0);
        machine.take();
        machine.advance(500 * MS + delay);
        assert_eq!(machine.take(), [(500, vec![0])]);
        assert_eq!(
            machine.counts(),
            (late, 0, 0),
            "{delay} ns after the deadline"
        );
    }
}

#[test]
fn the_year_2038_is_a_year_like_any_other() {
    let end = (1_i64 << 31) * 1_000;
    let mut machine = SimulatedClocks::new(&[500], end - 1_000);
    machine.take();
    assert_eq!(machine.times(4), [end - 500, end, end + 500, end + 1_000]);
    assert_eq!(machine.counts(), (0, 0, 0));
}

#[test]
fn a_clock_before_1970_has_multiples_too() {
    let mut machine = SimulatedClocks::new(&[700], -1_000);
    assert_eq!(machine.take(), [(-1_000, vec![0])]);
    assert_eq!(machine.times(3), [-700, 0, 700]);
}

#[test]
fn a_slow_schedule_notices_a_step_within_a_second() {
    let mut machine = SimulatedClocks::new(&[60_000], 0);
    machine.take();
    machine.utc += HOUR * MS;
    machine.step();
    assert_eq!(machine.counts(), (0, 0, 1));
    let next = nanos(machine.schedule.deadline().expect("a track"));
    assert_eq!(next - machine.monotonic, 59_000 * MS);
}

#[test]
fn the_last_pass_is_now_unless_now_was_taken() {
    let mut machine = SimulatedClocks::new(&[500], 1_000);
    assert_eq!(machine.schedule.final_time(machine.now()), Some(1_000));
    machine.take();
    assert_eq!(machine.schedule.final_time(machine.now()), None);
    machine.advance(MS);
    assert_eq!(machine.schedule.final_time(machine.now()), Some(1_001));
}

#[test]
fn no_tracks_are_never_due() {
    let mut machine = SimulatedClocks::new(&[], 0);
    assert_eq!(machine.take(), []);
    assert_eq!(machine.schedule.deadline(), None);
}

#[test]
fn an_overrun_misses_the_nominal_times_before_the_reading() {
    let mut machine = SimulatedClocks::new(&[100, 1_000], 0);
    machine.take();
    assert_eq!(machine.times(2), [100, 200]);
    let rate = Duration::from_millis(100);
    // Two groups of the pass for 200 were read at 450.
    machine.schedule.record_overrun(rate, 450);
    machine.schedule.record_overrun(rate, 450);
    assert_eq!(machine.counts(), (0, 2, 0), "300 and 200 or 400");
    machine.advance(260 * MS);
    assert_eq!(machine.take(), [], "400 has its sample");
    assert_eq!(machine.times(1), [500]);
    machine.schedule.record_overrun(rate, 599);
    assert_eq!(machine.counts(), (0, 2, 0));
    assert_eq!(machine.times(1), [600]);
}
