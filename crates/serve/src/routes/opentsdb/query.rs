use axum::response::Response;
use pegel_query::{ExpressionRequest, GexpRequest, LastQuery, OpentsdbError, QueryRequest};

use super::super::Answer;
use super::{Asked, answer, pairs, refusal};

/// `GET /api/query?start=1h-ago&m=sum:metric{host=*}`.
pub(super) async fn by_uri(asked: Asked) -> Answer {
    answer(asked, |asked, room| {
        let now = asked.site.app.clock.utc();
        let request = QueryRequest::from_uri(&pairs(&asked.uri)?, now)?;
        Ok(asked.site.engine.query(&request, room)?)
    })
    .await
}

/// `POST /api/query`, what Grafana sends.
pub(super) async fn by_body(asked: Asked) -> Answer {
    answer(asked, |asked, room| {
        let now = asked.site.app.clock.utc();
        let body = asked.plain_body()?;
        let request = QueryRequest::from_json(&body, &pairs(&asked.uri)?, now)?;
        Ok(asked.site.engine.query(&request, room)?)
    })
    .await
}

/// Samples are not deleted by questions.
pub(super) async fn delete() -> Response {
    refusal(
        &OpentsdbError::bad_request("Deleting data is not enabled")
            .with_details("samples leave the store by age and size alone"),
    )
}

pub(super) async fn last(asked: Asked) -> Answer {
    answer(asked, |asked, room| {
        let query = match asked.has_body() {
            true => LastQuery::from_json(&asked.plain_body()?)?,
            false => LastQuery::from_uri(&pairs(&asked.uri)?)?,
        };
        let now = asked.site.app.clock.utc();
        Ok(room.json(&asked.site.engine.last(&query, now)?)?)
    })
    .await
}

/// `GET /api/query/gexp?start=1h-ago&exp=scale(sum:metric,10)`.
pub(super) async fn gexp(asked: Asked) -> Answer {
    answer(asked, |asked, room| {
        let now = asked.site.app.clock.utc();
        let gexp = GexpRequest::from_uri(&pairs(&asked.uri)?, now)?;
        Ok(asked.site.engine.gexp(&gexp, room)?)
    })
    .await
}

/// `POST /api/query/exp`.
pub(super) async fn exp(asked: Asked) -> Answer {
    answer(asked, |asked, room| {
        let now = asked.site.app.clock.utc();
        let expressions = ExpressionRequest::from_json(&asked.plain_body()?, now)?;
        Ok(asked.site.engine.exp(&expressions, room)?)
    })
    .await
}
