//! Numbers texts, for the table of symbols in messages of version 2.0.

use std::collections::HashMap;
use std::sync::Arc;

/// Texts, numbered from 1 on; 0 is the empty text.
#[derive(Debug, Default)]
pub(super) struct SymbolTable {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

impl SymbolTable {
    /// Returns the number of a text.
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        let number = self.texts.len() as u32;
        self.numbers.insert(text, number);
        number
    }

    /// Returns the text of a number.
    pub(super) fn text(&self, number: u32) -> &str {
        let at = (number as usize).wrapping_sub(1);
        self.texts.get(at).map_or("", |text| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_one_number_each() {
        let mut symbols = SymbolTable::default();
        assert_eq!(
            ["", "a", "b", "a"].map(|text| symbols.number(text)),
            [0, 1, 2, 1]
        );
        assert_eq!([0, 1, 2, 3].map(|at| symbols.text(at)), ["", "a", "b", ""]);
    }
}
