//! Parses labels as C programs write them: `phase=assembly,rank`.

use crate::error::BadText;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LabelList<'a> {
    pub pairs: Vec<(&'a str, String)>,
    pub with_pid: bool,
    pub with_rank: bool,
}

pub(crate) fn parse(text: &str) -> Result<LabelList<'_>, BadText> {
    let mut labels = LabelList::default();
    let mut rest = text;
    while !rest.is_empty() {
        let (word, after_word) = until(rest, [',', '=']);
        let key = word.trim();
        if let Some(value) = after_word.strip_prefix('=') {
            let (value, after) = unescape(value);
            labels.pairs.push((key, value));
            rest = after;
        } else {
            match key {
                "pid" => labels.with_pid = true,
                "rank" => labels.with_rank = true,
                _ => return Err(BadText::Label),
            }
            rest = after_word;
        }
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    Ok(labels)
}

fn until(text: &str, ends: [char; 2]) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// Returns a value up to the next comma that is not escaped, and the rest.
fn unescape(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            ',' => return (value, &text[at..]),
            '\\' => value.push(chars.next().map_or('\\', |(_, escaped)| escaped)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs<'a>(pairs: &[(&'a str, &str)]) -> Vec<(&'a str, String)> {
        let owned = pairs.iter().map(|(key, value)| (*key, (*value).to_owned()));
        owned.collect()
    }

    #[test]
    fn keys_values_and_the_two_words_are_told_apart() {
        let labels = parse("phase=assembly, q = a b ,rank").expect("good");
        assert_eq!(
            labels.pairs,
            pairs(&[("phase", "assembly"), ("q", " a b ")])
        );
        assert_eq!((labels.with_pid, labels.with_rank), (false, true));
        assert_eq!(parse("").expect("good"), LabelList::default());
        assert!(parse("pid").expect("good").with_pid);
        assert_eq!(parse("a=").expect("good").pairs, pairs(&[("a", "")]));
        assert_eq!(parse("a=b=c,").expect("good").pairs, pairs(&[("a", "b=c")]));
        // Invalid keys are refused by the lane, with the reason.
        assert_eq!(parse("=x").expect("good").pairs, pairs(&[("", "x")]));
    }

    #[test]
    fn a_backslash_takes_the_meaning_from_what_follows() {
        let labels = parse(r"a=1\,2,b=\\\=x\").expect("good");
        assert_eq!(labels.pairs, pairs(&[("a", "1,2"), ("b", r"\=x\")]));
    }

    #[test]
    fn a_word_that_is_no_label_is_refused() {
        for text in ["phase", ",", "a=1,,b=2", "a=1,b", " "] {
            assert_eq!(parse(text), Err(BadText::Label), "{text:?}");
        }
    }
}
