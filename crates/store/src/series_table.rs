//! How series are written in the log and in blocks: the family in full where it changes, then labels.
//!
//! ```text
//! name · kind u8 · unit · level u8 · help · labels text      a family that differs from the one before
//! "" · labels text                                          the same family again
//! ```

use std::sync::Arc;

use pegel_metric::{Family, Kind, Series};

use crate::codec::Corrupt;
use crate::codec::bytes::{Reader, put_str};

/// Writes series one after the other; each family once per stretch.
#[derive(Debug, Default)]
pub(crate) struct SeriesWriter {
    family: Option<Arc<Family>>,
}

impl SeriesWriter {
    pub fn put(&mut self, series: &Series, out: &mut Vec<u8>) {
        let family = series.family();
        if self
            .family
            .as_ref()
            .is_some_and(|last| Arc::ptr_eq(last, family) || last == family)
        {
            put_str(out, "");
        } else {
            put_str(out, &family.name);
            out.push(family.kind as u8);
            put_str(out, &family.unit);
            out.push(family.level);
            put_str(out, &family.help);
            self.family = Some(family.clone());
        }
        put_str(out, series.labels_text());
    }
}

#[derive(Debug, Default)]
pub(crate) struct SeriesReader {
    family: Option<Arc<Family>>,
}

impl SeriesReader {
    pub fn take(&mut self, reader: &mut Reader<'_>) -> Result<Arc<Series>, Corrupt> {
        let name = reader.str()?;
        if !name.is_empty() {
            let kind = *Kind::ALL
                .get(usize::from(reader.u8()?))
                .ok_or(Corrupt("an unknown kind"))?;
            let unit = reader.str()?.to_owned().into();
            let level = reader.u8()?;
            let help = reader.str()?.to_owned().into();
            self.family = Some(Arc::new(Family {
                name: name.to_owned().into(),
                kind,
                help,
                unit,
                level,
            }));
        }
        let family = self
            .family
            .clone()
            .ok_or(Corrupt("a series without a family"))?;
        let text = format!("{}{}", family.name, reader.str()?);
        let series = Series::parse(&text, |_| family).map_err(|_| Corrupt("not a series"))?;
        Ok(Arc::new(series))
    }
}
