//! Downsampling: one value for each stretch of time of each series, before anything else happens to it.

use pegel_metric::Millis;

use crate::aggregator::Aggregator;
use crate::calendar::edges;
use crate::moment::{Unit, parse_span};
use crate::problem::Problem;
use crate::zone::Zone;

/// What `10s-avg-nan` asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Downsample {
    /// As it was written.
    pub text: String,
    pub span: Span,
    pub function: Aggregator,
    pub fill: Fill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// The whole question.
    All,
    /// Multiples of this many milliseconds since 1970.
    Fixed(Millis),
    /// Where a calendar says.
    Calendar(i64, Unit),
}

/// What a bucket without samples holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// It does not exist.
    None,
    Nan,
    Null,
    Zero,
    Scalar(f64),
}

impl Fill {
    /// The value to put in, where there is one.
    pub(crate) fn value(self) -> Option<f64> {
        match self {
            Fill::None => None,
            Fill::Nan | Fill::Null => Some(f64::NAN),
            Fill::Zero => Some(0.0),
            Fill::Scalar(value) => Some(value),
        }
    }

    pub(crate) fn parse(name: &str) -> Result<Fill, Problem> {
        Ok(match name {
            "none" => Fill::None,
            "nan" => Fill::Nan,
            "null" => Fill::Null,
            "zero" => Fill::Zero,
            _ => {
                return Err(Problem::bad(format!("No such fill policy: '{name}'"))
                    .details("one of none, nan, null, zero"));
            }
        })
    }
}

impl Downsample {
    /// Reads `10s-avg`, `1dc-sum-zero`, `0all-max`. `uses_calendar` makes every interval one of a calendar.
    pub fn parse(text: &str, uses_calendar: bool) -> Result<Downsample, Problem> {
        let wrong = |why: &str| {
            Problem::bad(format!("Invalid downsampling specifier '{text}': {why}"))
                .details("an interval, a function and perhaps a fill policy: 10s-avg, 1dc-sum-zero, 0all-max")
        };
        let parts: Vec<&str> = text.split('-').collect();
        let (interval, function, fill) = match parts[..] {
            [interval, function] => (interval, function, "none"),
            [interval, function, fill] => (interval, function, fill),
            _ => return Err(wrong("it has not two or three parts")),
        };
        let span = match interval {
            "0all" | "all" => Span::All,
            _ => {
                let calendar = interval.strip_suffix('c');
                let (count, unit) = parse_span(calendar.unwrap_or(interval))?;
                match calendar.is_some() || uses_calendar {
                    true => Span::Calendar(count, unit),
                    false => Span::Fixed(count * unit.millis()),
                }
            }
        };
        let function = Aggregator::parse(function)
            .map_err(|_| Problem::bad(format!("No such downsampling function: {function}")))?;
        if function == Aggregator::None {
            return Err(wrong("none cannot be used for downsampling"));
        }
        Ok(Downsample {
            text: text.to_owned(),
            span,
            function,
            fill: Fill::parse(fill)?,
        })
    }
}

/// The buckets of one question: those whose stamps lie between its start and its end.
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
    /// The stamps and, last, where the last bucket ends.
    Uneven(Vec<Millis>),
}

/// How many buckets of a calendar one question may have.
const EDGES_MAX: usize = 1 << 20;

impl Buckets {
    /// Nothing where no stamp lies in the range.
    pub fn of(
        span: Span,
        start: Millis,
        end: Millis,
        zone: &Zone,
    ) -> Result<Option<Buckets>, Problem> {
        Ok(match span {
            Span::All => Some(Buckets::One { start, end }),
            Span::Fixed(step) => {
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
            Span::Calendar(count, unit) => {
                let mut edges =
                    edges(start, end, (count, unit), zone, EDGES_MAX).ok_or_else(|| {
                        Problem::large("the interval makes too many buckets of this range")
                            .details("ask for less time or a longer interval")
                    })?;
                edges.retain(|edge| *edge >= start);
                (edges.len() > 1).then_some(Buckets::Uneven(edges))
            }
        })
    }

    pub fn len(&self) -> usize {
        match self {
            Buckets::One { .. } => 1,
            Buckets::Even { count, .. } => *count,
            Buckets::Uneven(edges) => edges.len() - 1,
        }
    }

    /// The first and the last time that belongs to any of them. The last bucket is read to its own end, which
    /// may lie after that of the question: half a bucket would look like a drop.
    pub fn range(&self) -> (Millis, Millis) {
        match self {
            Buckets::One { start, end } => (*start, *end),
            Buckets::Even { first, step, count } => {
                let length = (*count as Millis).saturating_mul(*step);
                (*first, first.saturating_add(length) - 1)
            }
            Buckets::Uneven(edges) => (edges[0], edges[edges.len() - 1] - 1),
        }
    }

    pub fn stamp(&self, index: usize) -> Millis {
        match self {
            Buckets::One { start, .. } => *start,
            Buckets::Even { first, step, .. } => first + index as Millis * step,
            Buckets::Uneven(edges) => edges[index],
        }
    }

    /// The number of the bucket that a time of their range lies in; `hint` is that of an earlier time.
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

    /// Puts samples into buckets and works out the value of each.
    pub fn fold(
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
                out.push((self.stamp(bucket), function.of(values)));
                values.clear();
            }
            bucket = index;
            values.push(value);
        }
        if !values.is_empty() {
            out.push((self.stamp(bucket), function.of(values)));
        }
    }

    /// Puts `value` into every bucket that has none.
    pub fn fill(&self, points: &mut Vec<(Millis, f64)>, value: f64) {
        let mut filled = Vec::with_capacity(self.len());
        let mut given = points.iter().copied().peekable();
        for index in 0..self.len() {
            let stamp = self.stamp(index);
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
            (ten.span, ten.function, ten.fill),
            (Span::Fixed(10_000), Aggregator::Avg, Fill::None)
        );
        assert_eq!(parse("1dc-sum-zero").span, Span::Calendar(1, Unit::Day));
        assert_eq!(parse("1dc-sum-zero").fill, Fill::Zero);
        assert_eq!(parse("0all-max").span, Span::All);
        assert_eq!(parse("all-max-null").fill, Fill::Null);
        assert_eq!(parse("2n-p99").span, Span::Fixed(2 * 30 * 86_400_000));
        assert_eq!(
            Downsample::parse("1h-avg", true).expect("valid").span,
            Span::Calendar(1, Unit::Hour)
        );
    }

    #[test]
    fn wrong_specifiers_are_refused() {
        for (text, message) in [
            (
                "",
                "Invalid downsampling specifier '': it has not two or three parts",
            ),
            (
                "10s",
                "Invalid downsampling specifier '10s': it has not two or three parts",
            ),
            (
                "10s-avg-nan-x",
                "Invalid downsampling specifier '10s-avg-nan-x': it has not two or three parts",
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
        let buckets = |span, start, end| Buckets::of(span, start, end, &Zone::utc()).expect("few");
        let even = buckets(Span::Fixed(10), 25, 50).expect("some");
        assert_eq!(
            even,
            Buckets::Even {
                first: 30,
                step: 10,
                count: 3
            }
        );
        assert_eq!(even.range(), (30, 59), "the last bucket is whole");
        assert_eq!(buckets(Span::Fixed(10), 21, 29), None);
        assert_eq!(buckets(Span::All, 21, 29).expect("one").range(), (21, 29));
        let day = 86_400_000;
        let days = buckets(Span::Calendar(1, Unit::Day), 1, 3 * day).expect("some");
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
