//! Steps of one transaction, as intervals: adding and asking take time logarithmic in their number, since a transaction may undo any
//! number of statements.

use std::collections::BTreeMap;

/// Disjoint intervals of steps that do not touch: the last step of each by its first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Steps(BTreeMap<u32, u32>);

impl Steps {
    /// Adds `from..=to`.
    pub(super) fn add(&mut self, from: u32, to: u32) {
        let (mut from, mut to) = (from, to);
        let before = self.0.range(..=from).next_back().filter(|(_, last)| last.saturating_add(1) >= from);
        if let Some((first, last)) = before {
            (from, to) = (*first, to.max(*last));
        }
        while let Some((first, last)) = self.0.range(from..=to.saturating_add(1)).next().map(|(a, b)| (*a, *b)) {
            to = to.max(last);
            self.0.remove(&first);
        }
        self.0.insert(from, to);
    }

    pub(super) fn contains(&self, step: u32) -> bool {
        self.0.range(..=step).next_back().is_some_and(|(_, last)| step <= *last)
    }

    /// How many intervals.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The intervals, ascending: first and last step.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        self.0.iter().map(|(first, last)| (*first, *last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn intervals_are_a_set(adds in prop::collection::vec((0u32..50, 0u32..6), 1..20), high in any::<bool>()) {
            let base = if high { u32::MAX - 55 } else { 0 };
            let mut steps = Steps::default();
            let mut model = BTreeSet::new();
            for (from, length) in adds {
                let (from, to) = (base + from, base + from + length);
                steps.add(from, to);
                model.extend(from..=to);
                let intervals: Vec<_> = steps.iter().collect();
                prop_assert!(intervals.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0), "{intervals:?}");
                prop_assert_eq!(steps.len(), intervals.len());
                let set: BTreeSet<u32> = intervals.iter().flat_map(|(from, to)| *from..=*to).collect();
                prop_assert_eq!(&set, &model);
                prop_assert!((base..=base + 55).all(|step| steps.contains(step) == model.contains(&step)));
            }
        }
    }
}
