//! Replays the corpora, then mutates their inputs at random for a given time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use pegel_testkit::Rng;

use crate::mutate::mutate;
use crate::{Broken, Target, execute};

/// The options of a fuzzing run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The total time for all targets; zero only replays the corpora.
    pub time: Duration,
    pub seed: u64,
    /// The directory that contains `TARGET/…`.
    pub corpus: PathBuf,
    /// The directory for inputs that violated a property.
    pub crashes: PathBuf,
}

/// The result of one target.
#[derive(Debug)]
pub struct Outcome {
    pub target: &'static str,
    pub replayed: usize,
    pub executions: u64,
    pub time: Duration,
    pub broken: Vec<FuzzFailure>,
}

#[derive(Debug)]
pub struct FuzzFailure {
    pub input: PathBuf,
    pub broken: Broken,
}

/// Fuzzes the targets one after the other, each for its share of the total time.
pub fn fuzz(
    targets: &[&'static Target],
    options: &Options,
    mut done: impl FnMut(&Outcome),
) -> io::Result<bool> {
    let share = options.time / targets.len().max(1) as u32;
    let mut is_whole = true;
    for target in targets {
        let outcome = fuzz_one(target, options, share)?;
        is_whole &= outcome.broken.is_empty();
        done(&outcome);
    }
    Ok(is_whole)
}

fn fuzz_one(target: &'static Target, options: &Options, share: Duration) -> io::Result<Outcome> {
    let corpus = read_corpus(&options.corpus.join(target.name))?;
    let started = Instant::now();
    let mut outcome = Outcome {
        target: target.name,
        replayed: corpus.len(),
        executions: 0,
        time: Duration::ZERO,
        broken: Vec::new(),
    };
    for input in &corpus {
        outcome.run(target, input, options)?;
    }
    // Each target has its own random sequence, so that running it alone reproduces a full run.
    let salt = target.name.bytes().fold(0, |sum: u64, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(byte))
    });
    let mut rng = Rng::new(options.seed ^ salt);
    while started.elapsed() < share && outcome.broken.is_empty() {
        let mut input = if corpus.is_empty() {
            Vec::new()
        } else {
            rng.pick(&corpus).clone()
        };
        let other = corpus.get(rng.below(corpus.len() as u64 + 1) as usize);
        mutate(
            &mut input,
            other.map_or(&[], Vec::as_slice),
            target.dictionary,
            &mut rng,
        );
        outcome.run(target, &input, options)?;
    }
    outcome.time = started.elapsed();
    Ok(outcome)
}

impl Outcome {
    fn run(&mut self, target: &Target, input: &[u8], options: &Options) -> io::Result<()> {
        self.executions += 1;
        if let Err(broken) = execute(target, input) {
            fs::create_dir_all(&options.crashes)?;
            let name = format!("{}-{:016x}", target.name, fingerprint(input));
            let path = options.crashes.join(name);
            fs::write(&path, input)?;
            self.broken.push(FuzzFailure {
                input: path,
                broken,
            });
        }
        Ok(())
    }
}

/// Returns a hash that identifies an input in file names (FNV-1a).
fn fingerprint(input: &[u8]) -> u64 {
    input.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Reads the inputs of one target, sorted by file name.
pub(crate) fn read_corpus(dir: &Path) -> io::Result<Vec<Vec<u8>>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort_unstable();
    paths.into_iter().map(fs::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TARGETS;

    fn corpus() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
    }

    #[test]
    fn every_input_of_every_corpus_passes() {
        let crashes = pegel_testkit::TempDir::new();
        let options = Options {
            time: Duration::ZERO,
            seed: 1,
            corpus: corpus(),
            crashes: crashes.join("crashes"),
        };
        let targets: Vec<&Target> = TARGETS.iter().collect();
        let mut broken = Vec::new();
        fuzz(&targets, &options, |outcome| {
            assert!(outcome.replayed > 0, "{} has no corpus", outcome.target);
            broken.extend(outcome.broken.iter().map(|finding| format!("{finding:?}")));
        })
        .expect("files");
        assert_eq!(broken, [""; 0]);
    }

    #[test]
    fn every_corpus_belongs_to_a_target() {
        for entry in fs::read_dir(corpus()).expect("there") {
            let name = entry.expect("readable").file_name();
            assert!(
                TARGETS.iter().any(|target| name == target.name),
                "{name:?} is no target"
            );
        }
    }

    #[test]
    fn what_breaks_is_found_and_kept_and_one_seed_finds_it_again() {
        static FRAGILE: Target = Target {
            name: "fragile",
            run: |input| assert!(!input.contains(&b'7'), "a seven"),
            dictionary: &[b"7"],
            seeds: Vec::new,
        };
        let dir = pegel_testkit::TempDir::new();
        let options = Options {
            time: Duration::from_secs(20),
            seed: 1,
            corpus: dir.join("corpus"),
            crashes: dir.join("crashes"),
        };
        let mut executions = Vec::new();
        for _ in 0..2 {
            let is_whole = fuzz(&[&FRAGILE], &options, |outcome| {
                let [finding] = &outcome.broken[..] else {
                    panic!("{outcome:?}");
                };
                assert_eq!(finding.broken, Broken::Panic("a seven".to_owned()));
                let kept = fs::read(&finding.input).expect("kept");
                assert!(kept.contains(&b'7'));
                executions.push((outcome.executions, kept));
            });
            assert!(!is_whole.expect("files"));
        }
        assert_eq!(executions[0], executions[1]);
    }
}
