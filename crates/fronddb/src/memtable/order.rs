//! The order of the messages of a leaf, in one word.
//!
//! The low four bits count the messages. Fifteen fields of four bits follow: the first `count` of them name the slots of
//! the messages in order, the others the free slots. So an insert is a rotation of some fields, and a leaf changes by one
//! atomic store (Masstree's permuter).

/// Messages in a leaf.
pub(super) const SLOTS: usize = 15;
/// No messages.
pub(super) const EMPTY: u64 = 0xedcb_a987_6543_2100;

/// Number of messages.
#[inline]
pub(super) fn count(order: u64) -> usize {
    (order & 15) as usize
}

/// The slot of the message of this rank, or of a free one.
#[inline]
pub(super) fn slot(order: u64, rank: usize) -> usize {
    debug_assert!(rank < SLOTS);
    (order >> (4 + 4 * rank)) as usize & 15
}

/// The slot that [`insert`] will take. There must be one.
#[inline]
pub(super) fn free_slot(order: u64) -> usize {
    slot(order, count(order))
}

/// The order after the message in [`free_slot`] is inserted at `rank`.
#[inline]
pub(super) fn insert(order: u64, rank: usize) -> u64 {
    let count = count(order);
    debug_assert!(rank <= count && count < SLOTS);
    let fields = order >> 4;
    let below = (1u64 << (4 * rank)) - 1;
    let upto = (1u64 << (4 * (count + 1))) - 1;
    let moved = (fields & upto & !below) << 4 & upto;
    let fields = fields & !upto | moved | (free_slot(order) as u64) << (4 * rank) | fields & below;
    fields << 4 | (count as u64 + 1)
}

/// The order after all but the first `count` messages are forgotten.
#[inline]
pub(super) fn cut(order: u64, count: usize) -> u64 {
    order & !15 | count as u64
}

/// The order after all messages are forgotten but those of the ranks that `is_kept` is true for.
pub(super) fn keep(order: u64, is_kept: impl Fn(usize) -> bool) -> u64 {
    let count = count(order);
    let (mut fields, mut at, mut kept) = (0, 0, 0);
    for wanted in [true, false] {
        for rank in 0..SLOTS {
            if (rank < count && is_kept(rank)) == wanted {
                fields |= (slot(order, rank) as u64) << (4 * at);
                at += 1;
                kept += u64::from(wanted);
            }
        }
    }
    fields << 4 | kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 3 } else { 256 }, ..ProptestConfig::default() })]
        #[test]
        fn agrees_with_a_vector(operations in prop::collection::vec((0usize..20, 0usize..16), 0..100)) {
            let (mut order, mut model) = (EMPTY, Vec::new());
            for (kind, number) in operations {
                if kind == 0 {
                    let kept = number.min(model.len());
                    order = cut(order, kept);
                    model.truncate(kept);
                } else if kind == 1 {
                    order = keep(order, |rank| rank % 5 == number % 5);
                    let mut rank = 0..;
                    model.retain(|_| rank.next().is_some_and(|rank: usize| rank % 5 == number % 5));
                } else if model.len() < SLOTS {
                    let rank = number % (model.len() + 1);
                    model.insert(rank, free_slot(order));
                    order = insert(order, rank);
                }
                prop_assert_eq!(count(order), model.len());
                let slots: Vec<_> = (0..SLOTS).map(|rank| slot(order, rank)).collect();
                prop_assert_eq!(&slots[..model.len()], &model[..]);
                let mut all = slots.clone();
                all.sort_unstable();
                prop_assert_eq!(all, (0..SLOTS).collect::<Vec<_>>());
            }
        }
    }
}
