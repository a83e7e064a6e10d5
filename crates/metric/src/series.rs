//! Series: a name and labels, identified by their text. Every input creates series through this
//! module, so that the limits and the rules for names hold everywhere. The text is canonical
//! (labels sorted by key), which makes equality of series equality of texts. Series of remote write
//! are a namespace of their own: they come from other systems with all their labels, and a series
//! of this node with the same text is another one.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Arc, LazyLock};

use crate::inline_string::InlineString;
use crate::{Family, Input};

/// The maximum length of a metric name.
pub const NAME_BYTES_MAX: usize = 1024;
/// The maximum number of labels of one series.
pub const LABELS_MAX: usize = 64;
/// The maximum length of the text `name{…}` of one series.
pub const TEXT_BYTES_MAX: usize = 16 * 1024;

/// A family, a name and labels. Two series are equal if their texts are equal, and both or none of
/// them are of remote write.
///
/// The text is the only copy of name and labels: a node may hold hundreds of thousands of series,
/// and nearly all uses need the text.
pub struct Series {
    family: Arc<Family>,
    text: InlineString,
    /// The hash of the text. A point is looked up in several tables on its way to the store, and
    /// the text of a series with ten labels has hundreds of bytes.
    hash: u64,
}

/// The key of the hashes: texts come from programs, which must not be able to choose hashes.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    #[error("the metric name is empty")]
    NameEmpty,
    #[error("the metric name has {0} bytes; at most {NAME_BYTES_MAX} are accepted")]
    NameTooLong(usize),
    #[error("the metric name contains the invalid character {0:?}")]
    NameCharacter(char),
    #[error("a label has an empty key")]
    LabelEmpty,
    #[error("the label key {0:?} contains the invalid character {1:?}")]
    LabelCharacter(String, char),
    #[error("duplicate label {0:?}")]
    DuplicateLabel(String),
    #[error("{0} labels; at most {LABELS_MAX} are accepted")]
    TooManyLabels(usize),
    #[error("name and labels have {0} bytes; at most {TEXT_BYTES_MAX} are accepted")]
    TextTooLong(usize),
    #[error("not a series: {0}")]
    Syntax(&'static str),
}

impl Series {
    /// Creates a series with the name of its family. Labels may be in any order.
    pub fn new(family: Arc<Family>, labels: &[(&str, &str)]) -> Result<Series, SeriesError> {
        let text = series_text(&family.name, labels)?;
        Ok(Series::of_text(family, text))
    }

    /// Creates a series with any name. Its family may have no name, so that the series of programs
    /// can share one.
    pub fn named(
        family: Arc<Family>,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Result<Series, SeriesError> {
        let text = series_text(name, labels)?;
        Ok(Series::of_text(family, text))
    }

    /// Rejects a name and labels that are too long for a series, by their lengths alone. Called
    /// before they are copied or their characters are checked: a short request can repeat a long
    /// text many times. The text of a series is longer than its parts, so that nothing is rejected
    /// here that [`Series::named`] accepts.
    pub fn check_lengths(name: &str, labels: &[(&str, &str)]) -> Result<(), SeriesError> {
        if name.len() > NAME_BYTES_MAX {
            return Err(SeriesError::NameTooLong(name.len()));
        }
        let labels = labels.iter().map(|(key, value)| key.len() + value.len());
        match name.len() + labels.sum::<usize>() {
            bytes if bytes > TEXT_BYTES_MAX => Err(SeriesError::TextTooLong(bytes)),
            _ => Ok(()),
        }
    }

    fn of_text(family: Arc<Family>, text: InlineString) -> Series {
        let hash = HASHER.hash_one(text.as_str());
        Series { family, text, hash }
    }

    /// Parses the output of [`Series::text`]. Labels may be in any order.
    ///
    /// `family` is called with the name; the family that it returns may have another name or none.
    pub fn parse(
        text: &str,
        family: impl FnOnce(&str) -> Arc<Family>,
    ) -> Result<Series, SeriesError> {
        let (name, labels) = split_series(text)?;
        let labels: Vec<(&str, String)> = labels
            .map(|label| label.map(|(key, value)| (key, value.into_owned())))
            .collect::<Result<_, _>>()?;
        let labels: Vec<(&str, &str)> = labels
            .iter()
            .map(|(key, value)| (*key, value.as_str()))
            .collect();
        Series::named(family(name), name, &labels)
    }

    /// Returns the family. Its name may be empty: use [`Series::name`].
    pub fn family(&self) -> &Arc<Family> {
        &self.family
    }

    /// Returns whether remote write stored it: not a series of this node.
    pub fn is_remote(&self) -> bool {
        self.family.input == Input::RemoteWrite
    }

    pub fn name(&self) -> &str {
        let text = self.text();
        // `check_name` rejects braces in names.
        &text[..text.find('{').unwrap_or(text.len())]
    }

    /// Returns `name{k="v",…}` with sorted keys; the bare name if there are no labels.
    pub fn text(&self) -> &str {
        self.text.as_str()
    }

    /// Returns the text after the name: `{k="v",…}`, or an empty string.
    pub fn labels_text(&self) -> &str {
        &self.text()[self.name().len()..]
    }

    /// Returns the labels, sorted by key.
    pub fn labels(&self) -> Labels<'_> {
        Labels {
            rest: inside_braces(self.labels_text()),
        }
    }

    pub fn label(&self, key: &str) -> Option<Cow<'_, str>> {
        self.labels()
            .find(|(k, _)| *k == key)
            .map(|(_, value)| value)
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl PartialEq for Series {
    fn eq(&self, other: &Series) -> bool {
        self.hash == other.hash
            && self.text() == other.text()
            && self.is_remote() == other.is_remote()
    }
}

impl Eq for Series {}

impl Hash for Series {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialOrd for Series {
    fn partial_cmp(&self, other: &Series) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Series {
    fn cmp(&self, other: &Series) -> std::cmp::Ordering {
        let texts = self.text().cmp(other.text());
        texts.then_with(|| self.is_remote().cmp(&other.is_remote()))
    }
}

/// An iterator over the labels of one series, sorted by key.
#[derive(Debug, Clone)]
pub struct Labels<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a str, Cow<'a, str>);

    fn next(&mut self) -> Option<Self::Item> {
        // The text was built by `series_text`, so every label parses.
        next_label(&mut self.rest)?.ok()
    }
}

/// Validates name and labels and returns the text of the series.
fn series_text(name: &str, labels: &[(&str, &str)]) -> Result<InlineString, SeriesError> {
    check_name(name)?;
    if labels.is_empty() {
        return Ok(name.into());
    }
    if labels.len() > LABELS_MAX {
        return Err(SeriesError::TooManyLabels(labels.len()));
    }
    Series::check_lengths(name, labels)?;
    let mut sorted: Vec<&(&str, &str)> = labels.iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    let mut text = String::with_capacity(name.len() + 16 * labels.len() + 2);
    text.push_str(name);
    for (index, (key, value)) in sorted.iter().enumerate() {
        check_key(key)?;
        if index > 0 && sorted[index - 1].0 == *key {
            return Err(SeriesError::DuplicateLabel((*key).to_owned()));
        }
        text.push(if index == 0 { '{' } else { ',' });
        text.push_str(key);
        text.push_str("=\"");
        escape(&mut text, value);
        text.push('"');
    }
    text.push('}');
    if text.len() > TEXT_BYTES_MAX {
        return Err(SeriesError::TextTooLong(text.len()));
    }
    Ok(text.as_str().into())
}

fn check_name(name: &str) -> Result<(), SeriesError> {
    if name.is_empty() {
        return Err(SeriesError::NameEmpty);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(SeriesError::NameTooLong(name.len()));
    }
    match name
        .chars()
        .find(|c| matches!(c, '{' | '}' | '"') || c.is_control())
    {
        Some(c) => Err(SeriesError::NameCharacter(c)),
        None => Ok(()),
    }
}

fn check_key(key: &str) -> Result<(), SeriesError> {
    if key.is_empty() {
        return Err(SeriesError::LabelEmpty);
    }
    match key
        .chars()
        .find(|c| matches!(c, '{' | '}' | '"' | '=' | ',' | '!' | '~') || c.is_control())
    {
        Some(c) => Err(SeriesError::LabelCharacter(key.to_owned(), c)),
        None => Ok(()),
    }
}

pub(crate) fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
}

fn inside_braces(labels_text: &str) -> &str {
    labels_text
        .strip_prefix('{')
        .and_then(|t| t.strip_suffix('}'))
        .unwrap_or("")
}

type ParsedLabel<'a> = Result<(&'a str, Cow<'a, str>), SeriesError>;

/// Splits `name{…}` into the name and its labels, which are not validated.
fn split_series(text: &str) -> Result<(&str, impl Iterator<Item = ParsedLabel<'_>>), SeriesError> {
    let brace = text.find('{').unwrap_or(text.len());
    let (name, labels_text) = text.split_at(brace);
    if !labels_text.is_empty() && !labels_text.ends_with('}') {
        return Err(SeriesError::Syntax("no closing brace"));
    }
    let mut rest = inside_braces(labels_text);
    Ok((name, std::iter::from_fn(move || next_label(&mut rest))))
}

/// Removes `key="value"` and a following comma from the front of `rest`.
pub(crate) fn next_label<'a>(rest: &mut &'a str) -> Option<ParsedLabel<'a>> {
    if rest.is_empty() {
        return None;
    }
    let text = std::mem::take(rest);
    let Some((key, after_key)) = text.split_once('=') else {
        return Some(Err(SeriesError::Syntax("a label without '='")));
    };
    match parse_quoted(after_key) {
        Ok((value, after)) => {
            *rest = after.strip_prefix(',').unwrap_or(after);
            if !after.is_empty() && !after.starts_with(',') {
                *rest = "";
                return Some(Err(SeriesError::Syntax("no comma between labels")));
            }
            Some(Ok((key, value)))
        }
        Err(error) => Some(Err(error)),
    }
}

/// Parses a double-quoted value with the escapes `\\`, `\"`, `\n`; returns it and the remaining
/// text.
pub(crate) fn parse_quoted(text: &str) -> Result<(Cow<'_, str>, &str), SeriesError> {
    let Some(body) = text.strip_prefix('"') else {
        return Err(SeriesError::Syntax("a label value without quotes"));
    };
    let mut owned: Option<String> = None;
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let value = match owned {
                    Some(value) => Cow::Owned(value),
                    None => Cow::Borrowed(&body[..at]),
                };
                return Ok((value, &body[at + 1..]));
            }
            '\\' => {
                let buffer = owned.get_or_insert_with(|| body[..at].to_owned());
                match chars.next() {
                    Some((_, 'n')) => buffer.push('\n'),
                    Some((_, c @ ('\\' | '"'))) => buffer.push(c),
                    _ => return Err(SeriesError::Syntax("an unknown escape in a label value")),
                }
            }
            c => {
                if let Some(buffer) = &mut owned {
                    buffer.push(c);
                }
            }
        }
    }
    Err(SeriesError::Syntax("a label value without a closing quote"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Input, MetricKind};

    /// Returns a family of which only the name matters.
    pub(crate) fn test_family(name: &str) -> Arc<Family> {
        Arc::new(Family {
            name: Cow::Owned(name.to_owned()),
            kind: MetricKind::Gauge,
            help: "".into(),
            unit: "".into(),
            level: 1,
            input: Input::Collect,
        })
    }

    #[test]
    fn text_sorts_and_escapes() {
        let series =
            Series::new(test_family("m"), &[("b", "x\"y\\z\n"), ("a", "1")]).expect("valid");
        assert_eq!(series.text(), r#"m{a="1",b="x\"y\\z\n"}"#);
        let labels: Vec<(String, String)> = series
            .labels()
            .map(|(k, v)| (k.to_owned(), v.into_owned()))
            .collect();
        assert_eq!(
            labels,
            [("a".into(), "1".into()), ("b".into(), "x\"y\\z\n".into())]
        );
        assert_eq!(series.labels_text(), r#"{a="1",b="x\"y\\z\n"}"#);
    }

    #[test]
    fn text_reads_back() {
        for text in ["m", r#"m{a="1"}"#, r#"queue.depth{a="{,}",b="\\\"\n"}"#] {
            let series = Series::parse(text, test_family).expect("valid");
            assert_eq!(series.text(), text);
        }
        assert_eq!(
            Series::parse(r#"m{b="2",a="1"}"#, test_family)
                .expect("valid")
                .text(),
            r#"m{a="1",b="2"}"#
        );
    }

    #[test]
    fn series_of_remote_write_equal_no_others() {
        let family = |input| Arc::new(Family::clone(&test_family("m")).of_input(input));
        let of = |input| Series::new(family(input), &[("a", "1")]).expect("valid");
        assert_eq!(of(Input::Put), of(Input::Lane));
        assert_eq!(of(Input::RemoteWrite), of(Input::RemoteWrite));
        assert_ne!(of(Input::RemoteWrite), of(Input::Put));
        assert!(of(Input::Put) < of(Input::RemoteWrite));
        let both = std::collections::HashSet::from([of(Input::Put), of(Input::RemoteWrite)]);
        assert_eq!(both.len(), 2);
    }

    #[test]
    fn series_of_many_names_may_share_a_family() {
        let nameless = test_family("");
        let one = Series::named(nameless.clone(), "one", &[("k", "v")]).expect("valid");
        let two = Series::parse("two", |_| nameless.clone()).expect("valid");
        assert_eq!((one.name(), one.labels_text()), ("one", r#"{k="v"}"#));
        assert_eq!((two.name(), two.text()), ("two", "two"));
        assert!(Arc::ptr_eq(one.family(), two.family()));
    }

    #[test]
    fn refuses_what_could_not_be_told_apart() {
        use SeriesError::*;
        assert_eq!(Series::new(test_family(""), &[]), Err(NameEmpty));
        assert_eq!(
            Series::new(test_family("a{b"), &[]),
            Err(NameCharacter('{'))
        );
        assert_eq!(
            Series::new(test_family("a\0"), &[]),
            Err(NameCharacter('\0'))
        );
        assert_eq!(
            Series::new(test_family("a"), &[("k", "1"), ("k", "2")]),
            Err(DuplicateLabel("k".into()))
        );
        assert_eq!(Series::new(test_family("a"), &[("", "1")]), Err(LabelEmpty));
        assert!(matches!(
            Series::new(test_family(&"x".repeat(2000)), &[]),
            Err(NameTooLong(2000))
        ));
        for text in [
            "m{a=\"1\"",
            "m{a=1}",
            "m{a}",
            "m{a=\"1\"b=\"2\"}",
            "m{a=\"\\x\"}",
            "m{a=\"}",
        ] {
            assert!(
                matches!(Series::parse(text, test_family), Err(Syntax(_))),
                "{text}"
            );
        }
    }
}
