//! Which region has room: a tournament tree over an upper bound of each region's longest free run.
//!
//! Finding the lowest region that may hold an extent, and changing a bound, take a step per doubling of
//! the number of regions: 14 for a file of 1 TiB.

/// Bounds per region; the lowest region with a sufficient one is found in logarithmic time.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// A complete binary tree: leaf `i` is at `leaves + i`, an inner place holds the higher of its two children.
    bounds: Vec<u32>,
    leaves: usize,
}

impl Room {
    #[cfg(test)]
    pub(super) fn get(&self, region: usize) -> u32 {
        if region < self.leaves { self.bounds[self.leaves + region] } else { 0 }
    }

    pub(super) fn set(&mut self, region: usize, bound: u32) {
        if region >= self.leaves {
            let leaves = (region + 1).next_power_of_two();
            let mut grown = vec![0; leaves];
            grown.extend_from_slice(&self.bounds[self.leaves.min(self.bounds.len())..]);
            grown.resize(2 * leaves, 0);
            for at in (1..leaves).rev() {
                grown[at] = grown[2 * at].max(grown[2 * at + 1]);
            }
            *self = Room { bounds: grown, leaves };
        }
        let mut at = self.leaves + region;
        self.bounds[at] = bound;
        while at > 1 {
            at /= 2;
            let higher = self.bounds[2 * at].max(self.bounds[2 * at + 1]);
            if self.bounds[at] == higher {
                break;
            }
            self.bounds[at] = higher;
        }
    }

    /// The lowest region whose bound is at least `pages`.
    pub(super) fn find(&self, pages: u32) -> Option<usize> {
        if *self.bounds.get(1)? < pages {
            return None;
        }
        let mut at = 1;
        while at < self.leaves {
            at = if self.bounds[2 * at] >= pages { 2 * at } else { 2 * at + 1 };
        }
        Some(at - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_finds_what_a_scan_finds(changes in proptest::collection::vec((0..70usize, 0..9u32), 0..200), want in 1..9u32) {
            let (mut room, mut model) = (Room::default(), vec![0; 70]);
            for (region, bound) in changes {
                room.set(region, bound);
                model[region] = bound;
                prop_assert_eq!(room.find(want), model.iter().position(|bound| *bound >= want));
            }
            for (region, bound) in model.iter().enumerate() {
                prop_assert_eq!(room.get(region), *bound);
            }
        }
    }
}
