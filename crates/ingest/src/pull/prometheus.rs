//! Prometheus endpoints: the text format and OpenMetrics.

use pegel_wire::exposition::{self, TextFormat};

use super::http_fetch::HttpSource;
use super::pull_context::{PullContext, SampleOptions};
use super::{PullError, PullReader};

/// Prefers the format that has an end, so that a truncated response is noticed.
const ACCEPT: &str =
    "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// Scrapes an endpoint at each interval.
#[derive(Debug)]
pub(crate) struct PrometheusReader {
    source: HttpSource,
    options: SampleOptions,
}

impl PrometheusReader {
    pub(crate) fn new(
        source: HttpSource,
        honor_labels: bool,
        honor_times: bool,
    ) -> PrometheusReader {
        PrometheusReader {
            source,
            options: SampleOptions {
                honor_labels,
                honor_times,
            },
        }
    }
}

impl PullReader for PrometheusReader {
    fn read(&mut self, context: &PullContext<'_>) -> Result<(), PullError> {
        let page = self.source.fetch(context, ACCEPT)?;
        let format = TextFormat::from_content_type(&page.content_type);
        let batch = exposition::parse(&page.body, format).map_err(PullError::malformed)?;
        context.store(&batch, self.options)
    }
}
