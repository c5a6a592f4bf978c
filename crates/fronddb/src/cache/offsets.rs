//! The blocks of a shard by offset: what a lookup finds lies where it looks first, on one cache line.
//!
//! Open addressing with linear probing (Knuth, The Art of Computer Programming, vol. 3, 6.4, algorithm L; deletion by algorithm R), up to
//! [five eighths](is_full) full, so that a lookup looks at one or two slots, of which two lie on a cache line. A table of a general kind
//! keeps what tells slots apart elsewhere: another read of memory for each block of rows that is looked up, and most are in no cache of the
//! processor.

use std::hash::Hasher;

use crate::base::hash::NumberHasher;

/// Slots of a table that has any.
const SLOTS_MIN: usize = 16;

#[derive(Debug)]
#[repr(align(32))]
struct Slot<T>(Option<(u64, T)>);

/// A map by offset.
#[derive(Debug)]
pub(super) struct Offsets<T> {
    /// A power of two of them, or none.
    slots: Vec<Slot<T>>,
    count: usize,
}

impl<T> Default for Offsets<T> {
    fn default() -> Offsets<T> {
        Offsets { slots: Vec::new(), count: 0 }
    }
}

fn is_full(count: usize, slots: usize) -> bool {
    count * 8 >= slots * 5
}

impl<T> Offsets<T> {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.0.as_ref().map(|(_, value)| value))
    }

    /// The slot where the search for `offset` begins.
    #[inline]
    fn home(&self, offset: u64) -> usize {
        let mut hasher = NumberHasher::default();
        hasher.write_u64(offset);
        hasher.finish() as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    /// Where `offset` is.
    #[inline]
    fn find(&self, offset: u64) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let mut at = self.home(offset);
        loop {
            match &self.slots[at].0 {
                Some((found, _)) if *found == offset => return Some(at),
                Some(_) => at = self.after(at),
                None => return None,
            }
        }
    }

    #[inline]
    pub(super) fn get(&self, offset: u64) -> Option<&T> {
        self.slots[self.find(offset)?].0.as_ref().map(|(_, value)| value)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, offset: u64) -> Option<&mut T> {
        let at = self.find(offset)?;
        self.slots[at].0.as_mut().map(|(_, value)| value)
    }

    /// Puts it in; what was there goes.
    pub(super) fn insert(&mut self, offset: u64, value: T) {
        if let Some(held) = self.get_mut(offset) {
            *held = value;
            return;
        }
        if is_full(self.count + 1, self.slots.len()) {
            self.grow();
        }
        self.put(offset, value);
        self.count += 1;
    }

    /// Puts in what is not there, where there is room.
    fn put(&mut self, offset: u64, value: T) {
        let mut at = self.home(offset);
        while self.slots[at].0.is_some() {
            at = self.after(at);
        }
        self.slots[at] = Slot(Some((offset, value)));
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(SLOTS_MIN);
        let old = std::mem::replace(&mut self.slots, (0..slots).map(|_| Slot(None)).collect());
        for (offset, value) in old.into_iter().filter_map(|slot| slot.0) {
            self.put(offset, value);
        }
    }

    pub(super) fn remove(&mut self, offset: u64) -> Option<T> {
        let mut hole = self.find(offset)?;
        let (_, value) = self.slots[hole].0.take()?;
        self.count -= 1;
        // What follows without a gap moves up, unless it would come before where its search begins.
        let mut at = self.after(hole);
        while let Some((found, _)) = &self.slots[at].0 {
            let home = self.home(*found);
            let is_between = if hole < at { hole < home && home <= at } else { hole < home || home <= at };
            if !is_between {
                self.slots.swap(hole, at);
                hole = at;
            }
            at = self.after(at);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((0u64..40, 0u8..3), 0..300), spread in prop::sample::select(vec![1u64, 4096, 1 << 32])) {
            let (mut offsets, mut model) = (Offsets::default(), HashMap::new());
            for (number, (offset, what)) in steps.into_iter().enumerate() {
                let offset = offset * spread;
                match what {
                    0 => prop_assert_eq!(offsets.remove(offset), model.remove(&offset)),
                    _ => {
                        offsets.insert(offset, number);
                        model.insert(offset, number);
                    }
                }
                prop_assert_eq!(offsets.len(), model.len());
                prop_assert!(offsets.count == 0 || !is_full(offsets.count, offsets.slots.len()));
                for at in 0..40 {
                    prop_assert_eq!(offsets.get(at * spread), model.get(&(at * spread)));
                    prop_assert_eq!(offsets.get_mut(at * spread), model.get_mut(&(at * spread)));
                }
                let (mut values, mut expected): (Vec<_>, Vec<_>) = (offsets.values().collect(), model.values().collect());
                values.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(values, expected);
            }
        }
    }

    #[test]
    fn offsets_of_blocks_lie_near_where_their_search_begins() {
        let mut offsets = Offsets::default();
        // As blocks of some kilobytes lie in the data file, of one mebibyte in sixteen.
        for block in 0..20_000u64 {
            offsets.insert(((block / 90 * 16) << 20) + block % 90 * 11_700, ());
        }
        let taken = (0..offsets.slots.len()).filter_map(|at| offsets.slots[at].0.map(|(offset, ())| (at, offset)));
        let steps: usize =
            taken.map(|(at, offset)| at.wrapping_sub(offsets.home(offset)) & (offsets.slots.len() - 1)).sum();
        assert!(steps < 20_000, "more than two slots are looked at, steps={steps}");
    }
}
