//! The late rank: the one with the least time in collectives, while the others wait for it there.

use serde::Serialize;

/// The late rank of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LateRank {
    pub rank: u32,
    pub node: String,
    /// Its seconds in blocking collectives.
    pub seconds: f64,
    /// The median of all ranks.
    pub median: f64,
}

/// The distance from the median must be at least this, in seconds.
const DISTANCE_MIN: f64 = 0.5;
/// And at least this part of the median.
const SHARE_MIN: f64 = 0.2;

/// Returns the rank with the least time in collectives, of rank, node and seconds each, if it is
/// far below the median.
pub fn late_rank(ranks: &[(u32, &str, f64)]) -> Option<LateRank> {
    let mut seconds: Vec<f64> = ranks.iter().map(|(_, _, seconds)| *seconds).collect();
    seconds.sort_by(f64::total_cmp);
    // Of two ranks, the median is the one that waits.
    let median = *seconds.get(seconds.len() / 2)?;
    let (rank, node, least) = ranks.iter().min_by(|a, b| a.2.total_cmp(&b.2))?;
    let is_late = median - least >= DISTANCE_MIN.max(SHARE_MIN * median);
    is_late.then(|| LateRank {
        rank: *rank,
        node: (*node).to_owned(),
        seconds: *least,
        median,
    })
}

impl LateRank {
    /// Describes it: `rank 3 on n2: 0.4 s in collectives, median 12.1 s`.
    pub fn text(&self) -> String {
        let place = match self.node.is_empty() {
            true => String::new(),
            false => format!(" on {}", self.node),
        };
        format!(
            "rank {}{place}: {:.1} s in collectives, median {:.1} s",
            self.rank, self.seconds, self.median
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_that_the_others_wait_for_is_late() {
        let late = late_rank(&[(0, "a", 10.0), (1, "a", 9.8), (2, "b", 0.5), (3, "b", 10.1)]);
        let text = late.expect("one is late").text();
        assert_eq!(text, "rank 2 on b: 0.5 s in collectives, median 10.0 s");
        let pair = late_rank(&[(0, "", 3.0), (1, "", 0.0)]).expect("one is late");
        assert_eq!(pair.text(), "rank 1: 0.0 s in collectives, median 3.0 s");
    }

    #[test]
    fn ranks_that_wait_alike_are_not_late() {
        assert_eq!(late_rank(&[(0, "", 10.0), (1, "", 9.0)]), None);
        assert_eq!(late_rank(&[(0, "", 0.3), (1, "", 0.0)]), None);
        assert_eq!(late_rank(&[(0, "", f64::NAN), (1, "", 0.0)]), None);
        assert_eq!(late_rank(&[(0, "", 5.0)]), None);
        assert_eq!(late_rank(&[]), None);
    }
}
