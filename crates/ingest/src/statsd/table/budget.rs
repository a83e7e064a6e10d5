/// What the buckets of timers and the members of sets may take together.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
}

impl Budget {
    pub fn new(bytes: usize) -> Budget {
        Budget { left: bytes }
    }

    #[must_use]
    pub fn take(&mut self, bytes: usize) -> bool {
        let is_there = bytes <= self.left;
        if is_there {
            self.left -= bytes;
        }
        is_there
    }

    pub fn give_back(&mut self, bytes: usize) {
        self.left += bytes;
    }
}
