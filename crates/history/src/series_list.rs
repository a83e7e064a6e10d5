//! Responses of `/api/v1/series`: a list of labels.

use std::fmt;
use std::io::Read;

use pegel_query::promql::LabelSet;
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use crate::answer::AnswerError;
use crate::matrix::{AnswerNotes, LabelMap, read_notes};
use crate::selector::EngineSelector;

/// Reads a list of series within `bytes_max`, each once.
pub(crate) fn read_series(
    body: impl Read,
    selector: &EngineSelector<'_>,
    bytes_max: usize,
) -> Result<(AnswerNotes, Vec<LabelSet>), AnswerError> {
    let mut list = ListedLabels {
        selector,
        found: Vec::new(),
        bytes_left: bytes_max,
        is_too_large: false,
    };
    let notes = read_notes(body, &mut list);
    if list.is_too_large {
        return Err(AnswerError::TooLarge);
    }
    let mut found = list.found;
    found.sort_unstable();
    found.dedup();
    Ok((notes?, found))
}

struct ListedLabels<'a> {
    selector: &'a EngineSelector<'a>,
    found: Vec<LabelSet>,
    bytes_left: usize,
    is_too_large: bool,
}

impl<'de> DeserializeSeed<'de> for &mut ListedLabels<'_> {
    type Value = ();

    fn deserialize<T: Deserializer<'de>>(self, json: T) -> Result<(), T::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for &mut ListedLabels<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of series")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while let Some(labels) = list.next_element_seed(LabelMap)? {
            let Some(labels) = self.selector.own_labels(labels.clone()) else {
                let message = format!("the series {labels} does not match the request");
                return Err(Error::custom(message));
            };
            let left = self.bytes_left.checked_sub(labels.bytes() + 16);
            let Some(left) = left else {
                self.is_too_large = true;
                return Err(Error::custom("too many series"));
            };
            self.bytes_left = left;
            self.found.push(labels);
        }
        Ok(())
    }
}
