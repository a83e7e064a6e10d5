//! Parses the syntax of `m=`:
//! `sum:rate{counter,,1000}:10s-avg:explicit_tags:metric{host=*}{dc=regexp(a.*)}`.

use super::{QueryTarget, RateEcho, SubQuery};
use crate::downsample::Downsample;
use crate::error::OpentsdbError;
use crate::filter::TagFilter;
use crate::rate::RateOptions;

pub(crate) fn parse_sub_query(text: &str, uses_calendar: bool) -> Result<SubQuery, OpentsdbError> {
    let wrong = |why: &str| {
        OpentsdbError::bad_request(format!("Invalid parameter m={text} ({why})")).with_details(
            "aggregator:[rate[{counter,max,reset}]:][downsample:][explicit_tags:]metric[{grouping filters}][{other filters}]",
        )
    };
    let (name, mut rest) = text.split_once(':').ok_or_else(|| wrong("no aggregator"))?;
    let mut query = SubQuery::new(name, QueryTarget::Metric(String::new()))?;
    // A name may contain colons: it starts at the first part that is not a known option.
    while let Some((option, after)) = split_option(rest) {
        if !apply_option(&mut query, option, uses_calendar)? {
            break;
        }
        rest = after;
    }
    let (metric, filters) = split_braces(rest).ok_or_else(|| wrong("unbalanced braces"))?;
    if metric.is_empty() {
        return Err(wrong("no metric"));
    }
    for (part, is_grouping) in filters.into_iter().zip([true, false]) {
        for (key, value) in split_tags(part)? {
            query
                .filters
                .push(TagFilter::from_tag_value(key, value, is_grouping)?);
        }
    }
    query.target = QueryTarget::Metric(metric.to_owned());
    query.echo.metric = Some(metric.to_owned());
    query.echo.explicit_tags = query.explicit_tags;
    Ok(query)
}

/// Splits the text at the first colon outside of braces.
fn split_option(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0usize;
    text.split_once(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ':' && depth == 0
    })
}

/// Applies an option; returns false if it is not one.
fn apply_option(
    query: &mut SubQuery,
    option: &str,
    uses_calendar: bool,
) -> Result<bool, OpentsdbError> {
    if let Some(options) = option.strip_prefix("rate")
        && (options.is_empty() || options.starts_with('{'))
    {
        let rate = parse_rate(options)?;
        query.echo.rate = true;
        query.echo.rate_options = Some(RateEcho::from(&rate));
        query.rate = Some(rate);
    } else if matches!(option, "explicit_tags" | "explicit-tags") {
        query.explicit_tags = true;
    } else if option == "pre-agg" || option.starts_with("rollup_") {
        // There are no rollups: the query uses the samples themselves.
    } else if option.starts_with(|c: char| c.is_ascii_digit()) || option.starts_with("all-") {
        query.downsample = Some(Downsample::parse(option, uses_calendar)?);
        query.echo.downsample = Some(option.to_owned());
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// Parses `{counter[,max[,reset]]}`, `{dropcounter,…}`, or an empty string.
fn parse_rate(text: &str) -> Result<RateOptions, OpentsdbError> {
    let mut rate = RateOptions::default();
    if text.is_empty() {
        return Ok(rate);
    }
    let wrong = || {
        OpentsdbError::bad_request(format!("Invalid rate options: {text}")).with_details(
            "counter or dropcounter, the largest value, the reset value: {counter,65535,1000}",
        )
    };
    let inner = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    let parts: Vec<&str> = inner.ok_or_else(wrong)?.split(',').map(str::trim).collect();
    match parts[0] {
        "counter" => rate.counter = true,
        "dropcounter" => (rate.counter, rate.drop_resets) = (true, true),
        "" => {}
        _ => return Err(wrong()),
    }
    if parts.len() > 3 {
        return Err(wrong());
    }
    let number = |at: usize| match parts.get(at).filter(|part| !part.is_empty()) {
        Some(part) => part.parse::<i64>().map(Some).map_err(|_| wrong()),
        None => Ok(None),
    };
    if let Some(max) = number(1)? {
        rate.counter_max = max as f64;
    }
    if let Some(value) = number(2)? {
        rate.reset_value = value as f64;
    }
    Ok(rate)
}

/// Splits the text into the name and the content of up to two pairs of braces.
fn split_braces(text: &str) -> Option<(&str, Vec<&str>)> {
    let Some(open) = text.find('{') else {
        return (!text.contains('}')).then_some((text, Vec::new()));
    };
    let (name, rest) = text.split_at(open);
    let inner = rest.strip_prefix('{')?.strip_suffix('}')?;
    // Expressions may contain braces too; only `}{` separates the two.
    let parts = match inner.split_once("}{") {
        Some((first, second)) => vec![first, second],
        None => vec![inner],
    };
    Some((name, parts))
}

/// Splits `key=value,key=value`; commas in parentheses belong to the value.
pub(crate) fn split_tags(text: &str) -> Result<Vec<(&str, &str)>, OpentsdbError> {
    let mut depth = 0usize;
    let is_separator = |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    let parts = text.split(is_separator).map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(|part| match part.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.trim(), value.trim())),
            _ => Err(OpentsdbError::bad_request(format!("Invalid tag: {part}"))
                .with_details("a tag is written key=value")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregator::Aggregator;
    use crate::downsample::{DownsampleInterval, FillPolicy};

    fn parse(text: &str) -> SubQuery {
        parse_sub_query(text, false).expect(text)
    }

    #[test]
    fn every_part_is_read() {
        let query = parse(
            "avg:rate{counter,65535,1000}:10s-max-zero:explicit_tags:sys.cpu{host=*,dc=lax|dal}{owner=regexp(a{2},b),core=not_key()}",
        );
        assert_eq!(query.aggregator, Aggregator::Avg);
        assert_eq!(query.target, QueryTarget::Metric("sys.cpu".into()));
        let rate = RateOptions {
            counter: true,
            counter_max: 65_535.0,
            reset_value: 1_000.0,
            drop_resets: false,
        };
        assert_eq!(query.rate, Some(rate));
        let downsample = query.downsample.expect("given");
        assert_eq!(
            (downsample.interval, downsample.function, downsample.fill),
            (
                DownsampleInterval::Fixed(10_000),
                Aggregator::Max,
                FillPolicy::Zero
            )
        );
        assert!(query.explicit_tags);
        let filters: Vec<_> = query
            .filters
            .iter()
            .map(|f| (&*f.tagk, f.kind, &*f.text, f.group_by))
            .collect();
        assert_eq!(
            filters,
            [
                ("host", "wildcard", "*", true),
                ("dc", "literal_or", "lax|dal", true),
                ("owner", "regexp", "a{2},b", false),
                ("core", "not_key", "", false),
            ]
        );
    }

    #[test]
    fn parts_may_be_missing_and_come_in_any_order() {
        assert!(parse("sum:m").filters.is_empty());
        assert!(parse("sum:m{}").filters.is_empty());
        assert!(!parse("sum:m{}{host=a}").filters[0].group_by);
        let query = parse("sum:1m-avg:rate:m");
        assert!(query.rate == Some(RateOptions::default()) && query.downsample.is_some());
        assert_eq!(
            parse("sum:0all-max:m").downsample.map(|d| d.interval),
            Some(DownsampleInterval::All)
        );
        let rate = parse("sum:rate{counter,,1000}:m").rate.expect("given");
        assert_eq!(
            (rate.counter, rate.counter_max, rate.reset_value),
            (true, i64::MAX as f64, 1_000.0)
        );
        assert!(
            parse("sum:rate{dropcounter}:m")
                .rate
                .expect("given")
                .drop_resets
        );
        assert_eq!(
            parse("sum:job:rate:x").target,
            QueryTarget::Metric("job:rate:x".into())
        );
        assert_eq!(
            parse("sum:rated").target,
            QueryTarget::Metric("rated".into())
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("m", "Invalid parameter m=m (no aggregator)"),
            ("", "Invalid parameter m= (no aggregator)"),
            ("sum:", "Invalid parameter m=sum: (no metric)"),
            (
                "sum:{host=a}",
                "Invalid parameter m=sum:{host=a} (no metric)",
            ),
            ("nope:m", "No such aggregator: nope"),
            (
                "sum:m{host=a",
                "Invalid parameter m=sum:m{host=a (unbalanced braces)",
            ),
            ("sum:m}", "Invalid parameter m=sum:m} (unbalanced braces)"),
            ("sum:m{host}", "Invalid tag: host"),
            ("sum:m{=a}", "Invalid tag: =a"),
            (
                "sum:m{host=like(a)}",
                "Unable to find a filter of type: like",
            ),
            ("sum:rate{up}:m", "Invalid rate options: {up}"),
            ("sum:rate{counter,x}:m", "Invalid rate options: {counter,x}"),
            ("sum:10s-what:m", "No such downsampling function: what"),
        ] {
            let problem = parse_sub_query(text, false).expect_err(text);
            assert_eq!(
                (problem.status(), problem.to_string().as_str()),
                (400, message)
            );
        }
    }
}
