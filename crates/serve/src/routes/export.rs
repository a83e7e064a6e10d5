//! `GET /api/v1/export`: all stored samples of a range of time as one file, for analysis.

use axum::extract::Extension;
use axum::http::{HeaderName, Uri};
use axum::response::IntoResponse;
use pegel_sample_file::{SampleFileError, SampleFileFormat, SampleWriter};
use pegel_store::{RangeQuery, Store};
use tokio::sync::oneshot;

use super::range::range_query;
use super::{HandlerResult, SharedContext};
use crate::api_error::ApiError;
use crate::finished_response::ResponseBuffer;
use crate::guard::Caller;
use crate::query_parameters::QueryParameters;

/// The number of samples in the file, so that clients need not parse it.
const SAMPLES_HEADER: HeaderName = HeaderName::from_static("pegel-samples");

/// Answers with one file in the format of the archive. If it exceeds the limits of a query, the
/// status is 413, and the client requests shorter times.
pub(super) async fn export(
    Extension(context): SharedContext,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> HandlerResult {
    let now = context.agent.clock.utc();
    let accepted = ["match", "start", "end", "format"];
    let parameters = QueryParameters::parse(&uri, &accepted)?;
    let format = parse_format(parameters.single("format")?.unwrap_or("parquet"))?;
    let mut query = range_query(&parameters, now)?;
    query.selector = query.selector.including_remote();
    let (store, node) = (context.agent.store.clone(), context.agent.node.clone());
    let mut buffer = context.executor.response_buffer(caller.rights);
    let (count_of_file, counted) = oneshot::channel();
    let work = move || {
        let samples = write_file(&mut buffer, format, &node, &store, &query)?;
        // Fails if the client closed the connection: the result is discarded.
        let _ = count_of_file.send(samples);
        let content_type = match format {
            SampleFileFormat::Parquet => "application/vnd.apache.parquet",
            SampleFileFormat::Csv => "text/csv; charset=utf-8",
        };
        buffer.finish(content_type, false)
    };
    let finished = context.executor.query(caller.rights, work).await?;
    let mut response = finished.into_response();
    if let Ok(samples) = counted.await {
        response
            .headers_mut()
            .insert(SAMPLES_HEADER, samples.into());
    }
    Ok(response)
}

fn parse_format(text: &str) -> Result<SampleFileFormat, ApiError> {
    SampleFileFormat::parse(text).ok_or_else(|| {
        ApiError::bad_request(format!("unknown format {text:?}")).hint("parquet or csv")
    })
}

/// Returns the number of samples.
fn write_file(
    buffer: &mut ResponseBuffer,
    format: SampleFileFormat,
    node: &str,
    store: &Store,
    query: &RangeQuery,
) -> Result<u64, ApiError> {
    let bytes_max = buffer.bytes_max();
    let failed = |error: SampleFileError| match error {
        SampleFileError::TooLarge(_) => ApiError::response_too_large(bytes_max),
        SampleFileError::Parquet(error) => {
            tracing::error!(%error, "export failed");
            ApiError::internal()
        }
    };
    let mut writer = SampleWriter::with_limit(format, node, bytes_max).map_err(failed)?;
    let mut added = Ok(());
    store.query_range(query, &mut |series, points| {
        // The store's scan cannot be stopped; after the first error the rest is skipped.
        if added.is_ok() {
            added = writer.add(series, points);
        }
    })?;
    added.map_err(failed)?;
    let mut file = writer.finish().map_err(failed)?;
    // The memory of the buffer counts, not only its content.
    file.bytes.shrink_to_fit();
    buffer.adopt(file.bytes)?;
    Ok(file.samples)
}
