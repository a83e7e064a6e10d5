//! Draws the result of a range as a chart in the terminal, with a legend below.

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

use super::answer::{AnswerSeries, QueryAnswer};
use crate::format::number::{clock_time, human_rate};
use crate::format::table::truncate_middle;
use crate::top::TerminalTheme;

const HEIGHT: u16 = 16;
/// The width if standard output is not a terminal.
const DEFAULT_WIDTH: usize = 100;
const WIDTH_MIN: usize = 40;
/// Lines that differ by colour only cannot be told apart beyond this number.
const LINES_MAX: usize = 12;
const COLOURS: [Color; 6] = [
    Color::Blue,
    Color::Red,
    Color::Green,
    Color::Magenta,
    Color::Yellow,
    Color::Cyan,
];
/// A distance of more than this many steps is a gap in a line.
const GAP_STEPS: f64 = 1.5;

/// Returns the chart as lines of text, with colours if the theme has them.
pub(super) fn draw(answer: &QueryAnswer, width: Option<usize>, theme: TerminalTheme) -> String {
    let width = width.unwrap_or(DEFAULT_WIDTH).clamp(WIDTH_MIN, 400);
    let shown = &answer.series[..answer.series.len().min(LINES_MAX)];
    let Some(bounds) = ChartBounds::of(shown) else {
        return legend(answer, shown, width, theme);
    };
    let segments: Vec<(usize, Vec<(f64, f64)>)> = shown
        .iter()
        .enumerate()
        .flat_map(|(at, series)| segments(series).into_iter().map(move |part| (at, part)))
        .collect();
    let marker = match theme.has_blocks {
        true => Marker::Braille,
        false => Marker::Dot,
    };
    let datasets = segments.iter().map(|(at, points)| {
        Dataset::default()
            .data(points)
            .marker(marker)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(COLOURS[at % COLOURS.len()]))
    });
    let chart = Chart::new(datasets.collect())
        .x_axis(bounds.time_axis())
        .y_axis(bounds.value_axis())
        .legend_position(None);
    let area = Rect::new(0, 0, width as u16, HEIGHT);
    let mut buffer = Buffer::empty(area);
    chart.render(area, &mut buffer);
    text_of(&buffer, theme) + &legend(answer, shown, width, theme)
}

/// The smallest and the largest time and value of all lines.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ChartBounds {
    times: [f64; 2],
    values: [f64; 2],
}

impl ChartBounds {
    fn of(series: &[AnswerSeries]) -> Option<ChartBounds> {
        let points = || {
            let points = series.iter().flat_map(|series| series.points.iter());
            points.filter(|(_, value)| value.is_finite())
        };
        let (first_time, first) = *points().next()?;
        let start = ChartBounds {
            times: [first_time; 2],
            values: [first; 2],
        };
        let bounds = points().fold(start, |bounds, (time, value)| ChartBounds {
            times: [bounds.times[0].min(*time), bounds.times[1].max(*time)],
            values: [bounds.values[0].min(*value), bounds.values[1].max(*value)],
        });
        Some(bounds.widened())
    }

    /// Includes zero if it is near, and gives a constant value some height.
    fn widened(self) -> ChartBounds {
        let [mut low, mut high] = self.values;
        if low > 0.0 && (low == high || low < high * 0.5) {
            low = 0.0;
        }
        if low == high {
            (low, high) = (low - 1.0, high + 1.0);
        }
        let times = match self.times {
            [start, end] if start == end => [start - 1.0, end],
            times => times,
        };
        ChartBounds {
            times,
            values: [low, high],
        }
    }

    fn time_axis(&self) -> Axis<'static> {
        let [start, end] = self.times;
        let label = |ts: f64| clock_time(ts, end - start);
        let labels = [start, f64::midpoint(start, end), end].map(label);
        Axis::default().bounds(self.times).labels(labels)
    }

    fn value_axis(&self) -> Axis<'static> {
        let [low, high] = self.values;
        let labels = [low, f64::midpoint(low, high), high].map(human_rate);
        Axis::default().bounds(self.values).labels(labels)
    }
}

/// Splits a line at gaps and at values that cannot be drawn.
fn segments(series: &AnswerSeries) -> Vec<Vec<(f64, f64)>> {
    let distances = series.points.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let step = distances.reduce(f64::min).unwrap_or(f64::INFINITY);
    let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
    for point in series.points.iter().filter(|(_, value)| value.is_finite()) {
        match parts.last_mut() {
            Some(part)
                if part
                    .last()
                    .is_some_and(|last| point.0 - last.0 <= step * GAP_STEPS) =>
            {
                part.push(*point);
            }
            _ => parts.push(vec![*point]),
        }
    }
    parts
}

/// Returns one line per series: its mark, its last value and its name.
fn legend(
    answer: &QueryAnswer,
    shown: &[AnswerSeries],
    width: usize,
    theme: TerminalTheme,
) -> String {
    let values = shown.iter().map(|series| match series.points.last() {
        Some((_, value)) => human_rate(*value),
        None => "no value".to_owned(),
    });
    let values: Vec<String> = values.collect();
    let column = values.iter().map(|text| text.len()).max().unwrap_or(0);
    let mut out = String::new();
    for (at, (series, value)) in shown.iter().zip(&values).enumerate() {
        let mark = coloured(line_mark(theme), COLOURS[at % COLOURS.len()], theme);
        let room = width.saturating_sub(column + 6).max(20);
        let name = truncate_middle(&series.name, room);
        out.push_str(format!("{mark} {value:>column$}  {name}").trim_end());
        out.push('\n');
    }
    if answer.series.len() > shown.len() {
        let more = answer.series.len() - shown.len();
        out.push_str(&format!(
            "and {more} more series, which are not drawn; aggregate them, or use -f csv\n"
        ));
    }
    out
}

/// Returns the buffer as text, without trailing blanks.
fn text_of(buffer: &Buffer, theme: TerminalTheme) -> String {
    let mut out = String::new();
    for y in 0..buffer.area.height {
        let cells: Vec<(&str, Color)> = (0..buffer.area.width)
            .map(|x| (symbol(&buffer[(x, y)], theme), buffer[(x, y)].fg))
            .collect();
        let end = cells.iter().rposition(|(symbol, _)| *symbol != " ");
        for run in cells[..end.map_or(0, |end| end + 1)].chunk_by(|a, b| a.1 == b.1) {
            let text: String = run.iter().map(|(symbol, _)| *symbol).collect();
            out.push_str(&coloured(&text, run[0].1, theme));
        }
        out.push('\n');
    }
    out
}

/// Returns the symbol of a cell; plain ASCII for a terminal without block characters.
fn symbol(cell: &Cell, theme: TerminalTheme) -> &str {
    match cell.symbol() {
        symbol if theme.has_blocks => symbol,
        "│" => "|",
        "─" => "-",
        "└" => "+",
        "•" => "*",
        symbol => symbol,
    }
}

fn line_mark(theme: TerminalTheme) -> &'static str {
    if theme.has_blocks { "━━" } else { "**" }
}

fn coloured(text: &str, colour: Color, theme: TerminalTheme) -> String {
    let code = match colour {
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
        Color::Blue => 34,
        Color::Magenta => 35,
        Color::Cyan => 36,
        _ => return text.to_owned(),
    };
    match theme.has_colours {
        true => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> AnswerSeries {
        AnswerSeries {
            name: name.to_owned(),
            points: points.to_vec(),
            text: None,
        }
    }

    fn answer(series: Vec<AnswerSeries>) -> QueryAnswer {
        QueryAnswer {
            series,
            notes: Vec::new(),
        }
    }

    const START: f64 = 1_778_581_440.0;

    #[test]
    fn a_line_is_drawn_from_its_lowest_to_its_highest_value() {
        let points: Vec<(f64, f64)> = (0..60)
            .map(|at| (START + f64::from(at), f64::from(at)))
            .collect();
        let text = draw(
            &answer(vec![series("a{b=\"c\"}", &points)]),
            Some(60),
            TerminalTheme::WITHOUT_COLOURS,
        );
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines.iter().all(|line| line.chars().count() <= 60),
            "{text}"
        );
        assert!(lines[0].trim_start().starts_with("59"), "{text}");
        assert!(
            text.contains("10:24:00Z") && text.contains("10:24:59Z"),
            "{text}"
        );
        assert!(
            lines
                .last()
                .is_some_and(|line| line.ends_with("59  a{b=\"c\"}")),
            "{text}"
        );
        assert!(text.contains('⡠') || text.contains('⠔'), "{text}");
    }

    #[test]
    fn a_gap_splits_a_line_and_values_that_are_not_finite_are_not_drawn() {
        let line = series(
            "a",
            &[
                (0.0, 1.0),
                (1.0, 2.0),
                (5.0, 3.0),
                (6.0, f64::NAN),
                (7.0, 4.0),
            ],
        );
        assert_eq!(
            segments(&line),
            [
                vec![(0.0, 1.0), (1.0, 2.0)],
                vec![(5.0, 3.0)],
                vec![(7.0, 4.0)]
            ]
        );
        assert_eq!(ChartBounds::of(&[series("a", &[(0.0, f64::NAN)])]), None);
    }

    #[test]
    fn more_lines_than_can_be_told_apart_are_counted() {
        let many = (0..15).map(|at| series(&format!("s{at}"), &[(START, 1.0), (START + 1.0, 2.0)]));
        let text = draw(
            &answer(many.collect()),
            None,
            TerminalTheme::WITHOUT_COLOURS,
        );
        assert!(
            text.ends_with(
                "and 3 more series, which are not drawn; aggregate them, or use -f csv\n"
            )
        );
    }

    #[test]
    fn a_terminal_without_unicode_gets_ascii() {
        let theme = TerminalTheme::detect(|_| None);
        let points = [(START, 1.0), (START + 1.0, 2.0)];
        let text = draw(&answer(vec![series("a", &points)]), Some(60), theme);
        assert!(text.is_ascii(), "{text}");
    }
}
