//! A vector whose elements are referred to by number; numbers of removed elements are reused.

use std::ops::{Index, IndexMut};

/// Elements by number; numbers are reused.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub(crate) fn add(&mut self, thing: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.slots[at as usize] = Some(thing);
            return at;
        }
        let at = u32::try_from(self.slots.len()).expect("limits.series is far below 2^32");
        self.slots.push(Some(thing));
        at
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<T> {
        let thing = self.slots[at as usize].take();
        if thing.is_some() {
            self.free.push(at);
        }
        thing
    }

    /// One more than the highest number that was ever in use.
    pub(crate) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.slots.get(at as usize)?.as_ref()
    }

    /// Returns the number of the first element for which `is_wanted` holds.
    pub(crate) fn position(&self, is_wanted: impl Fn(&T) -> bool) -> Option<u32> {
        let place = |place: &Option<T>| place.as_ref().is_some_and(&is_wanted);
        self.slots.iter().position(place).map(|at| at as u32)
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// Iterates over all elements and their numbers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let numbered = (0..).zip(&mut self.slots);
        numbered.filter_map(|(at, slot)| Some((at, slot.as_mut()?)))
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        self.slots[at as usize]
            .as_ref()
            .expect("only numbers of present elements are kept")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        self.slots[at as usize]
            .as_mut()
            .expect("only numbers of present elements are kept")
    }
}
