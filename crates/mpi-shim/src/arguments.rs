//! Typed access to the arguments of a call, according to the rule in the table.

use crate::family::mpi_family;

/// The type of counts: `int` or, in the `_c` functions, `MPI_Count`.
pub(crate) trait Width {
    fn count(word: usize) -> u64;

    /// # Safety
    ///
    /// `at` must point at an array of at least `index + 1` counts.
    // SAFETY: upheld by the caller, see above.
    unsafe fn count_at(at: usize, index: usize) -> u64;
}

/// Counts are `int`.
#[derive(Debug)]
pub(crate) struct Narrow;

/// Counts are `MPI_Count`.
#[derive(Debug)]
pub(crate) struct Wide;

impl Width for Narrow {
    #[inline]
    fn count(word: usize) -> u64 {
        (word as u32 as i32).max(0) as u64
    }

    // SAFETY: upheld by the caller, see `Width::count_at`.
    unsafe fn count_at(at: usize, index: usize) -> u64 {
        // SAFETY: upheld by the caller.
        let count = unsafe { *(at as *const i32).add(index) };
        count.max(0) as u64
    }
}

impl Width for Wide {
    #[inline]
    fn count(word: usize) -> u64 {
        (word as i64).max(0) as u64
    }

    // SAFETY: upheld by the caller, see `Width::count_at`.
    unsafe fn count_at(at: usize, index: usize) -> u64 {
        // SAFETY: upheld by the caller.
        let count = unsafe { *(at as *const i64).add(index) };
        count.max(0) as u64
    }
}

/// The arguments of a call that the library has accepted, so that array arguments are valid arrays.
#[derive(Debug)]
pub(crate) struct Arguments<'a>(&'a [usize]);

impl<'a> Arguments<'a> {
    #[inline(always)]
    pub(crate) fn new(words: &'a [usize]) -> Arguments<'a> {
        Arguments(words)
    }

    #[inline(always)]
    pub(crate) fn word(&self, index: usize) -> usize {
        self.0.get(index).copied().unwrap_or(0)
    }

    pub(crate) fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(0)
    }

    /// Returns an `int` that may be negative, such as a rank.
    #[inline]
    pub(crate) fn int(&self, index: usize) -> i32 {
        self.word(index) as u32 as i32
    }

    #[inline(always)]
    pub(crate) fn count<W: Width>(&self, index: usize) -> u64 {
        W::count(self.word(index))
    }

    /// Returns one count of an array.
    pub(crate) fn count_at<W: Width>(&self, index: usize, element: usize) -> u64 {
        match self.word(index) {
            0 => 0,
            // SAFETY: the library has read the same array, to at least this length.
            at => unsafe { W::count_at(at, element) },
        }
    }

    pub(crate) fn sum<W: Width>(&self, index: usize, length: usize) -> u64 {
        (0..length).fold(0, |sum: u64, element| {
            sum.saturating_add(self.count_at::<W>(index, element))
        })
    }

    /// Returns one handle of an array.
    pub(crate) fn handle_at(&self, index: usize, element: usize) -> usize {
        match self.word(index) {
            0 => 0,
            // SAFETY: the library has read the same array, to at least this length.
            at => unsafe { read_handle(at, element) },
        }
    }
}

/// Reads one handle of an array.
///
/// # Safety
///
/// `at` must point at an array of at least `element + 1` handles.
// SAFETY: upheld by the caller, see above.
pub(crate) unsafe fn read_handle(at: usize, element: usize) -> usize {
    match mpi_family().handle_bytes() {
        // SAFETY: upheld by the caller.
        4 => unsafe { *(at as *const u32).add(element) as usize },
        // SAFETY: as above.
        _ => unsafe { *(at as *const usize).add(element) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_int_is_the_lower_half_of_its_word() {
        assert_eq!(Narrow::count(0xdead_beef_0000_0007), 7);
        assert_eq!(Narrow::count(u64::MAX as usize), 0);
        assert_eq!(Wide::count(0x1_0000_0007), 0x1_0000_0007);
        assert_eq!(Wide::count(-1_isize as usize), 0);
        let words = [usize::MAX, 3];
        assert_eq!(Arguments::new(&words).int(0), -1);
        assert_eq!(Arguments::new(&words).word(2), 0);
    }

    #[test]
    fn counts_of_an_array_are_summed_in_their_width() {
        let narrow = [1_i32, -5, 2, 100];
        let wide = [1_i64 << 40, 2];
        let words = [narrow.as_ptr() as usize, wide.as_ptr() as usize, 0];
        let arguments = Arguments::new(&words);
        assert_eq!(arguments.sum::<Narrow>(0, 3), 3);
        assert_eq!(arguments.sum::<Wide>(1, 2), (1 << 40) + 2);
        assert_eq!(arguments.sum::<Wide>(2, 2), 0);
        assert_eq!(arguments.count_at::<Narrow>(0, 3), 100);
    }
}
