//! Doors to the parsers, for fuzzing alone.

use serde_json::Value;

use crate::cloud::fuzzing as cloud;

/// The firmware's tables; how many modules they have.
pub fn smbios(tables: &[u8]) -> usize {
    crate::smbios::parse_memory_modules(tables).dimms.len()
}

/// A log of Azure Batch's node agent, as the snapshot shows it.
pub fn azure_batch(log: &[u8]) -> Value {
    serde_json::to_value(crate::azure_batch::parse(log)).unwrap_or_default()
}

/// An answer of a metadata service: everything that any of the clouds would take from it.
pub fn metadata(answer: &[u8]) -> Vec<String> {
    cloud::everything(answer)
}
