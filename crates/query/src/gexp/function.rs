//! The functions of gexp expressions.

use std::collections::{BTreeMap, VecDeque};

use pegel_metric::Millis;

use crate::error::OpentsdbError;
use crate::evaluate::{ResultSeries, common_tags};
use crate::memory_budget::QueryMemoryBudget;
use crate::time_syntax::parse_duration;

/// A function over result series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum GexpFunction {
    Absolute,
    Scale(f64),
    MovingAverage(AverageWindow),
    HighestCurrent(usize),
    HighestMax(usize),
    Combine(SeriesOperation),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AverageWindow {
    Points(usize),
    Time(Millis),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeriesOperation {
    Sum,
    Difference,
    Product,
    Quotient,
}

impl GexpFunction {
    pub(super) fn new(
        name: &str,
        series: usize,
        parameters: &[&str],
    ) -> Result<GexpFunction, OpentsdbError> {
        let wrong = |why: String| OpentsdbError::bad_request(format!("{name}: {why}"));
        let operation = match name {
            "sumSeries" => Some(SeriesOperation::Sum),
            "diffSeries" => Some(SeriesOperation::Difference),
            "multiplySeries" => Some(SeriesOperation::Product),
            "divideSeries" => Some(SeriesOperation::Quotient),
            "absolute" | "scale" | "movingAverage" | "highestCurrent" | "highestMax" => None,
            _ => {
                return Err(OpentsdbError::bad_request(format!("Unknown function {name}")).with_details(
                    "one of absolute, diffSeries, divideSeries, highestCurrent, highestMax, movingAverage, multiplySeries, scale, sumSeries",
                ));
            }
        };
        match series {
            0 => return Err(wrong("requires a series".into())),
            1 if operation.is_some() && operation != Some(SeriesOperation::Sum) => {
                return Err(wrong("requires two series".into()));
            }
            3.. if operation == Some(SeriesOperation::Quotient) => {
                return Err(wrong("requires two series".into()));
            }
            2.. if operation.is_none() => return Err(wrong("accepts only one series".into())),
            _ => {}
        }
        if let Some(operation) = operation {
            return Ok(GexpFunction::Combine(operation));
        }
        let number = || {
            let text = parameters
                .first()
                .ok_or_else(|| wrong("requires a number after the series".into()))?;
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| wrong(format!("expected a number, found {text}")))
        };
        Ok(match name {
            "absolute" => GexpFunction::Absolute,
            "scale" => GexpFunction::Scale(number()?),
            "movingAverage" => GexpFunction::MovingAverage(
                parse_window(parameters.first())
                    .ok_or_else(|| wrong("requires a number of points or a duration".into()))?,
            ),
            "highestCurrent" => GexpFunction::HighestCurrent(number()?.max(0.0) as usize),
            _ => GexpFunction::HighestMax(number()?.max(0.0) as usize),
        })
    }

    /// Applies the function; `sets` holds the result series of each argument.
    pub(super) fn apply(
        self,
        sets: Vec<Vec<ResultSeries>>,
        budget: &mut QueryMemoryBudget,
    ) -> Result<Vec<ResultSeries>, OpentsdbError> {
        if let GexpFunction::Combine(operation) = self {
            return combine_by_tags(operation, sets, budget);
        }
        let mut lines: Vec<ResultSeries> = sets.into_iter().flatten().collect();
        match self {
            GexpFunction::Absolute => map_values(&mut lines, f64::abs),
            GexpFunction::Scale(factor) => map_values(&mut lines, |value| value * factor),
            GexpFunction::MovingAverage(window) => {
                lines
                    .iter_mut()
                    .for_each(|line| moving_average(line, window));
            }
            GexpFunction::HighestCurrent(count) => keep_highest(&mut lines, count, |line| {
                line.points
                    .last()
                    .map_or(f64::NEG_INFINITY, |point| point.1)
            }),
            GexpFunction::HighestMax(count) => keep_highest(&mut lines, count, |line| {
                let values = line.points.iter().map(|point| point.1);
                values.fold(f64::NEG_INFINITY, f64::max)
            }),
            GexpFunction::Combine(_) => {}
        }
        Ok(lines)
    }
}

fn parse_window(text: Option<&&str>) -> Option<AverageWindow> {
    let text = text?;
    if let Ok(points) = text.parse::<usize>() {
        return (points > 0).then_some(AverageWindow::Points(points));
    }
    // Graphite writes `5min`.
    let text = text
        .replace("min", "m")
        .replace("hour", "h")
        .replace("sec", "s");
    let (count, unit) = parse_duration(&text).ok()?;
    Some(AverageWindow::Time(count * unit.millis()))
}

fn map_values(lines: &mut [ResultSeries], change: impl Fn(f64) -> f64) {
    let points = lines.iter_mut().flat_map(|line| &mut line.points);
    points.for_each(|point| point.1 = change(point.1));
}

/// Replaces each point by the mean of the points in the window that ends with it.
fn moving_average(line: &mut ResultSeries, window: AverageWindow) {
    let mut inside: VecDeque<(Millis, f64)> = VecDeque::new();
    let (mut sum, mut count) = (0.0, 0u32);
    for point in &mut line.points {
        inside.push_back(*point);
        if point.1.is_finite() {
            (sum, count) = (sum + point.1, count + 1);
        }
        let is_outside = |inside: &VecDeque<(Millis, f64)>| match window {
            AverageWindow::Points(count) => inside.len() > count,
            AverageWindow::Time(length) => inside
                .front()
                .is_some_and(|first| point.0 - first.0 >= length),
        };
        while is_outside(&inside) {
            if let Some((_, value)) = inside.pop_front()
                && value.is_finite()
            {
                (sum, count) = (sum - value, count - 1);
            }
        }
        if count == 0 {
            // Do not carry over rounding errors.
            sum = 0.0;
        }
        point.1 = sum / f64::from(count);
    }
}

fn keep_highest(lines: &mut Vec<ResultSeries>, count: usize, of: impl Fn(&ResultSeries) -> f64) {
    let rank = |line: &ResultSeries| {
        Some(of(line))
            .filter(|value| !value.is_nan())
            .unwrap_or(f64::NEG_INFINITY)
    };
    lines.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
    lines.truncate(count);
}

/// Combines result series with the same tags. If each argument has one series, these are combined
/// regardless of tags.
fn combine_by_tags(
    operation: SeriesOperation,
    sets: Vec<Vec<ResultSeries>>,
    budget: &mut QueryMemoryBudget,
) -> Result<Vec<ResultSeries>, OpentsdbError> {
    if sets.iter().all(|set| set.len() == 1) {
        let lines: Vec<&ResultSeries> = sets.iter().flatten().collect();
        return Ok(vec![combine(operation, &lines, budget)?]);
    }
    let Some((first, rest)) = sets.split_first() else {
        return Ok(Vec::new());
    };
    let by_tags = |set: &Vec<ResultSeries>| {
        let entry = |(index, line): (usize, &ResultSeries)| (line.tags.clone(), index);
        set.iter()
            .enumerate()
            .map(entry)
            .collect::<BTreeMap<_, _>>()
    };
    let indexes: Vec<_> = rest.iter().map(by_tags).collect();
    let mut joined = Vec::new();
    for line in first {
        let mut lines = vec![line];
        for (set, index) in rest.iter().zip(&indexes) {
            lines.extend(index.get(&line.tags).map(|at| &set[*at]));
        }
        if lines.len() == sets.len() {
            joined.push(combine(operation, &lines, budget)?);
        }
    }
    Ok(joined)
}

/// At times that one of them lacks, sums and differences take it as zero; products and quotients
/// have no value.
fn combine(
    operation: SeriesOperation,
    lines: &[&ResultSeries],
    budget: &mut QueryMemoryBudget,
) -> Result<ResultSeries, OpentsdbError> {
    let mut at: BTreeMap<Millis, Vec<f64>> = BTreeMap::new();
    let missing = match operation {
        SeriesOperation::Sum | SeriesOperation::Difference => 0.0,
        SeriesOperation::Product | SeriesOperation::Quotient => f64::NAN,
    };
    budget.reserve_points(
        lines.len()
            * lines
                .iter()
                .map(|line| line.points.len())
                .max()
                .unwrap_or(0),
    )?;
    for (number, line) in lines.iter().enumerate() {
        for (time, value) in &line.points {
            at.entry(*time)
                .or_insert_with(|| vec![missing; lines.len()])[number] = *value;
        }
    }
    let value = |values: &Vec<f64>| {
        let rest = values[1..].iter();
        rest.fold(values[0], |result, value| match operation {
            SeriesOperation::Sum => result + value,
            SeriesOperation::Difference => result - value,
            SeriesOperation::Product => result * value,
            SeriesOperation::Quotient => result / value,
        })
    };
    let (tags, aggregate_tags) = common_tags(lines);
    Ok(ResultSeries {
        metric: String::new(),
        tags,
        aggregate_tags,
        tsuids: lines.iter().flat_map(|line| line.tsuids.clone()).collect(),
        points: at
            .iter()
            .map(|(time, values)| (*time, value(values)))
            .collect(),
    })
}
