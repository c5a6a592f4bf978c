//! Which chunks of states nobody needs any more, and when each is looked at. Pure bookkeeping.
//!
//! ```text
//! an id is undecided ─► decided ─┬─► every snapshot sees its newest commit ───────────────────► goes
//!                                └─► its memtables are read no more, and no run lists an id ──► goes
//! ```
//!
//! The second way is for what comes behind an old snapshot. A flush writes the number of a commit beside each message of a decided writer,
//! so only messages in memtables, and those of writers that a run lists as unresolved, are a reason to ask for it
//! ([`super::backlog`]). So the chunks that are there are about as many as level 0 needs, however long a snapshot stays.
//!
//! - Q1: all messages of a chunk's ids are in memtables from the one that was active when the chunk was added to the one that was active
//!   after its last id was seen to be decided; in runs that list their writer; or carry a number of their own.
//! - Q2: what was no longer to be found in any memtable or listed by any run never is again: runs are made of memtables and of other
//!   runs, which are there until their outputs are.
//!
//! Undecided chunks are looked at each time, at their first undecided id; they are hardly more than transactions are open. Of the decided
//! ones only those are whose commit or whose memtables have come.

use std::collections::{BTreeMap, BTreeSet};

/// What a look at a chunk finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// The id at this place is undecided, and none before it.
    Undecided(usize),
    /// All are decided; the newest commit, 0 if there is none.
    Decided(u64),
}

#[derive(Debug)]
struct Undecided {
    memtable_min: u64,
    /// No id before this place is undecided.
    from: usize,
}

#[derive(Debug)]
struct Decided {
    newest: u64,
    memtable_min: u64,
    memtable_max: u64,
}

/// All chunks, by number.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    undecided: BTreeMap<u64, Undecided>,
    decided: BTreeMap<u64, Decided>,
    /// The decided ones by their newest commit, and by the newest memtable that may hold a message of theirs.
    by_commit: BTreeSet<(u64, u64)>,
    by_memtable: BTreeSet<(u64, u64)>,
    /// The memtable that was active at the last look: no newer one was before.
    active: u64,
}

impl Waiting {
    /// A chunk that is there from now on.
    pub(super) fn add(&mut self, number: u64) {
        self.undecided.insert(number, Undecided { memtable_min: self.active, from: 0 });
    }

    /// Takes out the chunks that nobody needs any more, ascending. `look` says of a chunk what there is from a place on. `memtables`,
    /// asked after that, are those that somebody may still read, ascending, the active one last. `is_listed` says whether a run lists one
    /// of a chunk's ids.
    pub(super) fn take(
        &mut self,
        horizon: u64,
        look: impl Fn(u64, usize) -> Look,
        memtables: impl FnOnce() -> Vec<u64>,
        is_listed: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let decided = self.look(look);
        let memtables = memtables();
        self.active = memtables.last().copied().unwrap_or(self.active);
        for (number, newest, memtable_min) in decided {
            self.by_commit.insert((newest, number));
            self.by_memtable.insert((self.active, number));
            self.decided.insert(number, Decided { newest, memtable_min, memtable_max: self.active });
        }
        let seen = self.by_commit.range(..(horizon.saturating_add(1), 0)).map(|(_, number)| *number);
        let unread = self.unread(&memtables).filter(|number| !is_listed(*number));
        let taken: BTreeSet<u64> = seen.chain(unread).collect();
        taken.iter().for_each(|number| self.remove(*number));
        taken.into_iter().collect()
    }

    /// Those that are decided now: number, newest commit, oldest memtable.
    fn look(&mut self, look: impl Fn(u64, usize) -> Look) -> Vec<(u64, u64, u64)> {
        let mut decided = Vec::new();
        self.undecided.retain(|number, chunk| match look(*number, chunk.from) {
            Look::Undecided(at) => {
                chunk.from = at;
                true
            }
            Look::Decided(newest) => {
                decided.push((*number, newest, chunk.memtable_min));
                false
            }
        });
        decided
    }

    /// The decided ones none of whose memtables is among these.
    fn unread<'a>(&'a self, memtables: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
        // Between two that are read, and before the first.
        let before = std::iter::once(0).chain(memtables.iter().map(|memtable| memtable + 1));
        let gaps = before.zip(memtables).filter(|(from, memtable)| *from < **memtable);
        gaps.flat_map(move |(from, memtable)| {
            let between = self.by_memtable.range((from, 0)..(*memtable, 0)).map(|(_, number)| *number);
            between.filter(move |number| self.decided.get(number).is_some_and(|chunk| chunk.memtable_min >= from))
        })
    }

    fn remove(&mut self, number: u64) {
        if let Some(Decided { newest, memtable_max, .. }) = self.decided.remove(&number) {
            self.by_commit.remove(&(newest, number));
            self.by_memtable.remove(&(memtable_max, number));
        }
    }

    /// How many chunks [`Waiting::take`] would look at for this horizon alone.
    #[cfg(test)]
    pub(super) fn due(&self, horizon: u64) -> usize {
        self.undecided.len() + self.by_commit.range(..(horizon.saturating_add(1), 0)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [u64; 0] = [];

    /// What is looked at is decided at this commit.
    fn take(waiting: &mut Waiting, newest: Option<u64>, horizon: u64, memtables: &[u64], listed: &[u64]) -> Vec<u64> {
        let look = |_, _| newest.map_or(Look::Undecided(0), Look::Decided);
        waiting.take(horizon, look, || memtables.to_vec(), |number| listed.contains(&number))
    }

    #[test]
    fn a_chunk_goes_when_its_commits_are_seen_or_none_of_its_memtables_is_read_and_no_run_lists_it() {
        let mut waiting = Waiting::default();
        assert_eq!(take(&mut waiting, None, 0, &[3], &[]), NONE);
        [1, 2].into_iter().for_each(|number| waiting.add(number));
        assert_eq!(take(&mut waiting, None, 9, &[3, 5], &[]), NONE, "undecided");
        assert_eq!(take(&mut waiting, Some(7), 6, &[3, 5], &[]), NONE);
        // They may lie in memtables 3 to 5.
        for read in [&[3, 6][..], &[4, 6], &[5, 6], &[2, 3, 8], &[2, 5, 8]] {
            assert_eq!(take(&mut waiting, None, 6, read, &[]), NONE, "{read:?}");
        }
        assert_eq!(take(&mut waiting, None, 6, &[2, 6, 8], &[1]), [2], "a run lists the other one");
        waiting.add(3);
        assert_eq!(take(&mut waiting, Some(8), 7, &[8], &[1]), [1], "its commit is seen");
        assert_eq!(take(&mut waiting, None, 8, &[8], &[]), [3]);
        assert!(waiting.undecided.is_empty() && waiting.decided.is_empty());
        assert!(waiting.by_commit.is_empty() && waiting.by_memtable.is_empty());
    }

    #[test]
    fn a_chunk_stays_while_its_memtable_is_active_or_nothing_is_known() {
        let mut waiting = Waiting::default();
        waiting.add(1);
        assert_eq!(take(&mut waiting, Some(7), 0, &[4], &[]), NONE);
        assert_eq!(take(&mut waiting, None, 0, &[], &[]), NONE, "nothing is known of memtables");
        assert_eq!(take(&mut waiting, None, 0, &[4], &[]), NONE);
        assert_eq!(take(&mut waiting, None, 0, &[5], &[]), [1]);
    }
}
