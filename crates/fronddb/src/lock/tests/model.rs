//! One thread, random attempts, against a list of held intervals.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Point(u64, u16, Mode),
    Range(u64, u16, u16, Mode),
    Unlock(u64, u16),
    Lower(u64, u16),
    End(u64),
    /// Keeps its exclusive locks, or points at the even keys in them.
    Keep(u64, bool),
    Sweep,
    Coalesce,
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Shared), Just(Exclusive)]
}

fn step() -> impl Strategy<Value = Step> {
    let (owner, key) = (1u64..5, 0u16..40);
    prop_oneof![
        8 => (owner.clone(), key.clone(), mode()).prop_map(|(owner, key, mode)| Step::Point(owner, key, mode)),
        3 => (owner.clone(), key.clone(), 1u16..12, mode()).prop_map(|(owner, low, length, mode)| Step::Range(owner, low, low + length, mode)),
        2 => (owner.clone(), key.clone()).prop_map(|(owner, key)| Step::Unlock(owner, key)),
        2 => (owner.clone(), key).prop_map(|(owner, key)| Step::Lower(owner, key)),
        1 => owner.clone().prop_map(Step::End),
        1 => (owner, any::<bool>()).prop_map(|(owner, whole)| Step::Keep(owner, whole)),
        1 => Just(Step::Sweep),
        1 => Just(Step::Coalesce),
    ]
}

/// Half-open intervals of half keys, so that a point has a width.
#[derive(Debug, Default)]
struct Model(Vec<(u64, u16, u16, Mode)>);

impl Model {
    fn conflicts(&self, owner: u64, low: u16, high: u16, mode: Mode) -> bool {
        self.0
            .iter()
            .any(|(other, l, h, m)| *other != owner && *l < high && low < *h && (*m == Exclusive || mode == Exclusive))
    }
}

fn bytes(key: u16) -> [u8; 2] {
    key.to_be_bytes()
}

proptest! {
    #[test]
    fn attempts_succeed_exactly_when_nothing_conflicts(steps in prop::collection::vec(step(), 1..200), coalescing: bool) {
        let table = table();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Point(owner, key, mode) => {
                    let locker = table.locker(TxnId(owner));
                    if coalescing {
                        // So that it counts as an owner of many locks.
                        locker.owner.weight.store(1 << 20, Ordering::Relaxed);
                    }
                    let conflict = model.conflicts(owner, key * 2, key * 2 + 1, mode);
                    match locker.try_lock(TREE, &bytes(key), mode)? {
                        Attempt::Granted(granted) => {
                            prop_assert!(!conflict, "{owner} {key} {mode:?} {:?}", model.0);
                            let had = model.0.iter().any(|(o, l, h, m)| *o == owner && *l <= key * 2 && key * 2 < *h && *m >= mode);
                            prop_assert!(coalescing || had == (granted == Granted::Already));
                            model.0.push((owner, key * 2, key * 2 + 1, mode));
                        }
                        Attempt::Busy => prop_assert!(conflict || coalescing),
                    }
                }
                Step::Range(owner, low, high, mode) => {
                    let conflict = model.conflicts(owner, low * 2, high * 2, mode);
                    match table.locker(TxnId(owner)).try_lock_range(TREE, &bytes(low), &bytes(high), mode)? {
                        Attempt::Granted(_) => {
                            prop_assert!(!conflict);
                            model.0.push((owner, low * 2, high * 2, mode));
                        }
                        Attempt::Busy => prop_assert!(conflict || coalescing),
                    }
                }
                Step::Unlock(owner, key) if !coalescing => {
                    table.locker(TxnId(owner)).unlock(TREE, &bytes(key));
                    model.0.retain(|(o, l, h, _)| (*o, *l, *h) != (owner, key * 2, key * 2 + 1));
                }
                Step::Lower(owner, key) if !coalescing => {
                    table.locker(TxnId(owner)).lower(TREE, &bytes(key));
                    let point = (owner, key * 2, key * 2 + 1);
                    for held in model.0.iter_mut().filter(|(o, l, h, _)| (*o, *l, *h) == point) {
                        held.3 = Shared;
                    }
                }
                Step::Unlock(..) | Step::Lower(..) => {}
                Step::End(owner) => {
                    table.release_all(TxnId(owner));
                    model.0.retain(|(other, ..)| *other != owner);
                }
                Step::Keep(owner, whole) => {
                    let exclusive = table.export(TxnId(owner)).into_iter().filter(|lock| lock.mode == Exclusive);
                    let exclusive: Vec<HeldLock> = exclusive.collect();
                    let covers = |lock: &HeldLock, key: &[u8]| match &lock.high {
                        None => lock.low == key,
                        Some(high) => &lock.low[..] <= key && (key < &high[..] || high.is_empty()),
                    };
                    let even = (0u16..52).step_by(2).filter(|key| exclusive.iter().any(|lock| covers(lock, &bytes(*key))));
                    let even: Vec<u16> = even.collect();
                    let point = |key: &u16| HeldLock { tree: TREE, low: bytes(*key).to_vec(), high: None, mode: Exclusive };
                    let points: Vec<HeldLock> = even.iter().map(point).collect();
                    let kept = table.locker(TxnId(owner)).keep_only(if whole { &exclusive } else { &points });
                    model.0.retain(|(other, _, _, mode)| *other != owner || (whole && *mode == Exclusive));
                    if !whole {
                        model.0.extend(even.iter().map(|key| (owner, key * 2, key * 2 + 1, Exclusive)));
                        let mut exported = kept.export();
                        exported.retain(|lock| lock.high.is_none());
                        prop_assert!(coalescing || exported == points, "{:?} {:?}", exported, points);
                    }
                }
                Step::Sweep => drop(table.sweep_step(3)),
                Step::Coalesce if coalescing => {
                    table.0.coalesce_step();
                }
                Step::Coalesce => {}
            }
        }
        for owner in 1..5 {
            let exported = table.export(TxnId(owner));
            for (_, low, _, mode) in model.0.iter().filter(|(other, ..)| *other == owner) {
                let key = bytes(low / 2).to_vec();
                let held = exported.iter().any(|lock| lock.mode >= *mode && match &lock.high {
                    None => lock.low == key,
                    Some(high) => lock.low <= key && (key < *high || high.is_empty()),
                });
                prop_assert!(held, "{owner} {low} {exported:?}");
            }
            table.release_all(TxnId(owner));
        }
        sweep_all(&table);
        prop_assert_eq!((table.stats().points, table.stats().ranges), (0, 0));
    }
}
