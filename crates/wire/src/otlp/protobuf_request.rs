//! Walks an `ExportMetricsServiceRequest` in protobuf.
//!
//! Fields may have any order, and a resource or a name may come after the metrics that it applies
//! to: each level is scanned twice, first for the fields that describe it, then for its parts.
//! Scanning skips nested messages by their lengths.

use super::protobuf_attributes::{read_resource, read_scope, text};
use super::protobuf_points::{PointKind, read_point};
use super::{DataPoint, Metric, MetricData, MetricVisitor, OtlpError, Scope, Temporality};
use crate::protobuf_fields::{Field, FieldReader, ProtobufError};

/// Reads a request and calls the visitor for its parts. Metrics without points are not visited.
pub fn read_protobuf(message: &[u8], visitor: &mut dyn MetricVisitor) -> Result<(), OtlpError> {
    for_each(message, 1, |resource_metrics| {
        let mut attributes = Vec::new();
        for_each(resource_metrics, 1, |resource| {
            read_resource(resource, &mut attributes)
        })?;
        visitor.resource(&attributes);
        for_each(resource_metrics, 2, |scope_metrics| {
            read_scope_metrics(scope_metrics, visitor)
        })
    })
}

/// Calls `each` for the messages of one field.
fn for_each<'a>(
    message: &'a [u8],
    number: u32,
    mut each: impl FnMut(&'a [u8]) -> Result<(), OtlpError>,
) -> Result<(), OtlpError> {
    let mut fields = FieldReader::new(message);
    while let Some(field) = fields.next_field()? {
        if field.number == number {
            each(field.bytes()?)?;
        }
    }
    Ok(())
}

fn read_scope_metrics(message: &[u8], visitor: &mut dyn MetricVisitor) -> Result<(), OtlpError> {
    let mut scope = Scope::default();
    for_each(message, 1, |part| read_scope(part, &mut scope))?;
    visitor.scope(&scope);
    for_each(message, 2, |metric| read_metric(metric, visitor))
}

fn read_metric(message: &[u8], visitor: &mut dyn MetricVisitor) -> Result<(), OtlpError> {
    let mut metric = Metric::default();
    // If a message has several kinds of data, the last is used, as for every `oneof`.
    let mut data: Option<Field<'_>> = None;
    let mut fields = FieldReader::new(message);
    while let Some(field) = fields.next_field()? {
        match field.number {
            1 => metric.name = text(&field)?,
            2 => metric.description = text(&field)?,
            3 => metric.unit = text(&field)?,
            5 | 7 | 9 | 10 | 11 => data = Some(field),
            _ => {}
        }
    }
    let Some(field) = data else {
        return Ok(());
    };
    let points = field.bytes()?;
    let (data, kind) = read_data(field.number, points)?;
    visitor.metric(&metric, data);
    let mut point = DataPoint::default();
    for_each(points, 1, |message| {
        read_point(message, kind, &mut point)?;
        visitor.point(&point)
    })
}

/// Reads the properties that all points of a metric share.
fn read_data(number: u32, message: &[u8]) -> Result<(MetricData, PointKind), ProtobufError> {
    let (mut temporality, mut is_monotonic) = (Temporality::default(), false);
    if matches!(number, 7 | 9 | 10) {
        let mut fields = FieldReader::new(message);
        while let Some(field) = fields.next_field()? {
            match field.number {
                2 => temporality = Temporality::from_number(field.number()?),
                3 if number == 7 => is_monotonic = field.number()? != 0,
                _ => {}
            }
        }
    }
    Ok(match number {
        5 => (MetricData::Gauge, PointKind::Number),
        7 => {
            let sum = MetricData::Sum {
                temporality,
                is_monotonic,
            };
            (sum, PointKind::Number)
        }
        9 => (MetricData::Histogram(temporality), PointKind::Histogram),
        10 => {
            let data = MetricData::ExponentialHistogram(temporality);
            (data, PointKind::Exponential)
        }
        _ => (MetricData::Summary, PointKind::Summary),
    })
}
