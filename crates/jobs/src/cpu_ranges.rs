//! A set of CPUs, in the form in which the kernel writes it: `0-3,8`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest accepted CPU number; kernels support fewer.
const CPU_MAX: u32 = 1 << 20;

/// Sorted, disjoint ranges of CPU numbers; both ends are included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuRanges(Box<[(u32, u32)]>);

impl CpuRanges {
    /// Parses a list such as `0-3,8`; `None` if it is malformed or empty.
    pub fn parse(list: &str) -> Option<CpuRanges> {
        let mut ranges = Vec::new();
        for part in list.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let range: (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if range.0 > range.1 || range.1 > CPU_MAX {
                return None;
            }
            ranges.push(range);
        }
        Some(CpuRanges::of(ranges))
    }

    fn of(mut ranges: Vec<(u32, u32)>) -> CpuRanges {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        CpuRanges(merged.into())
    }

    /// Returns the CPUs of either set.
    pub fn union(&self, other: &CpuRanges) -> CpuRanges {
        CpuRanges::of(self.0.iter().chain(&other.0).copied().collect())
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.0
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&cpu))
    }

    /// Returns the number of CPUs.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }
}

impl fmt::Display for CpuRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (first, last)) in self.0.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for CpuRanges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuRanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CpuRanges, D::Error> {
        let text = String::deserialize(deserializer)?;
        CpuRanges::parse(&text).ok_or_else(|| serde::de::Error::custom("not a list of CPUs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sorted_and_merged() {
        let cpus = CpuRanges::parse("8,0-3,4\n").expect("a list");
        assert_eq!(cpus.to_string(), "0-4,8");
        assert_eq!(cpus.count(), 6);
        assert!(cpus.contains(4) && cpus.contains(8) && !cpus.contains(5));
        let more = cpus.union(&CpuRanges::parse("5-7,16").expect("a list"));
        assert_eq!(more.to_string(), "0-8,16");
    }

    #[test]
    fn malformed_lists_are_refused() {
        for bad in ["", "a", "3-1", "1,", "0-4294967295", "-1"] {
            assert_eq!(CpuRanges::parse(bad), None, "{bad}");
        }
    }
}
