//! Writes the seed inputs of every corpus.

use std::path::Path;
use std::{fs, io};

use crate::TARGETS;

/// Writes `TARGET/seed-N` for every target; other files are kept.
pub fn write_seeds(corpus: &Path) -> io::Result<usize> {
    let mut count = 0;
    for target in TARGETS {
        let dir = corpus.join(target.name);
        fs::create_dir_all(&dir)?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            fs::write(dir.join(format!("seed-{number:02}")), seed)?;
            count += 1;
        }
    }
    Ok(count)
}
