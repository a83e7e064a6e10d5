use std::ops::{Index, IndexMut};

/// Things by number; numbers are used again.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab {
            places: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    pub fn add(&mut self, thing: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.places[at as usize] = Some(thing);
            return at;
        }
        let at = u32::try_from(self.places.len()).expect("limits.series is far below 2^32");
        self.places.push(Some(thing));
        at
    }

    pub fn remove(&mut self, at: u32) -> Option<T> {
        let thing = self.places[at as usize].take();
        if thing.is_some() {
            self.free.push(at);
        }
        thing
    }

    /// One more than the highest number that was ever in use.
    pub fn end(&self) -> u32 {
        self.places.len() as u32
    }

    pub fn get(&self, at: u32) -> Option<&T> {
        self.places.get(at as usize)?.as_ref()
    }

    /// The number of the first thing for which `is_wanted` holds.
    pub fn position(&self, is_wanted: impl Fn(&T) -> bool) -> Option<u32> {
        let place = |place: &Option<T>| place.as_ref().is_some_and(&is_wanted);
        self.places.iter().position(place).map(|at| at as u32)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().flatten()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, at: u32) -> &T {
        self.places[at as usize]
            .as_ref()
            .expect("only numbers of things that are there are kept")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut T {
        self.places[at as usize]
            .as_mut()
            .expect("only numbers of things that are there are kept")
    }
}
