//! Downsampling: one value per bucket of time for each series, before rates and aggregation.

use jiff::tz::TimeZone;
use pegel_metric::Millis;

use crate::aggregator::Aggregator;
use crate::calendar::bucket_edges;
use crate::error::OpentsdbError;
use crate::time_syntax::{TimeUnit, parse_duration};

/// A parsed downsampling specifier, such as `10s-avg-nan`.
#[derive(Debug, Clone, PartialEq)]
pub struct Downsample {
    /// As it was written.
    pub text: String,
    pub interval: DownsampleInterval,
    pub function: Aggregator,
    pub fill: FillPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DownsampleInterval {
    /// The whole time range of the query.
    All,
    /// Multiples of this many milliseconds since 1970.
    Fixed(Millis),
    /// Multiples of a calendar unit.
    Calendar(i64, TimeUnit),
}

/// The value of a bucket without samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FillPolicy {
    /// The bucket is omitted.
    None,
    Nan,
    Null,
    Zero,
    Scalar(f64),
}

impl FillPolicy {
    /// Returns the fill value, if there is one.
    pub(crate) fn value(self) -> Option<f64> {
        match self {
            FillPolicy::None => None,
            FillPolicy::Nan | FillPolicy::Null => Some(f64::NAN),
            FillPolicy::Zero => Some(0.0),
            FillPolicy::Scalar(value) => Some(value),
        }
    }

    pub(crate) fn parse(name: &str) -> Result<FillPolicy, OpentsdbError> {
        Ok(match name {
            "none" => FillPolicy::None,
            "nan" => FillPolicy::Nan,
            "null" => FillPolicy::Null,
            "zero" => FillPolicy::Zero,
            _ => {
                return Err(
                    OpentsdbError::bad_request(format!("No such fill policy: '{name}'"))
                        .with_details("one of none, nan, null, zero"),
                );
            }
        })
    }
}

impl Downsample {
    /// Parses `10s-avg`, `1dc-sum-zero`, `0all-max`. `uses_calendar` makes every interval a
    /// calendar interval.
    pub fn parse(text: &str, uses_calendar: bool) -> Result<Downsample, OpentsdbError> {
        let wrong = |why: &str| {
            OpentsdbError::bad_request(format!("Invalid downsampling specifier '{text}': {why}"))
                .with_details("an interval, a function and optionally a fill policy: 10s-avg, 1dc-sum-zero, 0all-max")
        };
        let parts: Vec<&str> = text.split('-').collect();
        let (interval, function, fill) = match parts[..] {
            [interval, function] => (interval, function, "none"),
            [interval, function, fill] => (interval, function, fill),
            _ => return Err(wrong("expected two or three parts")),
        };
        let span = match interval {
            "0all" | "all" => DownsampleInterval::All,
            _ => {
                let calendar = interval.strip_suffix('c');
                let (count, unit) = parse_duration(calendar.unwrap_or(interval))?;
                if calendar.is_some() || uses_calendar {
                    DownsampleInterval::Calendar(count, unit)
                } else {
                    DownsampleInterval::Fixed(count * unit.millis())
                }
            }
        };
        let function = Aggregator::parse(function).map_err(|_| {
            OpentsdbError::bad_request(format!("No such downsampling function: {function}"))
        })?;
        if function == Aggregator::None {
            return Err(wrong("none cannot be used for downsampling"));
        }
        Ok(Downsample {
            text: text.to_owned(),
            interval: span,
            function,
            fill: FillPolicy::parse(fill)?,
        })
    }
}

/// The buckets of one query: those whose timestamps lie between its start and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Buckets {
    One {
        start: Millis,
        end: Millis,
    },
    Even {
        first: Millis,
        step: Millis,
        count: usize,
    },
    /// The timestamps and, last, the end of the last bucket.
    Uneven(Vec<Millis>),
}

/// The maximum number of calendar buckets of one query.
const CALENDAR_EDGES_MAX: usize = 1 << 20;

impl Buckets {
    /// Returns the buckets of a range; `None` if no bucket starts in it.
    pub(crate) fn for_range(
        span: DownsampleInterval,
        start: Millis,
        end: Millis,
        zone: &TimeZone,
    ) -> Result<Option<Buckets>, OpentsdbError> {
        Ok(match span {
            DownsampleInterval::All => Some(Buckets::One { start, end }),
            DownsampleInterval::Fixed(step) => {
                let first = start.div_euclid(step) * step;
                let first = if first < start {
                    first.saturating_add(step)
                } else {
                    first
                };
                (first <= end).then(|| Buckets::Even {
                    first,
                    step,
                    count: usize::try_from((end - first) / step + 1).unwrap_or(usize::MAX),
                })
            }
            DownsampleInterval::Calendar(count, unit) => {
                let mut edges = bucket_edges(start, end, (count, unit), zone, CALENDAR_EDGES_MAX)
                    .ok_or_else(|| {
                    OpentsdbError::too_large(
                        "the interval produces too many buckets for this range",
                    )
                    .with_details("use a shorter time range or a longer interval")
                })?;
                edges.retain(|edge| *edge >= start);
                (edges.len() > 1).then_some(Buckets::Uneven(edges))
            }
        })
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Buckets::One { .. } => 1,
            Buckets::Even { count, .. } => *count,
            Buckets::Uneven(edges) => edges.len() - 1,
        }
    }

    /// Returns the first and the last time of all buckets. The last bucket is read to its own end,
    /// which may lie after that of the query: half a bucket would look like a drop.
    pub(crate) fn range(&self) -> (Millis, Millis) {
        match self {
            Buckets::One { start, end } => (*start, *end),
            Buckets::Even { first, step, count } => {
                let length = (*count as Millis).saturating_mul(*step);
                (*first, first.saturating_add(length) - 1)
            }
            Buckets::Uneven(edges) => (edges[0], edges[edges.len() - 1] - 1),
        }
    }

    pub(crate) fn timestamp(&self, index: usize) -> Millis {
        match self {
            Buckets::One { start, .. } => *start,
            Buckets::Even { first, step, .. } => first + index as Millis * step,
            Buckets::Uneven(edges) => edges[index],
        }
    }

    /// Returns the index of the bucket of a time within the range; `hint` is the index for an
    /// earlier time.
    fn index(&self, time: Millis, hint: usize) -> usize {
        match self {
            Buckets::One { .. } => 0,
            Buckets::Even { first, step, .. } => ((time - first) / step) as usize,
            Buckets::Uneven(edges) => {
                let ahead = edges[hint + 1..].partition_point(|edge| *edge <= time);
                hint + ahead
            }
        }
    }

    /// Puts samples into buckets and computes the value of each.
    pub(crate) fn fold(
        &self,
        samples: &[(Millis, f64)],
        function: Aggregator,
        values: &mut Vec<f64>,
        out: &mut Vec<(Millis, f64)>,
    ) {
        let mut bucket = 0;
        values.clear();
        for &(time, value) in samples {
            let index = self.index(time, bucket);
            if index != bucket && !values.is_empty() {
                out.push((self.timestamp(bucket), function.aggregate(values)));
                values.clear();
            }
            bucket = index;
            values.push(value);
        }
        if !values.is_empty() {
            out.push((self.timestamp(bucket), function.aggregate(values)));
        }
    }

    /// Adds a point with `value` for every bucket that has none.
    pub(crate) fn fill(&self, points: &mut Vec<(Millis, f64)>, value: f64) {
        let mut filled = Vec::with_capacity(self.len());
        let mut given = points.iter().copied().peekable();
        for index in 0..self.len() {
            let stamp = self.timestamp(index);
            filled.push(
                given
                    .next_if(|(time, _)| *time == stamp)
                    .unwrap_or((stamp, value)),
            );
        }
        *points = filled;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifiers_are_read() {
        let parse = |text| Downsample::parse(text, false).expect("valid");
        let ten = parse("10s-avg");
        assert_eq!(
            (ten.interval, ten.function, ten.fill),
            (
                DownsampleInterval::Fixed(10_000),
                Aggregator::Avg,
                FillPolicy::None
            )
        );
        assert_eq!(
            parse("1dc-sum-zero").interval,
            DownsampleInterval::Calendar(1, TimeUnit::Day)
        );
        assert_eq!(parse("1dc-sum-zero").fill, FillPolicy::Zero);
        assert_eq!(parse("0all-max").interval, DownsampleInterval::All);
        assert_eq!(parse("all-max-null").fill, FillPolicy::Null);
        assert_eq!(
            parse("2n-p99").interval,
            DownsampleInterval::Fixed(2 * 30 * 86_400_000)
        );
        assert_eq!(
            Downsample::parse("1h-avg", true).expect("valid").interval,
            DownsampleInterval::Calendar(1, TimeUnit::Hour)
        );
    }

    #[test]
    fn wrong_specifiers_are_refused() {
        for (text, message) in [
            (
                "",
                "Invalid downsampling specifier '': expected two or three parts",
            ),
            (
                "10s",
                "Invalid downsampling specifier '10s': expected two or three parts",
            ),
            (
                "10s-avg-nan-x",
                "Invalid downsampling specifier '10s-avg-nan-x': expected two or three parts",
            ),
            (
                "10s-none",
                "Invalid downsampling specifier '10s-none': none cannot be used for downsampling",
            ),
            ("10s-median2", "No such downsampling function: median2"),
            ("10s-avg-scalar", "No such fill policy: 'scalar'"),
            ("0s-avg", "Invalid duration: 0s"),
            ("10-avg", "Invalid duration: 10"),
        ] {
            let problem = Downsample::parse(text, false).expect_err(text);
            assert_eq!(problem.to_string(), message);
            assert_eq!(problem.status(), 400);
        }
    }

    #[test]
    fn only_buckets_whose_stamp_is_asked_for_exist() {
        let buckets =
            |span, start, end| Buckets::for_range(span, start, end, &TimeZone::UTC).expect("few");
        let even = buckets(DownsampleInterval::Fixed(10), 25, 50).expect("some");
        assert_eq!(
            even,
            Buckets::Even {
                first: 30,
                step: 10,
                count: 3
            }
        );
        assert_eq!(even.range(), (30, 59), "the last bucket is whole");
        assert_eq!(buckets(DownsampleInterval::Fixed(10), 21, 29), None);
        assert_eq!(
            buckets(DownsampleInterval::All, 21, 29)
                .expect("one")
                .range(),
            (21, 29)
        );
        let day = 86_400_000;
        let days =
            buckets(DownsampleInterval::Calendar(1, TimeUnit::Day), 1, 3 * day).expect("some");
        assert_eq!(days, Buckets::Uneven(vec![day, 2 * day, 3 * day, 4 * day]));
        assert_eq!(days.range(), (day, 4 * day - 1));
    }

    #[test]
    fn samples_go_to_their_bucket_and_gaps_are_filled() {
        let even = Buckets::Even {
            first: 0,
            step: 10,
            count: 5,
        };
        let uneven = Buckets::Uneven(vec![0, 10, 20, 30, 40, 50]);
        let samples = [
            (0, 1.0),
            (9, 3.0),
            (10, 5.0),
            (35, 7.0),
            (39, 9.0),
            (40, 2.0),
        ];
        for buckets in [even, uneven] {
            let mut points = Vec::new();
            buckets.fold(&samples, Aggregator::Avg, &mut Vec::new(), &mut points);
            assert_eq!(points, [(0, 2.0), (10, 5.0), (30, 8.0), (40, 2.0)]);
            buckets.fill(&mut points, 0.0);
            assert_eq!(
                points,
                [(0, 2.0), (10, 5.0), (20, 0.0), (30, 8.0), (40, 2.0)]
            );
        }
        let mut points = Vec::new();
        let one = Buckets::One { start: 0, end: 49 };
        one.fold(&samples, Aggregator::Count, &mut Vec::new(), &mut points);
        assert_eq!(points, [(0, 6.0)]);
    }
}
