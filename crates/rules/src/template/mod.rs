//! Templates in the labels and annotations of alerts: Go's `text/template` as rule files use it.
//!
//! Supported: text, trimming, comments, pipelines, variables, `if`, `else`, `with`, `range`,
//! `break`, `continue`, and the functions of `functions.rs`. A template that uses anything else is
//! refused when its file is read. An expansion is bounded in steps and in bytes; the queries that
//! it starts are bounded by the limits of the rule.

mod evaluate;
mod functions;
mod go_format;
mod humanize;
mod lexer;
mod parse;
mod value;

#[cfg(test)]
mod tests;

use pegel_metric::Millis;
use pegel_query::promql::{LabelSet, VectorSample};

use evaluate::Expansion;
use parse::TemplateNode;

pub(crate) use functions::query_escape;
pub(crate) use go_format::format_shortest_e;

/// A parsed template.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    nodes: Vec<TemplateNode>,
}

/// Evaluates an expression for the function `query`.
pub(crate) type TemplateQuery<'a> = dyn Fn(&str) -> Result<Vec<VectorSample>, String> + 'a;

/// The data that a template sees.
pub(crate) struct TemplateData<'a> {
    pub labels: &'a LabelSet,
    pub value: f64,
    pub external_labels: &'a LabelSet,
    pub external_url: &'a str,
    pub time: Millis,
    pub query: &'a TemplateQuery<'a>,
}

impl Template {
    /// Parses a template, or describes what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        Ok(Template {
            nodes: parse::parse(text)?,
        })
    }

    /// Expands the template. An error becomes part of the text, as in Prometheus: a broken
    /// annotation must not suppress an alert.
    pub(crate) fn expand(&self, data: &TemplateData<'_>) -> String {
        match Expansion::new(data).run(&self.nodes) {
            Ok(text) => text,
            Err(error) => format!("<error expanding template: {error}>"),
        }
    }
}
