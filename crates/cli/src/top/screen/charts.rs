//! Charts of the last minutes, in pairs such as *read* and *written*, over a common time axis.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Widget;

use super::bars::draw_history;
use super::layout::{below, take_rows};
use super::theme::{StyleRole, TerminalTheme};
use crate::top::app::TopApp;
use crate::top::model::HISTORY_SECONDS;

/// A chart narrower than this shows too little.
const WIDTH_MIN: u16 = 24;
/// Rows of a chart with its title.
const ROWS_MIN: u16 = 3;
/// Blank columns between two charts.
const GAP: u16 = 2;
/// Charts cover at least this time: a narrow one has several seconds in each column.
const SPAN_SECONDS: u16 = 120;

/// The sum or the mean of some series over time.
#[derive(Debug, Clone)]
pub(super) struct Chart {
    pub title: String,
    pub series: Vec<String>,
    /// The value now, by the same average as in the tables.
    pub current: Option<f64>,
    /// The value at the top of the chart; `None` scales to the highest value shown.
    pub top: Option<f64>,
    pub format: fn(f64) -> String,
    pub role: StyleRole,
    /// Whether to show the mean of the series instead of their sum.
    pub is_mean: bool,
}

/// The arrangement of some pairs of charts in an area.
#[derive(Debug, PartialEq, Eq)]
struct ChartGrid {
    columns: u16,
    /// Rows of charts, and height of each one with its title.
    bands: u16,
    height: u16,
}

impl ChartGrid {
    /// Chooses an arrangement; `None` if not even one chart fits.
    fn choose(pairs: usize, width: u16, height: u16) -> Option<ChartGrid> {
        let pairs = u16::try_from(pairs).unwrap_or(u16::MAX);
        let across = (width + GAP) / (WIDTH_MIN + GAP);
        let bands_max = height.saturating_sub(1) / ROWS_MIN;
        if pairs == 0 || across == 0 || bands_max == 0 {
            return None;
        }
        // Each pair in one column if possible, else in one row, else one chart below the other.
        let (columns, bands) = if bands_max >= 2 && across >= 2 {
            // As many columns as needed for the fewest rows, so that the last row is not sparse.
            let rows = pairs.div_ceil(across);
            (pairs.div_ceil(rows), 2 * rows)
        } else {
            (across.min(2 * pairs), (2 * pairs).div_ceil(across))
        };
        let bands = bands.min(bands_max);
        let height = (height - 1) / bands;
        Some(ChartGrid {
            columns,
            bands,
            height,
        })
    }

    /// Returns the chart at a position, by the numbers of pair and of chart in the pair.
    fn pair_at(&self, column: u16, band: u16) -> (usize, usize) {
        let (column, band) = (usize::from(column), usize::from(band));
        if self.bands > 1 && self.columns > 1 {
            (band / 2 * usize::from(self.columns) + column, band % 2)
        } else {
            let index = band * usize::from(self.columns) + column;
            (index / 2, index % 2)
        }
    }
}

/// Draws as many pairs of charts as fit, each column with its time axis.
pub(super) fn draw(app: &TopApp, pairs: &[[Chart; 2]], area: Rect, buffer: &mut Buffer) {
    let Some(grid) = ChartGrid::choose(pairs.len(), area.width, area.height) else {
        return;
    };
    let columns = vec![Constraint::Fill(1); grid.columns.into()];
    let areas = Layout::horizontal(columns).spacing(GAP).split(area);
    let narrowest = areas.iter().map(|area| area.width).min().unwrap_or(1);
    let step = SPAN_SECONDS.div_ceil(narrowest.max(1));
    for (column, area) in (0..).zip(areas.iter()) {
        let mut rest = *area;
        for band in 0..grid.bands {
            let (pair, index) = grid.pair_at(column, band);
            let cell = take_rows(&mut rest, grid.height);
            if let Some(pair) = pairs.get(pair) {
                draw_chart(app, &pair[index], step, cell, buffer);
            }
        }
        draw_time_axis(app.theme, step, take_rows(&mut rest, 1), buffer);
    }
}

/// Draws the title with the current and the highest value, and the history below.
fn draw_chart(app: &TopApp, chart: &Chart, step: u16, area: Rect, buffer: &mut Buffer) {
    let theme = app.theme;
    let values = chart.values(app, area.width, step);
    let known = values.iter().flatten().copied().chain(chart.current);
    let highest = known.reduce(f64::max);
    let mut line = Line::from(theme.clipped(&chart.title, area.width, StyleRole::Title));
    let current = chart.current.map_or(theme.dash().into(), chart.format);
    let peak = highest.map(|highest| format!("  max {}", (chart.format)(highest)));
    let figures = [
        (format!("  {current}"), StyleRole::Plain),
        (peak.unwrap_or_default(), StyleRole::Faint),
    ];
    for (text, role) in figures {
        let span = theme.span(text, role);
        if line.width() + span.width() <= usize::from(area.width) {
            line.push_span(span);
        }
    }
    line.render(area, buffer);
    let top = chart.top.or(highest).filter(|top| *top > 0.0);
    let range = (0.0, top.unwrap_or(1.0));
    draw_history(theme, &values, range, chart.role, below(area, 1), buffer);
}

impl Chart {
    /// Returns one value per column. A second in which no series has a value is empty.
    fn values(&self, app: &TopApp, columns: u16, step: u16) -> Vec<Option<f64>> {
        let mut sums = vec![None; columns.into()];
        for series in &self.series {
            let Some(history) = app.model.history(series) else {
                continue;
            };
            let values = history.columns(app.model.second(), columns.into(), step.into());
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = match (*sum, value) {
                    (Some(sum), Some(value)) => Some(sum + value),
                    (sum, value) => sum.or(value),
                };
            }
        }
        if self.is_mean {
            let count = self.series.len().max(1) as f64;
            sums.iter_mut().flatten().for_each(|sum| *sum /= count);
        }
        sums
    }
}

/// Draws the time axis below charts with `step` seconds per column: `──┴ 2 min ──┴ 1 min ── now`.
pub(super) fn draw_time_axis(theme: TerminalTheme, step: u16, area: Rect, buffer: &mut Buffer) {
    let text = time_axis(theme, step, area.width);
    Line::from(theme.span(text, StyleRole::Faint)).render(area, buffer);
}

fn time_axis(theme: TerminalTheme, step: u16, width: u16) -> String {
    let (line, tick) = theme.axis();
    let width = usize::from(width);
    let mut axis: Vec<char> = vec![line; width];
    let mut write = |at: usize, text: &str| {
        let cells = axis.iter_mut().skip(at).zip(text.chars());
        cells.for_each(|(cell, character)| *cell = character);
    };
    if width >= 4 {
        write(width - 4, " now");
    }
    // The last column contains the current second.
    let column = |seconds: usize| (width.checked_sub(1)?).checked_sub(seconds / usize::from(step));
    let (interval, unit) = if width * usize::from(step) >= 90 {
        (60, "min")
    } else {
        (30, "s")
    };
    for count in 1..=HISTORY_SECONDS / interval {
        let seconds = count * interval;
        let Some(at) = column(seconds) else { break };
        let amount = if unit == "min" { count } else { seconds };
        let label = format!("{tick} {amount} {unit} ");
        if at + label.chars().count() + 4 <= width {
            write(at, &label);
        }
    }
    axis.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEME: TerminalTheme = TerminalTheme::WITHOUT_COLOURS;

    #[test]
    fn each_pair_has_a_column_of_its_own_if_it_fits() {
        let grid = |pairs, width, height| {
            let grid = ChartGrid::choose(pairs, width, height)?;
            Some((grid.columns, grid.bands, grid.height))
        };
        assert_eq!(grid(3, 120, 13), Some((3, 2, 6)));
        assert_eq!(grid(4, 80, 30), Some((2, 4, 7)), "two rows of two pairs");
        assert_eq!(grid(3, 80, 5), Some((3, 1, 4)), "only one row of charts");
        assert_eq!(grid(1, 30, 40), Some((1, 2, 19)));
        assert_eq!(grid(2, 80, 3), None);
        assert_eq!(grid(2, 20, 30), None);
        assert_eq!(grid(0, 80, 30), None);
    }

    #[test]
    fn every_chart_of_a_pair_has_its_place() {
        let grid = ChartGrid::choose(3, 120, 13).expect("fits");
        assert_eq!([grid.pair_at(2, 0), grid.pair_at(2, 1)], [(2, 0), (2, 1)]);
        let grid = ChartGrid::choose(3, 80, 5).expect("fits");
        assert_eq!([grid.pair_at(0, 0), grid.pair_at(1, 0)], [(0, 0), (0, 1)]);
    }

    #[test]
    fn the_time_axis_marks_minutes_at_their_columns() {
        let axis = time_axis(THEME, 3, 50);
        assert_eq!(axis, "─────────┴ 2 min ────────────┴ 1 min ───────── now");
        let at = |text: &str| axis.chars().take_while(|c| *c != '┴').count() + text.len();
        assert_eq!(at(""), 49 - 120 / 3, "two minutes ago");
        assert_eq!(
            time_axis(THEME, 1, 40),
            "─────────┴ 30 s ──────────────────── now"
        );
        assert_eq!(time_axis(THEME, 1, 3), "───");
    }
}
