//! Parses data points in JSON. Unknown fields are ignored.

use super::json_request::read_attributes;
use super::json_scalars::JsonSpan;
use super::{BUCKETS_MAX, BucketRun, DataPoint, MetricData, OtlpError, PointValue};

/// Reads a data point into `point`, which is empty.
pub(super) fn read_point<'a>(
    span: JsonSpan<'a>,
    data: MetricData,
    point: &mut DataPoint<'a>,
) -> Result<(), OtlpError> {
    span.fields("dataPoints", |key, value| {
        match key {
            "attributes" => read_attributes(value, &mut point.attributes)?,
            "startTimeUnixNano" => point.start_nanos = value.uint64("startTimeUnixNano")?,
            "timeUnixNano" => point.time_nanos = value.uint64("timeUnixNano")?,
            "flags" => point.has_no_value = value.uint64("flags")? & 1 != 0,
            "exemplars" => value.items("exemplars", |_| {
                point.exemplars += 1;
                Ok(())
            })?,
            _ => match data {
                MetricData::Gauge | MetricData::Sum { .. } => {
                    read_number(key, value, &mut point.value)?;
                }
                _ => read_distribution(key, value, &mut point.value)?,
            },
        }
        Ok(())
    })
}

fn read_number(key: &str, value: JsonSpan<'_>, point: &mut PointValue) -> Result<(), OtlpError> {
    match key {
        "asDouble" => point.number = Some(value.double("asDouble")?),
        "asInt" => point.number = Some(value.int64("asInt")? as f64),
        _ => {}
    }
    Ok(())
}

/// Reads a field of a histogram of either kind or of a summary: their names do not collide.
fn read_distribution(
    key: &str,
    value: JsonSpan<'_>,
    point: &mut PointValue,
) -> Result<(), OtlpError> {
    match key {
        "count" => point.count = value.uint64("count")?,
        "sum" => point.sum = Some(value.double("sum")?),
        "bucketCounts" => {
            read_list(value, "bucketCounts", &mut point.bucket_counts, |one| {
                one.uint64("bucketCounts")
            })?;
        }
        "explicitBounds" => {
            let bounds = &mut point.explicit_bounds;
            read_list(value, "explicitBounds", bounds, |one| {
                one.double("explicitBounds")
            })?;
        }
        "scale" => point.exponential.scale = value.int32("scale")?,
        "zeroCount" => point.exponential.zero_count = value.uint64("zeroCount")?,
        "zeroThreshold" => point.exponential.zero_threshold = value.double("zeroThreshold")?,
        "positive" => read_run(value, &mut point.exponential.positive)?,
        "negative" => read_run(value, &mut point.exponential.negative)?,
        "quantileValues" => {
            read_list(value, "quantileValues", &mut point.quantiles, read_quantile)?;
        }
        _ => {}
    }
    Ok(())
}

fn read_run(span: JsonSpan<'_>, run: &mut BucketRun) -> Result<(), OtlpError> {
    span.fields("buckets", |key, value| {
        match key {
            "offset" => run.offset = value.int32("offset")?,
            "bucketCounts" => read_list(value, "bucketCounts", &mut run.counts, |one| {
                one.uint64("bucketCounts")
            })?,
            _ => {}
        }
        Ok(())
    })
}

fn read_quantile(span: JsonSpan<'_>) -> Result<(f64, f64), OtlpError> {
    let mut quantile = (0.0, 0.0);
    span.fields("quantileValues", |key, value| {
        match key {
            "quantile" => quantile.0 = value.double("quantile")?,
            "value" => quantile.1 = value.double("value")?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(quantile)
}

fn read_list<'a, T>(
    span: JsonSpan<'a>,
    what: &'static str,
    list: &mut Vec<T>,
    read: impl Fn(JsonSpan<'a>) -> Result<T, OtlpError>,
) -> Result<(), OtlpError> {
    span.items(what, |one| {
        if list.len() == BUCKETS_MAX {
            return Err(OtlpError::TooMany("buckets in a data point", BUCKETS_MAX));
        }
        list.push(read(one)?);
        Ok(())
    })
}
