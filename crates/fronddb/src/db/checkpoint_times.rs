//! How often checkpoints are made, for which causes, and how long they take.
//!
//! A checkpoint begins when its cause is found. One that seals a memtable ends with the publication whose replay begins behind it;
//! one that finds nothing to seal has begun and writes nothing of its own, so it has no time.

use std::collections::VecDeque;

/// Why a checkpoint is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CheckpointCause {
    /// The period is over.
    Time,
    /// Level 0 is full, or the disk.
    Size,
    /// A restart would take longer than the recovery-time target.
    Target,
    /// Somebody asked.
    Request,
}

impl CheckpointCause {
    /// All of them.
    pub const ALL: [CheckpointCause; 4] =
        [CheckpointCause::Time, CheckpointCause::Size, CheckpointCause::Target, CheckpointCause::Request];
}

/// The checkpoints of one cause since opening. See [`crate::Database::checkpoint_summary`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Begun.
    pub count: u64,
    /// Of these, those that had something to write, and are durable. The times below are theirs.
    pub finished: u64,
    /// Time since the last one began, in microseconds; `None` when there was none.
    pub age_micros: Option<u64>,
    /// Time that the last one took, from the seal of a memtable until it was durable in the tree, in microseconds.
    pub last_micros: u64,
    /// Time that the longest took, in microseconds.
    pub max_micros: u64,
    /// Times of all together, in microseconds.
    pub sum_micros: u64,
}

/// A checkpoint under way.
#[derive(Debug)]
struct Open {
    memtable: u64,
    cause: CheckpointCause,
    sealed: u64,
}

/// What [`CheckpointSummary`] is made of. Times are the database's clock, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct CheckpointTimes {
    summaries: [CheckpointSummary; CheckpointCause::ALL.len()],
    begun: [u64; CheckpointCause::ALL.len()],
    open: VecDeque<Open>,
}

impl CheckpointTimes {
    /// One begins.
    pub(crate) fn begin(&mut self, cause: CheckpointCause, now: u64) {
        self.summaries[cause as usize].count += 1;
        self.begun[cause as usize] = now;
    }

    /// It has sealed this memtable, which comes after all that were sealed before.
    pub(crate) fn sealed(&mut self, memtable: u64, cause: CheckpointCause, now: u64) {
        self.open.push_back(Open { memtable, cause, sealed: now });
    }

    /// Memtables below `start` are durable in the tree.
    pub(crate) fn published(&mut self, start: u64, now: u64) {
        while self.open.front().is_some_and(|open| open.memtable < start) {
            let Some(open) = self.open.pop_front() else { break };
            let micros = now.saturating_sub(open.sealed);
            let summary = &mut self.summaries[open.cause as usize];
            summary.finished += 1;
            summary.last_micros = micros;
            summary.max_micros = summary.max_micros.max(micros);
            summary.sum_micros += micros;
        }
    }

    /// Those of a cause.
    pub(crate) fn summary(&self, cause: CheckpointCause, now: u64) -> CheckpointSummary {
        let summary = self.summaries[cause as usize];
        let age = now.saturating_sub(self.begun[cause as usize]);
        CheckpointSummary { age_micros: (summary.count > 0).then_some(age), ..summary }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_takes_from_its_seal_to_its_publication() {
        let mut times = CheckpointTimes::default();
        assert_eq!(times.summary(CheckpointCause::Time, 50), CheckpointSummary::default());
        times.begin(CheckpointCause::Size, 100);
        times.sealed(1_000, CheckpointCause::Size, 110);
        times.begin(CheckpointCause::Time, 120);
        times.sealed(2_000, CheckpointCause::Time, 120);
        times.published(1_000, 130);
        assert_eq!(times.summary(CheckpointCause::Size, 140).finished, 0, "it is still in level 0");
        times.published(2_000, 150);
        times.begin(CheckpointCause::Size, 160);
        times.sealed(3_000, CheckpointCause::Size, 160);
        times.published(3_001, 170);
        let size = CheckpointSummary {
            count: 2,
            finished: 2,
            age_micros: Some(40),
            last_micros: 10,
            max_micros: 40,
            sum_micros: 50,
        };
        assert_eq!(times.summary(CheckpointCause::Size, 200), size);
        let time = CheckpointSummary {
            count: 1,
            finished: 1,
            age_micros: Some(80),
            last_micros: 50,
            max_micros: 50,
            sum_micros: 50,
        };
        assert_eq!(times.summary(CheckpointCause::Time, 200), time);
        times.begin(CheckpointCause::Request, 210);
        times.published(4_000, 220);
        let nothing = CheckpointSummary { count: 1, age_micros: Some(20), ..CheckpointSummary::default() };
        assert_eq!(times.summary(CheckpointCause::Request, 230), nothing, "there was nothing to write");
    }
}
