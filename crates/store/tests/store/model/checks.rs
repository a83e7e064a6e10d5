//! Invariants of the store, and queries with random ranges, steps and aggregations.

use pegel_metric::{Clock, Input, Millis, Selector};
use pegel_store::{QueryStep, RangeQuery, StepAggregation};

use super::expected_current_values::NewestSamples;
use super::model_run::{AHEAD_MAX, HOUR, MINUTE, ModelMode, ModelRun, START};
use super::naive_store::{NaiveAnswer, fold};

impl ModelRun {
    pub(super) fn check_ledger(&self) {
        let mut kept = 0;
        for account in self.store.ledger().totals_by_input() {
            let dropped: u64 = account.dropped.iter().map(|(_, count)| count).sum();
            assert_eq!(account.received, account.kept + dropped, "{account:?}");
            kept += account.kept;
        }
        assert_eq!(kept, self.kept, "kept");
    }

    pub(super) fn check_currents(&mut self) {
        self.log_operation("latest".into());
        self.sync();
        let now = self.clock.utc();
        self.currents.changed(now);
        // Retention by bytes may have dropped the newest samples: after the clock was set back,
        // their blocks are not those with the latest times.
        let is_bounded_by_bytes = matches!(self.mode, ModelMode::Ordered | ModelMode::Tight);
        let retained = is_bounded_by_bytes
            .then(|| newest_of(&self.answer(&Selector::all(), Millis::MIN, now, None)));
        let mut visits = Vec::new();
        self.store
            .latest(&Selector::all(), 0, &mut |series, latest| {
                visits.push((series.clone(), latest));
            });
        self.currents
            .check(visits, now, &self.naive, retained.as_ref());
    }

    pub(super) fn check_everything(&mut self) {
        self.check_ledger();
        self.check_currents();
        self.check_raw(&Selector::all(), Millis::MIN, Millis::MAX);
    }

    pub(super) fn check_random_query(&mut self) {
        let selector = *self.rng.pick(&[
            "*",
            "loose",
            "cpu*",
            r#"{n=~"[0-3]"}"#,
            r#"loose{n="1"}"#,
            r#"disk{n!="2"}"#,
            "*{n=\"0\"}",
        ]);
        let now = self.clock.utc();
        let span = *self.rng.pick(&[1000, MINUTE, HOUR, 50 * HOUR]);
        let (start, end) = match self.rng.below(4) {
            0 => (Millis::MIN, Millis::MAX),
            1 => (now - span, now),
            _ => {
                let start = now + AHEAD_MAX - self.rng.between(0..span + AHEAD_MAX);
                (start, start + self.rng.between(0..span))
            }
        };
        let step = (!self.rng.chance(3)).then(|| QueryStep {
            millis: match self.rng.below(5) {
                0 => 1,
                1 => self.rng.between(1..2000),
                2 => 10_000,
                3 => HOUR,
                _ => self.rng.between(1..10 * HOUR),
            },
            aggregation: (!self.rng.chance(8)).then(|| *self.rng.pick(&StepAggregation::ALL)),
        });
        self.log_operation(format!("ask {selector} from {start} to {end} by {step:?}"));
        let selector = Selector::parse(selector).expect("a valid pattern");
        match step {
            None => drop(self.check_raw(&selector, start, end)),
            Some(step) => self.check_folded(&selector, start, end, step),
        }
    }

    /// Checks that every expected sample is present and every present sample is right. Returns the
    /// result.
    fn check_raw(&self, selector: &Selector, start: Millis, end: Millis) -> NaiveAnswer {
        let answer = self.answer(selector, start, end, None);
        let wanted = self.naive.raw(selector, start, end);
        let is_bounded_by_bytes = matches!(self.mode, ModelMode::Ordered | ModelMode::Tight);
        if start >= self.retained_from && !is_bounded_by_bytes {
            compare(&answer, &wanted);
            return answer;
        }
        assert!(answer.is_sorted_by(|a, b| a.0 < b.0), "series are sorted");
        for (series, points) in &answer {
            assert!(
                points.is_sorted_by(|a, b| a.0 < b.0),
                "{series} is sorted by time"
            );
            for (time, bits) in points {
                let known = self.naive.get(series, *time);
                let may_differ =
                    *time < self.retained_from && self.rewritten.contains(&(series.clone(), *time));
                assert!(
                    known == Some(*bits) || may_differ,
                    "{series} at {}: {}, not {:?}",
                    time - START,
                    f64::from_bits(*bits),
                    known.map(f64::from_bits),
                );
            }
        }
        match self.mode {
            ModelMode::Tight => {}
            ModelMode::Ordered => {
                for input in Input::ALL {
                    self.check_beginning(&answer, *input, selector, start, end);
                }
            }
            _ => compare(
                &from(&answer, self.retained_from),
                &self.naive.raw(selector, start.max(self.retained_from), end),
            ),
        }
        answer
    }

    /// Checks that only the oldest samples of each input are missing: each input has its own bytes.
    fn check_beginning(
        &self,
        answer: &NaiveAnswer,
        input: Input,
        selector: &Selector,
        start: Millis,
        end: Millis,
    ) {
        let of_input = |answer: &NaiveAnswer| -> NaiveAnswer {
            let its = answer
                .iter()
                .filter(|(series, _)| series.family().input == input);
            its.cloned().collect()
        };
        let answer = of_input(answer);
        let firsts = answer
            .iter()
            .filter_map(|(_, points)| Some(points.first()?.0));
        let oldest = firsts.min().unwrap_or(Millis::MAX);
        let wanted = self.naive.raw(selector, start.max(oldest), end);
        compare(&from(&answer, oldest), &of_input(&wanted));
    }

    fn check_folded(&self, selector: &Selector, start: Millis, end: Millis, step: QueryStep) {
        let is_bounded_by_bytes = matches!(self.mode, ModelMode::Ordered | ModelMode::Tight);
        let raw = if start >= self.retained_from && !is_bounded_by_bytes {
            self.naive.raw(selector, start, end)
        } else {
            // Retention must not run between the two queries.
            self.store.flush_to_blocks();
            self.check_raw(selector, start, end)
        };
        let answer = self.answer(selector, start, end, Some(step));
        compare_folded(&answer, &fold(raw, step), step);
    }

    fn answer(
        &self,
        selector: &Selector,
        start: Millis,
        end: Millis,
        step: Option<QueryStep>,
    ) -> NaiveAnswer {
        let mut answer = NaiveAnswer::new();
        let query = RangeQuery::new(selector.clone(), start, end, step);
        self.store
            .query_range(&query, &mut |series, points| {
                let points = points.iter().map(|(time, value)| (*time, value.to_bits()));
                answer.push((series.clone(), points.collect()));
            })
            .expect("an answer");
        answer
    }
}

fn newest_of(answer: &NaiveAnswer) -> NewestSamples {
    let newest = answer
        .iter()
        .filter_map(|(series, points)| Some((series.clone(), *points.last()?)));
    newest.collect()
}

fn from(answer: &NaiveAnswer, oldest: Millis) -> NaiveAnswer {
    answer
        .iter()
        .map(|(series, points)| {
            let points = points.iter().filter(|(time, _)| *time >= oldest).copied();
            (series.clone(), points.collect::<Vec<_>>())
        })
        .filter(|(_, points)| !points.is_empty())
        .collect()
}

fn compare(answer: &NaiveAnswer, wanted: &NaiveAnswer) {
    compare_by(answer, wanted, |a, b| a == b);
}

/// Compares bit for bit, except where IEEE 754 leaves the result open: which NaN a sum is, and
/// which zero is the minimum.
fn compare_folded(answer: &NaiveAnswer, wanted: &NaiveAnswer, step: QueryStep) {
    compare_by(answer, wanted, |a, b| {
        let (x, y) = (f64::from_bits(a), f64::from_bits(b));
        match step.aggregation {
            Some(StepAggregation::First | StepAggregation::Last) => a == b,
            _ => a == b || (x.is_nan() && y.is_nan()) || (x == 0.0 && y == 0.0),
        }
    });
}

fn compare_by(answer: &NaiveAnswer, wanted: &NaiveAnswer, same: impl Fn(u64, u64) -> bool) {
    let texts = |answer: &NaiveAnswer| -> Vec<String> {
        answer
            .iter()
            .map(|(series, _)| series.text().to_owned())
            .collect()
    };
    assert_eq!(texts(answer), texts(wanted), "the series of the answer");
    for ((series, got), (_, wanted)) in answer.iter().zip(wanted) {
        let differs = got
            .iter()
            .zip(wanted)
            .find(|(a, b)| a.0 != b.0 || !same(a.1, b.1));
        let show =
            |(time, bits): &(Millis, u64)| format!("{} at {}", f64::from_bits(*bits), time - START);
        assert!(
            differs.is_none() && got.len() == wanted.len(),
            "{series}: {} points, not {}; first difference: {:?}",
            got.len(),
            wanted.len(),
            differs.map(|(a, b)| (show(a), show(b)))
        );
    }
}
