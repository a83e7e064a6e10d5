//! Entry points for fuzz targets.

/// Reads bytes as a file of credentials and as a state. Returns the number of variables and blocks.
pub fn read_files(bytes: &[u8]) -> (usize, usize) {
    let text = String::from_utf8_lossy(bytes);
    let variables = crate::credentials_file::parse(&text).map_or(0, |found| found.len());
    let blocks = crate::state::parse(bytes, "file:///a").map_or(0, |found| found.len());
    (variables, blocks)
}
