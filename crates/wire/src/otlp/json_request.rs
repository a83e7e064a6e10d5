//! Walks an `ExportMetricsServiceRequest` in JSON.
//!
//! Names of fields are those of the definitions in lower camel case; unknown ones are ignored. The
//! fields of an object are located in one pass and parsed afterwards, because a resource or a name
//! may come after the metrics that it applies to.

use std::borrow::Cow;
use std::fmt::Write;

use super::attribute_value::{push_double, push_quoted};
use super::json_points::read_point;
use super::json_scalars::JsonSpan;
use super::{
    ATTRIBUTES_MAX, Attribute, DataPoint, Metric, MetricData, MetricVisitor, OtlpError, Scope,
    Temporality, VALUE_DEPTH_MAX,
};

/// Reads a request and calls the visitor for its parts. Metrics without points are not visited.
pub fn read_json(body: &[u8], visitor: &mut dyn MetricVisitor) -> Result<(), OtlpError> {
    let body = JsonSpan::of_body(body)?;
    body.fields("the request", |key, value| match key {
        "resourceMetrics" => value.items("resourceMetrics", |one| read_resource(one, visitor)),
        _ => Ok(()),
    })
}

fn read_resource(span: JsonSpan<'_>, visitor: &mut dyn MetricVisitor) -> Result<(), OtlpError> {
    let (mut attributes, mut scopes) = (Vec::new(), None);
    span.fields("resourceMetrics", |key, value| {
        match key {
            "resource" => value.fields("resource", |key, value| match key {
                "attributes" => read_attributes(value, &mut attributes),
                _ => Ok(()),
            })?,
            "scopeMetrics" => scopes = Some(value),
            _ => {}
        }
        Ok(())
    })?;
    visitor.resource(&attributes);
    match scopes {
        Some(scopes) => scopes.items("scopeMetrics", |one| read_scope(one, visitor)),
        None => Ok(()),
    }
}

fn read_scope(span: JsonSpan<'_>, visitor: &mut dyn MetricVisitor) -> Result<(), OtlpError> {
    let (mut scope, mut metrics) = (Scope::default(), None);
    span.fields("scopeMetrics", |key, value| {
        match key {
            "scope" => value.fields("scope", |key, value| {
                match key {
                    "name" => scope.name = value.text("scope.name")?,
                    "version" => scope.version = value.text("scope.version")?,
                    "attributes" => read_attributes(value, &mut scope.attributes)?,
                    _ => {}
                }
                Ok(())
            })?,
            "metrics" => metrics = Some(value),
            _ => {}
        }
        Ok(())
    })?;
    visitor.scope(&scope);
    match metrics {
        Some(metrics) => metrics.items("metrics", |one| read_metric(one, visitor)),
        None => Ok(()),
    }
}

fn read_metric(span: JsonSpan<'_>, visitor: &mut dyn MetricVisitor) -> Result<(), OtlpError> {
    let (mut metric, mut data) = (Metric::default(), None);
    span.fields("metrics", |key, value| {
        match key {
            "name" => metric.name = value.text("name")?,
            "description" => metric.description = value.text("description")?,
            "unit" => metric.unit = value.text("unit")?,
            "gauge" => data = Some((MetricData::Gauge, value)),
            "sum" => {
                let sum = MetricData::Sum {
                    temporality: Temporality::Unspecified,
                    is_monotonic: false,
                };
                data = Some((sum, value));
            }
            "histogram" => {
                data = Some((MetricData::Histogram(Temporality::Unspecified), value));
            }
            "exponentialHistogram" => {
                let kind = MetricData::ExponentialHistogram(Temporality::Unspecified);
                data = Some((kind, value));
            }
            "summary" => data = Some((MetricData::Summary, value)),
            _ => {}
        }
        Ok(())
    })?;
    let Some((kind, data)) = data else {
        return Ok(());
    };
    read_points(&metric, kind, data, visitor)
}

fn read_points(
    metric: &Metric<'_>,
    kind: MetricData,
    span: JsonSpan<'_>,
    visitor: &mut dyn MetricVisitor,
) -> Result<(), OtlpError> {
    let (mut points, mut of_points, mut monotonic) = (None, Temporality::Unspecified, false);
    span.fields("the data of a metric", |key, value| {
        match key {
            "dataPoints" => points = Some(value),
            "aggregationTemporality" => of_points = read_temporality(value)?,
            "isMonotonic" => monotonic = value.bool("isMonotonic")?,
            _ => {}
        }
        Ok(())
    })?;
    let data = match kind {
        MetricData::Sum { .. } => MetricData::Sum {
            temporality: of_points,
            is_monotonic: monotonic,
        },
        MetricData::Histogram(_) => MetricData::Histogram(of_points),
        MetricData::ExponentialHistogram(_) => MetricData::ExponentialHistogram(of_points),
        kind => kind,
    };
    visitor.metric(metric, data);
    let Some(points) = points else {
        return Ok(());
    };
    points.items("dataPoints", |one| {
        let mut point = DataPoint::default();
        read_point(one, data, &mut point)?;
        visitor.point(&point)
    })
}

/// Reads the number of an enum. Its name is not valid in OTLP, but writers with a general JSON
/// mapping of protobuf use it.
fn read_temporality(span: JsonSpan<'_>) -> Result<Temporality, OtlpError> {
    let name = span.text("aggregationTemporality");
    Ok(match name.as_deref() {
        Ok("AGGREGATION_TEMPORALITY_DELTA") => Temporality::Delta,
        Ok("AGGREGATION_TEMPORALITY_CUMULATIVE") => Temporality::Cumulative,
        Ok("AGGREGATION_TEMPORALITY_UNSPECIFIED") => Temporality::Unspecified,
        _ => Temporality::from_number(span.uint64("aggregationTemporality")?),
    })
}

/// Reads a list of `KeyValue`.
pub(super) fn read_attributes<'a>(
    span: JsonSpan<'a>,
    attributes: &mut Vec<Attribute<'a>>,
) -> Result<(), OtlpError> {
    span.items("attributes", |one| {
        let (mut key, mut value) = (Cow::Borrowed(""), Cow::Borrowed(""));
        one.fields("attributes", |name, span| {
            match name {
                "key" => key = span.text("key")?,
                "value" => value = read_value(span)?,
                _ => {}
            }
            Ok(())
        })?;
        if attributes.len() < ATTRIBUTES_MAX {
            attributes.push(Attribute { key, value });
        }
        Ok(())
    })
}

/// Returns an `AnyValue` as text.
fn read_value(span: JsonSpan<'_>) -> Result<Cow<'_, str>, OtlpError> {
    let mut text = Cow::Borrowed("");
    span.fields("value", |key, value| {
        match key {
            "stringValue" => text = value.text(STRING)?,
            // Copied: bytes are base64 in protobuf's JSON mapping, too.
            "bytesValue" => text = value.text(BYTES)?,
            _ => {
                let mut json = String::new();
                if write_value(&mut json, key, value, 0)? {
                    text = Cow::Owned(json);
                }
            }
        }
        Ok(())
    })?;
    Ok(text)
}

const STRING: &str = "stringValue";
const BYTES: &str = "bytesValue";

/// Appends one field of an `AnyValue` as JSON. Returns whether the field is known.
fn write_value(
    out: &mut String,
    key: &str,
    value: JsonSpan<'_>,
    depth: usize,
) -> Result<bool, OtlpError> {
    match key {
        "stringValue" => push_quoted(out, &value.text(STRING)?),
        "bytesValue" => push_quoted(out, &value.text(BYTES)?),
        "boolValue" => out.push_str(match value.bool("boolValue")? {
            true => "true",
            false => "false",
        }),
        "intValue" => {
            // Writing to a string cannot fail.
            let _ = write!(out, "{}", value.int64("intValue")?);
        }
        "doubleValue" => push_double(out, value.double("doubleValue")?),
        "arrayValue" => write_list(out, value, false, depth + 1)?,
        "kvlistValue" => write_list(out, value, true, depth + 1)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn write_any(out: &mut String, span: JsonSpan<'_>, depth: usize) -> Result<(), OtlpError> {
    let mut json = String::from("null");
    span.fields("value", |key, value| {
        let mut one = String::new();
        if write_value(&mut one, key, value, depth)? {
            json = one;
        }
        Ok(())
    })?;
    out.push_str(&json);
    Ok(())
}

/// Appends an `ArrayValue` or a `KeyValueList`.
fn write_list(
    out: &mut String,
    span: JsonSpan<'_>,
    is_map: bool,
    depth: usize,
) -> Result<(), OtlpError> {
    if depth > VALUE_DEPTH_MAX {
        return Err(OtlpError::TooDeep);
    }
    out.push(if is_map { '{' } else { '[' });
    let mut is_first = true;
    span.fields("value", |key, values| {
        if key != "values" {
            return Ok(());
        }
        values.items("values", |one| {
            if !std::mem::take(&mut is_first) {
                out.push(',');
            }
            match is_map {
                true => write_entry(out, one, depth),
                false => write_any(out, one, depth),
            }
        })
    })?;
    out.push(if is_map { '}' } else { ']' });
    Ok(())
}

fn write_entry(out: &mut String, span: JsonSpan<'_>, depth: usize) -> Result<(), OtlpError> {
    let (mut name, mut json) = (Cow::Borrowed(""), String::from("null"));
    span.fields("values", |key, value| {
        match key {
            "key" => name = value.text("key")?,
            "value" => {
                json.clear();
                write_any(&mut json, value, depth)?;
            }
            _ => {}
        }
        Ok(())
    })?;
    push_quoted(out, &name);
    out.push(':');
    out.push_str(&json);
    Ok(())
}
