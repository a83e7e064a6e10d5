//! What is to be forgotten before its time: the samples before a given moment of all series whose families
//! have a given help text, by which the input that made them is known.
//!
//! They are not shown any more, and retention frees their space. The file `hidden` has one line `MILLIS HELP`
//! for each; it is written beside and renamed, so that it is always whole.

use std::io;
use std::sync::{Arc, RwLock};

use pegel_metric::{Millis, Series};

use crate::files::{read_exact_at, write_all_at};
use crate::options::Options;

const FILE: &str = "hidden";
/// There is one input that forgets. A longer file is not ours.
const BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(crate) struct Hidden(RwLock<Arc<Vec<Veil>>>);

/// Samples before `before` of families with this help are hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Veil {
    help: Box<str>,
    before: Millis,
}

impl Hidden {
    /// What cannot be read hides nothing, and the log says so.
    pub fn load(options: &Options) -> Hidden {
        let path = options.dir.join(FILE);
        let veils = match read(options) {
            Ok(text) => parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Vec::new()),
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "cannot read what is hidden");
                Some(Vec::new())
            }
        };
        let veils = veils.unwrap_or_else(|| {
            tracing::error!(path = %path.display(), "not a list of what is hidden; it is left out");
            Vec::new()
        });
        Hidden(RwLock::new(Arc::new(veils)))
    }

    pub fn all(&self) -> Arc<Vec<Veil>> {
        self.0
            .read()
            .expect("no thread panics while it holds this lock")
            .clone()
    }

    /// Hides more; never less. When this returns it survives a crash.
    pub fn add(&self, options: &Options, help: &str, before: Millis) -> io::Result<()> {
        let mut held = self
            .0
            .write()
            .expect("no thread panics while it holds this lock");
        let mut veils = (**held).clone();
        match veils.iter_mut().find(|veil| *veil.help == *help) {
            Some(veil) if veil.before >= before => return Ok(()),
            Some(veil) => veil.before = before,
            None => veils.push(Veil {
                help: help.into(),
                before,
            }),
        }
        write(options, &veils)?;
        *held = Arc::new(veils);
        Ok(())
    }
}

/// Before which time the samples of a family with this help are hidden.
pub(crate) fn before(veils: &[Veil], help: &str) -> Option<Millis> {
    veils
        .iter()
        .find(|veil| *veil.help == *help)
        .map(|veil| veil.before)
}

pub(crate) fn is_hidden(veils: &[Veil], series: &Series, time: Millis) -> bool {
    before(veils, &series.family().help).is_some_and(|before| time < before)
}

fn read(options: &Options) -> io::Result<String> {
    let file = options.files.open(&options.dir.join(FILE))?;
    let len = file.size()?;
    if len > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let bytes = read_exact_at(&*file, 0, len as usize)?;
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn write(options: &Options, veils: &[Veil]) -> io::Result<()> {
    let (path, beside) = (
        options.dir.join(FILE),
        options.dir.join(format!("{FILE}.tmp")),
    );
    let lines = veils
        .iter()
        .map(|veil| format!("{} {}\n", veil.before, veil.help));
    let file = options.files.create(&beside)?;
    write_all_at(&*file, lines.collect::<String>().as_bytes(), 0)?;
    file.sync()?;
    options.files.rename(&beside, &path)?;
    options.files.sync_dir(&options.dir)
}

fn parse(text: &str) -> Option<Vec<Veil>> {
    let veil = |line: &str| {
        let (before, help) = line.split_once(' ')?;
        Some(Veil {
            help: help.into(),
            before: before.parse().ok()?,
        })
    };
    text.lines().map(veil).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let options =
            Options::new(std::env::temp_dir().join(format!("pegel-hidden-{}", std::process::id())));
        std::fs::create_dir_all(&options.dir).expect("made");
        let hidden = Hidden::load(&options);
        assert!(hidden.all().is_empty());
        hidden.add(&options, "Of one kind.", 5).expect("written");
        hidden.add(&options, "Of another.", 7).expect("written");
        hidden.add(&options, "Of one kind.", 9).expect("written");
        hidden.add(&options, "Of one kind.", 8).expect("no less");
        assert_eq!(before(&hidden.all(), "Of one kind."), Some(9));
        assert_eq!(Hidden::load(&options).all(), hidden.all());
        for broken in ["5", "x y\n", "\u{0}"] {
            std::fs::write(options.dir.join(FILE), broken).expect("written");
            assert!(Hidden::load(&options).all().is_empty(), "{broken:?}");
        }
        std::fs::remove_dir_all(&options.dir).expect("removed");
    }
}
