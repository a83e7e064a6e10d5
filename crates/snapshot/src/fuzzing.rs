//! Entry points to the parsers, for the fuzz targets only.

use serde_json::Value;

use crate::cloud::fuzzing as cloud;

/// Parses the firmware's tables and returns the number of memory modules.
pub fn smbios(tables: &[u8]) -> usize {
    crate::smbios::parse_memory_modules(tables).dimms.len()
}

/// Parses a log of Azure Batch's node agent and returns its part of the snapshot.
pub fn azure_batch(log: &[u8]) -> Value {
    serde_json::to_value(crate::azure_batch::parse(log)).unwrap_or_default()
}

/// Parses a response of a metadata service and returns all values that any of the clouds would
/// extract.
pub fn metadata(response: &[u8]) -> Vec<String> {
    cloud::extract_all(response)
}
