//! Which of the unsynced changes survive a crash.
//!
//! Every change of a disk has a number, its *moment*. A [`Draw`] answers for each moment (and, for data, each sector)
//! whether the change reached the medium. Different bugs hide from different draws, so there are
//! several modes: a missing sync shows best when whole writes vanish or overtake each other, a missing
//! checksum when sectors tear, a missing undo when everything survives.

use crate::base::random::mix;

/// The kinds of crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashMode {
    /// Nothing unsynced survives.
    Lost,
    /// Everything survives, as when only the process ends.
    Kept,
    /// Everything up to a moment survives, and that last write is torn.
    Cut,
    /// Each write survives whole or not at all, whatever their order.
    Reordered,
    /// Each sector of each write survives or not.
    Torn,
}

impl CrashMode {
    /// All kinds.
    pub const ALL: [CrashMode; 5] =
        [CrashMode::Lost, CrashMode::Kept, CrashMode::Cut, CrashMode::Reordered, CrashMode::Torn];

    pub(super) fn from_seed(seed: u64) -> CrashMode {
        match mix(seed ^ 0x5eed) % 10 {
            0 => CrashMode::Lost,
            1 => CrashMode::Kept,
            2..=4 => CrashMode::Cut,
            5..=7 => CrashMode::Reordered,
            _ => CrashMode::Torn,
        }
    }
}

/// The outcome of one crash.
#[derive(Debug)]
pub(super) struct Draw {
    mode: CrashMode,
    seed: u64,
    cut: u64,
    /// Of 256 changes, how many survive in the modes that toss coins.
    chance: u64,
}

impl Draw {
    /// For changes with moments from `first` up to and excluding `last`.
    pub(super) fn new(mode: CrashMode, seed: u64, first: u64, last: u64) -> Draw {
        let seed = mix(seed);
        let cut = first + mix(seed ^ 1) % (last.saturating_sub(first) + 1);
        let chance = [16, 64, 128, 192, 240][(mix(seed ^ 2) % 5) as usize];
        Draw { mode, seed, cut, chance }
    }

    fn coin(&self, what: u64) -> bool {
        mix(self.seed ^ mix(what)) % 256 < self.chance
    }

    /// True when the change of names at `moment` is on the medium.
    pub(super) fn name_survives(&self, moment: u64) -> bool {
        match self.mode {
            CrashMode::Lost => false,
            CrashMode::Kept => true,
            CrashMode::Cut => moment < self.cut,
            CrashMode::Reordered | CrashMode::Torn => self.coin(moment),
        }
    }

    /// True when what the write at `moment` put into a sector is on the medium; `place` names file and sector.
    pub(super) fn sector_survives(&self, moment: u64, place: u64) -> bool {
        match self.mode {
            CrashMode::Cut if moment == self.cut => self.coin(mix(place)),
            CrashMode::Torn => self.coin(moment ^ mix(place)),
            _ => self.name_survives(moment),
        }
    }
}
