//! Generates expressions that are valid in their types, with nested functions, aggregations,
//! operators and modifiers. Exponents, deviations and regressions are left out: of values that
//! differ little, or are huge, they are rounding errors. `written.rs` has them.

use pegel_testkit::Rng;

const SELECTORS: &[&str] = &[
    "requests_total",
    "requests_total{code=\"200\"}",
    "requests_total{code!=\"500\",instance=~\"a.*|b.*\"}",
    "temperature",
    "temperature{instance!=\"c:1\"}",
    "limit",
    "odd",
    "ended",
    "build_info",
    "latency_bucket",
    "latency_count",
    "single",
    "tiny",
    "nothing",
    "{__name__=~\"temperature|limit\"}",
];
const RANGE_FUNCTIONS: &[&str] = &[
    "rate",
    "increase",
    "delta",
    "irate",
    "idelta",
    "changes",
    "resets",
    "avg_over_time",
    "sum_over_time",
    "min_over_time",
    "max_over_time",
    "count_over_time",
    "last_over_time",
    "present_over_time",
    "mad_over_time",
];
const VECTOR_FUNCTIONS: &[&str] = &[
    "abs",
    "ceil",
    "floor",
    "sqrt",
    "ln",
    "sgn",
    "atan",
    "round",
    "timestamp",
    "absent",
];
const AGGREGATIONS: &[&str] = &["sum", "avg", "min", "max", "count", "group"];
const GROUPINGS: &[&str] = &[
    "",
    "by (instance)",
    "by (code)",
    "by (job, instance)",
    "without (code)",
    "without (instance)",
    "by ()",
];
const RANGES: &[&str] = &["15s", "1m", "95s", "3m", "5m", "11m", "20m"];
const OFFSETS: &[&str] = &[
    "",
    "",
    "",
    " offset 30s",
    " offset -1m",
    " offset 6m",
    " @ end()",
    " @ start()",
];
const ARITHMETIC: &[&str] = &["+", "-", "*", "/", "%", "atan2"];
const COMPARISONS: &[&str] = &["==", "!=", ">", "<", ">=", "<=", "> bool", "<= bool"];
const SETS: &[&str] = &["and", "or", "unless"];
const MATCHINGS: &[&str] = &[
    "",
    "on (instance)",
    "on (job, instance)",
    "ignoring (code, handler, unit, kind)",
    "on (instance) group_left",
    "ignoring (code, handler) group_left (version)",
    "on ()",
    "on (instance) group_right",
];

pub(super) fn expression(rng: &mut Rng) -> String {
    vector(rng, 3)
}

fn vector(rng: &mut Rng, depth: u32) -> String {
    if depth == 0 {
        return selector(rng);
    }
    let depth = depth - 1;
    match rng.below(12) {
        0 => selector(rng),
        1..=3 => format!("{}({})", rng.pick(RANGE_FUNCTIONS), range(rng, depth)),
        4 => format!("{}({})", rng.pick(VECTOR_FUNCTIONS), vector(rng, depth)),
        5 | 6 => {
            let (aggregation, grouping) = (rng.pick(AGGREGATIONS), rng.pick(GROUPINGS));
            format!("{aggregation} {grouping} ({})", vector(rng, depth))
        }
        7 => {
            let (operator, matching) = (rng.pick(ARITHMETIC), rng.pick(MATCHINGS));
            format!(
                "({}) {operator} {matching} ({})",
                vector(rng, depth),
                vector(rng, depth)
            )
        }
        8 => {
            let (operator, matching) = (rng.pick(COMPARISONS), rng.pick(MATCHINGS));
            format!(
                "({}) {operator} {matching} ({})",
                vector(rng, depth),
                vector(rng, depth)
            )
        }
        9 => {
            let matching = rng.pick(&MATCHINGS[..4]);
            let operator = rng.pick(SETS);
            format!(
                "({}) {operator} {matching} ({})",
                vector(rng, depth),
                vector(rng, depth)
            )
        }
        10 => {
            let all = [ARITHMETIC, COMPARISONS].concat();
            let operator = *rng.pick(&all);
            format!("({}) {operator} {}", vector(rng, depth), number(rng))
        }
        _ => match rng.below(5) {
            0 => format!("quantile_over_time({}, {})", number(rng), range(rng, depth)),
            1 => format!("round({}, 0.5)", vector(rng, depth)),
            2 => format!("clamp({}, -3, {})", vector(rng, depth), number(rng)),
            3 => format!(
                "histogram_quantile(0.{}, rate(latency_bucket[{}]))",
                rng.below(10),
                rng.pick(RANGES)
            ),
            _ => format!("scalar({}) + ({})", vector(rng, depth), vector(rng, depth)),
        },
    }
}

fn range(rng: &mut Rng, depth: u32) -> String {
    let (range, offset) = (*rng.pick(RANGES), *rng.pick(OFFSETS));
    if depth > 0 && rng.chance(4) {
        let step = *rng.pick(&["", "10s", "25s", "1m"]);
        return format!("({})[{range}:{step}]{offset}", vector(rng, depth - 1));
    }
    format!("{}[{range}]{offset}", rng.pick(SELECTORS))
}

fn selector(rng: &mut Rng) -> String {
    format!("{}{}", rng.pick(SELECTORS), rng.pick(OFFSETS))
}

fn number(rng: &mut Rng) -> String {
    (*rng.pick(&[
        "0",
        "1",
        "-2",
        "0.5",
        "3.25",
        "100",
        "NaN",
        "Inf",
        "scalar(single)",
        "time() % 60",
    ]))
    .to_owned()
}
