//! The values that templates compute with.

use pegel_query::promql::{LabelSet, VectorSample};

use super::go_format::format_g;

/// A value in a template, with the type that it has in Go.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TemplateValue {
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Labels(LabelSet),
    Sample(VectorSample),
    List(Vec<TemplateValue>),
    /// The data of the alert: `.Labels`, `.ExternalLabels`, `.ExternalURL`, `.Value`.
    Root,
}

impl TemplateValue {
    /// Returns whether `if`, `with`, `and`, `or` and `not` take it as true.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            TemplateValue::Nil => false,
            TemplateValue::Bool(value) => *value,
            TemplateValue::Int(value) => *value != 0,
            TemplateValue::Float(value) => *value != 0.0,
            TemplateValue::Text(text) => !text.is_empty(),
            TemplateValue::Labels(labels) => labels.iter().next().is_some(),
            TemplateValue::List(items) => !items.is_empty(),
            TemplateValue::Sample(_) | TemplateValue::Root => true,
        }
    }

    /// Returns the value as `{{ … }}` and `%v` write it.
    pub(crate) fn display(&self) -> String {
        match self {
            TemplateValue::Nil => "<nil>".to_owned(),
            TemplateValue::Bool(value) => value.to_string(),
            TemplateValue::Int(value) => value.to_string(),
            TemplateValue::Float(value) => format_g(*value, None),
            TemplateValue::Text(text) => text.clone(),
            TemplateValue::Labels(labels) => display_labels(labels),
            TemplateValue::Sample(sample) => format!(
                "{{{} {}}}",
                display_labels(&sample.labels),
                format_g(sample.value, None)
            ),
            TemplateValue::List(items) => {
                let items: Vec<String> = items.iter().map(TemplateValue::display).collect();
                format!("[{}]", items.join(" "))
            }
            TemplateValue::Root => "{…}".to_owned(),
        }
    }

    /// Returns the name of its type in Go.
    pub(crate) fn go_type(&self) -> &'static str {
        match self {
            TemplateValue::Nil => "<nil>",
            TemplateValue::Bool(_) => "bool",
            TemplateValue::Int(_) => "int",
            TemplateValue::Float(_) => "float64",
            TemplateValue::Text(_) => "string",
            TemplateValue::Labels(_) => "map[string]string",
            TemplateValue::Sample(_) => "*template.sample",
            TemplateValue::List(_) => "template.queryResult",
            TemplateValue::Root => "struct",
        }
    }

    /// Returns the memory it uses, for the limit of an expansion.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            TemplateValue::Text(text) => text.len(),
            TemplateValue::List(items) => items.len() * 64,
            _ => 0,
        }
    }
}

fn display_labels(labels: &LabelSet) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}:{value}"))
        .collect();
    format!("map[{}]", pairs.join(" "))
}
