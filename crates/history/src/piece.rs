//! Divides a range of time into pieces, each of which is one request. Pieces are aligned to
//! multiples of their length, so that later queries find them in the cache, and their length
//! follows the size of the responses, so that each fits into memory.

use pegel_metric::Millis;
use pegel_query::HistorySeries;

const MINUTE: Millis = 60_000;
const HOUR: Millis = 60 * MINUTE;
const DAY: Millis = 24 * HOUR;

/// The lengths of pieces. Each is a multiple of the one before.
const LENGTHS: [Millis; 5] = [10 * MINUTE, HOUR, 6 * HOUR, DAY, 8 * DAY];

/// The shortest piece, and the precision of lists of series.
pub(crate) const LENGTH_MIN: Millis = LENGTHS[0];

/// The samples of one piece.
#[derive(Debug)]
pub(crate) struct HistoryPiece {
    pub series: Vec<HistorySeries>,
    /// The memory of the series.
    pub bytes: usize,
    /// Why the engine's answer is incomplete.
    pub partial: Option<String>,
}

/// A span of time: `start` is part of it, `end` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub start: Millis,
    pub end: Millis,
}

/// The length of the next piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PieceLength(usize);

impl PieceLength {
    /// Returns the length of the first piece of a range; later ones may be longer.
    pub(crate) fn first(range: Millis) -> PieceLength {
        PieceLength(usize::from(range >= HOUR))
    }

    /// Returns all lengths, the longest first.
    pub(crate) fn all() -> impl Iterator<Item = PieceLength> {
        (0..LENGTHS.len()).rev().map(PieceLength)
    }

    /// Returns the piece that contains the millisecond before `end`.
    pub(crate) fn piece_before(self, end: Millis) -> Span {
        let length = LENGTHS[self.0];
        let start = end.saturating_sub(1).div_euclid(length) * length;
        Span {
            start,
            end: start.saturating_add(length),
        }
    }

    pub(crate) fn shorter(self) -> Option<PieceLength> {
        self.0.checked_sub(1).map(PieceLength)
    }

    /// Returns the length of the piece that ends at `end`, after one of `bytes`: longer if the
    /// longer piece is expected to use less than an eighth of `bytes_max`.
    pub(crate) fn after(self, bytes: usize, bytes_max: usize, end: Millis) -> PieceLength {
        let next = PieceLength(self.0 + 1);
        let Some(length) = LENGTHS.get(next.0) else {
            return self;
        };
        let ratio = usize::try_from(length / LENGTHS[self.0]).unwrap_or(usize::MAX);
        let is_small = bytes.saturating_mul(ratio) < bytes_max / 8;
        match is_small && end.rem_euclid(*length) == 0 {
            true => next,
            false => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_fixed_borders() {
        let short = PieceLength::first(5 * MINUTE);
        let end = 3 * HOUR + 7;
        let piece = short.piece_before(end);
        assert_eq!((piece.start, piece.end), (3 * HOUR, 3 * HOUR + 10 * MINUTE));
        // The millisecond before the end counts.
        assert_eq!(short.piece_before(3 * HOUR).end, 3 * HOUR);
        assert_eq!(PieceLength::first(DAY).piece_before(end).end, 4 * HOUR);
    }

    #[test]
    fn pieces_grow_while_responses_are_small() {
        let mut length = PieceLength::first(30 * DAY);
        let (mut end, mut count) = (40 * DAY + 3 * HOUR, 0);
        while end > 10 * DAY {
            let piece = length.piece_before(end);
            assert!(piece.end <= end || count == 0);
            end = piece.start;
            length = length.after(1_000, 1 << 20, end);
            count += 1;
        }
        assert!(count < 20, "{count} pieces for 30 days");
        // A large response does not make the next one longer.
        let hour = PieceLength::first(DAY);
        assert_eq!(hour.after(1 << 20, 1 << 21, 0), hour);
        assert_eq!(hour.shorter().and_then(PieceLength::shorter), None);
    }
}
