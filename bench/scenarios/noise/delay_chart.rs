//! Draws how often delays of a given length or longer occur, one panel per rate.

use std::fmt::Write;

use crate::delays::{BOUNDS, DelayCounts, bound_text};
use crate::disturber::Disturber;
use crate::{NoiseCondition, RATES};

const PANEL: (f64, f64) = (260.0, 200.0);
const MARGIN: (f64, f64) = (56.0, 40.0);
const GAP: f64 = 48.0;
/// Powers of ten of the vertical axis: delays per processor and second.
const DECADES: (i32, i32) = (-2, 4);

/// Returns the chart as SVG, for light and dark backgrounds.
pub(crate) fn svg(quiet: &DelayCounts, conditions: &[NoiseCondition]) -> String {
    let width = MARGIN.0 + RATES.len() as f64 * (PANEL.0 + GAP);
    let height = PANEL.1 + 2.0 * MARGIN.1 + 24.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\" fill=\"#777\">\n\
         <title>Delays of fixed work per processor and second, by their length</title>\n"
    );
    for (index, rate) in RATES.into_iter().enumerate() {
        let left = MARGIN.0 + index as f64 * (PANEL.0 + GAP);
        let _ = writeln!(svg, "<g transform=\"translate({left} {})\">", MARGIN.1);
        axes(&mut svg, rate, index == 0);
        line(&mut svg, Disturber::None, quiet);
        for condition in conditions
            .iter()
            .filter(|one| one.rate == rate && !one.slices.is_empty())
        {
            line(&mut svg, condition.agent, &condition.total());
        }
        svg.push_str("</g>\n");
    }
    legend(&mut svg, height - 10.0);
    svg.push_str("</svg>\n");
    svg
}

fn colour(agent: Disturber) -> &'static str {
    match agent {
        Disturber::None => "#999999",
        Disturber::Pegel => "#1f77b4",
        Disturber::NodeExporter => "#ff7f0e",
        Disturber::Collectd => "#2ca02c",
    }
}

fn x_of(nanos: u32) -> f64 {
    let (first, last) = (f64::from(BOUNDS[0]), f64::from(BOUNDS[BOUNDS.len() - 1]));
    (f64::from(nanos) / first).log10() / (last / first).log10() * PANEL.0
}

/// Returns the height of a frequency; None below the axis.
fn y_of(frequency: f64) -> Option<f64> {
    let (low, high) = (f64::from(DECADES.0), f64::from(DECADES.1));
    let share = (frequency.log10() - low) / (high - low);
    (share >= 0.0).then(|| PANEL.1 * (1.0 - share.min(1.0)))
}

fn axes(svg: &mut String, rate: u32, has_labels: bool) {
    let _ = writeln!(svg, "<text x=\"4\" y=\"-8\">{rate} Hz</text>");
    let grid = "stroke=\"#777\" stroke-opacity=\"0.25\"";
    for decade in DECADES.0..=DECADES.1 {
        let frequency = 10_f64.powi(decade);
        let y = y_of(frequency).unwrap_or(PANEL.1);
        let _ = writeln!(
            svg,
            "<line x1=\"0\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" {grid}/>",
            PANEL.0
        );
        if has_labels {
            let _ = writeln!(
                svg,
                "<text x=\"-6\" y=\"{}\" text-anchor=\"end\">{frequency}/s</text>",
                y + 4.0
            );
        }
    }
    for bound in [1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
        let x = x_of(bound);
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" x2=\"{x}\" y1=\"0\" y2=\"{}\" {grid}/>",
            PANEL.1
        );
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            PANEL.1 + 16.0,
            bound_text(bound)
        );
    }
}

fn line(svg: &mut String, agent: Disturber, delays: &DelayCounts) {
    let points: Vec<String> = BOUNDS
        .into_iter()
        .filter_map(|bound| Some((x_of(bound), y_of(delays.per_core_second_above(bound))?)))
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let _ = writeln!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>",
        points.join(" "),
        colour(agent)
    );
}

fn legend(svg: &mut String, y: f64) {
    let all = [
        Disturber::None,
        Disturber::Pegel,
        Disturber::NodeExporter,
        Disturber::Collectd,
    ];
    for (index, agent) in all.into_iter().enumerate() {
        let x = MARGIN.0 + index as f64 * 140.0;
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{y}\">{}</text>",
            x + 20.0,
            y - 4.0,
            y - 4.0,
            colour(agent),
            x + 26.0,
            agent.name()
        );
    }
}
