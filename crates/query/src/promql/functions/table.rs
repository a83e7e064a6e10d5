//! The table of functions.

use super::super::node::ValueType::{self, Matrix, Scalar, Text, Vector};
use super::extrapolation::ExtrapolatedChange;
use super::{
    Arity, Body, Function, Window, WindowBody, WindowFunction, date, histogram, info, label, math,
    over_time, rate, regression, sort, whole,
};
use crate::promql::error::PromqlError;

/// Returns the function of a name.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

const fn function(
    name: &'static str,
    arguments: &'static [ValueType],
    returns: ValueType,
    body: Body,
) -> Function {
    Function {
        name,
        arguments,
        arity: Arity::Exact,
        returns,
        depends_on_time: false,
        body,
    }
}

const fn each(name: &'static str, body: fn(f64) -> f64) -> Function {
    function(name, &[Vector], Vector, Body::Each(body))
}

const fn each_with(
    name: &'static str,
    arguments: &'static [ValueType],
    body: fn(f64, &[f64]) -> Option<f64>,
) -> Function {
    function(name, arguments, Vector, Body::EachWith(body))
}

const fn date(name: &'static str, body: fn(i128) -> f64) -> Function {
    Function {
        arity: Arity::LastOptional,
        depends_on_time: true,
        ..function(name, &[Vector], Vector, Body::Date(body))
    }
}

const fn whole(
    name: &'static str,
    arguments: &'static [ValueType],
    returns: ValueType,
    body: super::WholeBody,
) -> Function {
    function(name, arguments, returns, Body::Whole(body))
}

type EachWindow = fn(&Window<'_>, &[f64]) -> Result<Option<f64>, PromqlError>;

const fn window_with(
    name: &'static str,
    arguments: &'static [ValueType],
    body: EachWindow,
) -> Function {
    let body = WindowBody {
        function: WindowFunction::Each(body),
        keeps_name: false,
        is_counter: false,
    };
    function(name, arguments, Vector, Body::Window(body))
}

const fn window(name: &'static str, body: EachWindow) -> Function {
    window_with(name, &[Matrix], body)
}

const fn window_keeping_name(name: &'static str, body: EachWindow) -> Function {
    let body = WindowBody {
        function: WindowFunction::Each(body),
        keeps_name: true,
        is_counter: false,
    };
    function(name, &[Matrix], Vector, Body::Window(body))
}

const fn extrapolated(name: &'static str, is_counter: bool, is_rate: bool) -> Function {
    let body = WindowBody {
        function: WindowFunction::Extrapolated(ExtrapolatedChange {
            is_counter,
            is_rate,
        }),
        keeps_name: false,
        is_counter,
    };
    function(name, &[Matrix], Vector, Body::Window(body))
}

const fn at_time(function: Function) -> Function {
    Function {
        depends_on_time: true,
        ..function
    }
}

const fn with_arity(function: Function, arity: Arity) -> Function {
    Function { arity, ..function }
}

/// All functions, by family.
static FUNCTIONS: &[Function] = &[
    // math.rs
    each("abs", f64::abs),
    each("ceil", f64::ceil),
    each("floor", f64::floor),
    each("exp", f64::exp),
    each("ln", f64::ln),
    each("log2", f64::log2),
    each("log10", f64::log10),
    each("sqrt", f64::sqrt),
    each("sgn", math::sgn),
    each("sin", f64::sin),
    each("cos", f64::cos),
    each("tan", f64::tan),
    each("asin", f64::asin),
    each("acos", f64::acos),
    each("atan", f64::atan),
    each("sinh", f64::sinh),
    each("cosh", f64::cosh),
    each("tanh", f64::tanh),
    each("asinh", f64::asinh),
    each("acosh", f64::acosh),
    each("atanh", f64::atanh),
    each("deg", math::deg),
    each("rad", math::rad),
    each_with("clamp", &[Vector, Scalar, Scalar], math::clamp),
    each_with("clamp_max", &[Vector, Scalar], math::clamp_max),
    each_with("clamp_min", &[Vector, Scalar], math::clamp_min),
    with_arity(
        each_with("round", &[Vector, Scalar], math::round),
        Arity::LastOptional,
    ),
    function("pi", &[], Scalar, Body::Scalar(math::pi)),
    function(
        "max_of",
        &[Scalar, Scalar],
        Scalar,
        Body::Scalar(math::max_of),
    ),
    function(
        "min_of",
        &[Scalar, Scalar],
        Scalar,
        Body::Scalar(math::min_of),
    ),
    at_time(function("time", &[], Scalar, Body::Scalar(math::time))),
    // date.rs
    date("year", date::year),
    date("month", date::month),
    date("day_of_month", date::day_of_month),
    date("day_of_week", date::day_of_week),
    date("day_of_year", date::day_of_year),
    date("days_in_month", date::days_in_month),
    date("hour", date::hour),
    date("minute", date::minute),
    // extrapolation.rs
    extrapolated("rate", true, true),
    extrapolated("increase", true, false),
    extrapolated("delta", false, false),
    // rate.rs
    window("irate", rate::irate),
    window("idelta", rate::idelta),
    window("changes", rate::changes),
    window("resets", rate::resets),
    // regression.rs
    window("deriv", regression::deriv),
    at_time(window_with(
        "predict_linear",
        &[Matrix, Scalar],
        regression::predict_linear,
    )),
    window_with(
        "double_exponential_smoothing",
        &[Matrix, Scalar, Scalar],
        regression::double_exponential_smoothing,
    ),
    // over_time.rs
    window("avg_over_time", over_time::avg),
    window("sum_over_time", over_time::sum),
    window("min_over_time", over_time::min),
    window("max_over_time", over_time::max),
    window("count_over_time", over_time::count),
    window("stddev_over_time", over_time::stddev),
    window("stdvar_over_time", over_time::stdvar),
    window("mad_over_time", over_time::mad),
    window("present_over_time", over_time::present),
    window_keeping_name("first_over_time", over_time::first),
    window_keeping_name("last_over_time", over_time::last),
    window_with(
        "quantile_over_time",
        &[Scalar, Matrix],
        over_time::quantile_of_window,
    ),
    window("ts_of_first_over_time", over_time::time_of_first),
    window("ts_of_last_over_time", over_time::time_of_last),
    window("ts_of_max_over_time", over_time::time_of_max),
    window("ts_of_min_over_time", over_time::time_of_min),
    // whole.rs
    whole("absent", &[Vector], Vector, whole::absent),
    whole(
        "absent_over_time",
        &[Matrix],
        Vector,
        whole::absent_over_time,
    ),
    whole("scalar", &[Vector], Scalar, whole::scalar),
    whole("vector", &[Scalar], Vector, whole::vector),
    at_time(whole("timestamp", &[Vector], Vector, whole::timestamp)),
    whole("start", &[], Scalar, whole::query_start),
    whole("end", &[], Scalar, whole::query_end),
    whole("range", &[], Scalar, whole::query_range),
    whole("step", &[], Scalar, whole::query_step),
    // sort.rs
    whole("sort", &[Vector], Vector, sort::ascending),
    whole("sort_desc", &[Vector], Vector, sort::descending),
    with_arity(
        whole("sort_by_label", &[Vector, Text], Vector, sort::by_label),
        Arity::LastRepeated(64),
    ),
    with_arity(
        whole(
            "sort_by_label_desc",
            &[Vector, Text],
            Vector,
            sort::by_label_descending,
        ),
        Arity::LastRepeated(64),
    ),
    // label.rs
    whole(
        "label_replace",
        &[Vector, Text, Text, Text, Text],
        Vector,
        label::replace,
    ),
    with_arity(
        whole(
            "label_join",
            &[Vector, Text, Text, Text],
            Vector,
            label::join,
        ),
        Arity::LastRepeated(64),
    ),
    // info.rs
    with_arity(
        whole("info", &[Vector, Vector], Vector, info::info),
        Arity::LastOptional,
    ),
    // histogram.rs
    whole(
        "histogram_quantile",
        &[Scalar, Vector],
        Vector,
        histogram::quantile,
    ),
    with_arity(
        whole(
            "histogram_quantiles",
            &[Vector, Text, Scalar, Scalar],
            Vector,
            histogram::quantiles,
        ),
        Arity::LastRepeated(12),
    ),
    whole(
        "histogram_fraction",
        &[Scalar, Scalar, Vector],
        Vector,
        histogram::fraction,
    ),
    // Functions of native histograms, which do not exist here: their results are empty.
    whole("histogram_avg", &[Vector], Vector, histogram::of_native),
    whole("histogram_count", &[Vector], Vector, histogram::of_native),
    whole("histogram_sum", &[Vector], Vector, histogram::of_native),
    whole("histogram_stddev", &[Vector], Vector, histogram::of_native),
    whole("histogram_stdvar", &[Vector], Vector, histogram::of_native),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_known_to_the_parser() {
        for (index, function) in FUNCTIONS.iter().enumerate() {
            let others = &FUNCTIONS[..index];
            assert!(others.iter().all(|other| other.name != function.name));
            let example = |count: usize| {
                let argument = |index: usize| {
                    let last = function.arguments.len() - 1;
                    match function.arguments[index.min(last)] {
                        Scalar => "1",
                        Vector => "x",
                        Matrix => "x[5m]",
                        Text => "\"t\"",
                    }
                };
                let arguments: Vec<&str> = (0..count).map(argument).collect();
                format!("{}({})", function.name, arguments.join(","))
            };
            let text = example(function.arguments.len());
            assert!(promql_parser::parser::parse(&text).is_ok(), "{text}");
            if function.arity == Arity::LastOptional {
                let text = example(function.arguments.len() - 1);
                assert!(promql_parser::parser::parse(&text).is_ok(), "{text}");
            }
        }
    }
}
