//! Warnings and infos that accompany a result, in Prometheus' wording.

use super::positions::line_and_column;
use super::value::plain_number;

/// The number of warnings, and of infos, in one result.
const COUNT_MAX: usize = 10;

/// Collects annotations, each once.
#[derive(Debug, Default)]
pub(crate) struct QueryAnnotations {
    pub warnings: AnnotationList,
    pub infos: AnnotationList,
}

#[derive(Debug, Default)]
pub(crate) struct AnnotationList {
    texts: Vec<String>,
    omitted: usize,
}

impl AnnotationList {
    fn add(&mut self, text: String) {
        if self.texts.contains(&text) {
            return;
        }
        if self.texts.len() < COUNT_MAX {
            self.texts.push(text);
        } else {
            self.omitted += 1;
        }
    }

    /// Returns the texts; the last one tells how many were left out.
    pub(crate) fn finish(mut self, kind: &str) -> Vec<String> {
        if self.omitted > 0 {
            self.texts
                .push(format!("{} more {kind} annotations omitted", self.omitted));
        }
        self.texts
    }
}

/// An annotation at a position of the expression.
#[derive(Debug)]
pub(crate) enum QueryAnnotation<'a> {
    /// `rate` or `increase` of a metric whose name is not that of a counter.
    NotACounter(&'a str),
    QuantileOutOfRange(f64),
    /// The ratio and the value that replaces it.
    RatioOutOfRange(f64, f64),
    /// The metric and the value of its label `le`.
    BadBucketLabel(&'a str, &'a str),
    BucketsNotMonotonic(&'a str),
}

impl QueryAnnotations {
    /// Adds an annotation at a byte offset of `expression`.
    pub(crate) fn add(
        &mut self,
        annotation: &QueryAnnotation<'_>,
        expression: &str,
        offset: usize,
    ) {
        let position = line_and_column(expression, offset);
        let (list, text) = match annotation {
            QueryAnnotation::NotACounter(metric) => (
                &mut self.infos,
                format!(
                    "PromQL info: metric might not be a counter, name does not end in \
                     _total/_sum/_count/_bucket: {metric:?}"
                ),
            ),
            QueryAnnotation::QuantileOutOfRange(quantile) => (
                &mut self.warnings,
                format!(
                    "PromQL warning: quantile value should be between 0 and 1, got {}",
                    plain_number(*quantile)
                ),
            ),
            QueryAnnotation::RatioOutOfRange(ratio, used) => (
                &mut self.warnings,
                format!(
                    "PromQL warning: ratio value should be between -1 and 1, got {}, capping to {}",
                    plain_number(*ratio),
                    plain_number(*used)
                ),
            ),
            QueryAnnotation::BadBucketLabel(metric, value) => (
                &mut self.warnings,
                format!(
                    "PromQL warning: bucket label \"le\" is missing or has a malformed value of \
                     {value:?}{}",
                    for_metric(metric)
                ),
            ),
            QueryAnnotation::BucketsNotMonotonic(metric) => (
                &mut self.infos,
                format!(
                    "PromQL info: input to histogram_quantile needed to be fixed for monotonicity \
                     (see https://prometheus.io/docs/prometheus/latest/querying/functions/\
                     #histogram_quantile){}",
                    for_metric(metric)
                ),
            ),
        };
        list.add(format!("{text} ({position})"));
    }
}

fn for_metric(name: &str) -> String {
    match name {
        "" => String::new(),
        name => format!(" for metric name {name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_have_a_position_and_appear_once() {
        let mut all = QueryAnnotations::default();
        for _ in 0..2 {
            all.add(&QueryAnnotation::NotACounter("m"), "rate(m[5m])", 5);
        }
        for number in 0..12 {
            let quantile = QueryAnnotation::QuantileOutOfRange(f64::from(number) + 1.5);
            all.add(&quantile, "quantile(x, y)", 9);
        }
        assert_eq!(
            all.infos.finish("info"),
            [
                "PromQL info: metric might not be a counter, name does not end in \
              _total/_sum/_count/_bucket: \"m\" (1:6)"
            ]
        );
        let warnings = all.warnings.finish("warning");
        assert_eq!(warnings.len(), COUNT_MAX + 1);
        assert_eq!(
            warnings[0],
            "PromQL warning: quantile value should be between 0 and 1, got 1.5 (1:10)"
        );
        assert_eq!(warnings[COUNT_MAX], "2 more warning annotations omitted");
    }
}
