//! The values of programs that an agent runs once, such as a query of the service processor. The
//! agent's inputs record them; each snapshot contains them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Series and their values, by the name of the input.
pub type OnceInputValues = BTreeMap<String, BTreeMap<String, f64>>;

/// The values recorded so far. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct OnceInputs(Arc<Mutex<OnceInputValues>>);

impl OnceInputs {
    /// Records the values of an input. Returns whether they are new.
    pub fn record(&self, name: &str, values: BTreeMap<String, f64>) -> bool {
        let mut known = self.0.lock();
        let is_new = known.get(name) != Some(&values);
        known.insert(name.to_owned(), values);
        is_new
    }

    pub(crate) fn values(&self) -> OnceInputValues {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::tests::options;
    use crate::timestamp::Timestamp;

    #[test]
    fn values_of_inputs_are_part_of_a_snapshot() {
        let root = pegel_testkit::TempDir::new();
        let options = options(root.path());
        assert!(!options.take(Timestamp(0)).json().contains("\"inputs\""));
        let values = BTreeMap::from([("dimms{job=\"once\"}".to_owned(), 8.0)]);
        assert!(options.once_inputs.record("once", values.clone()));
        assert!(
            !options.once_inputs.record("once", values),
            "nothing is new"
        );
        let snapshot = options.take(Timestamp(0));
        let json: serde_json::Value = serde_json::from_str(&snapshot.json()).expect("JSON");
        assert_eq!(json["inputs"]["once"]["dimms{job=\"once\"}"], 8.0);
        let page = snapshot.markdown();
        assert!(page.contains("## Inputs"), "{page}");
        assert!(page.contains("dimms{job=\"once\"} 8"), "{page}");
    }
}
