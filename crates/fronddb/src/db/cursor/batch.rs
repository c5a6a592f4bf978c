//! For who takes many rows at a time: steps that look at nothing, and values that stay while the cursor goes on.

use super::{At, Cursor, PREFIX_BYTES};

impl Cursor {
    /// Keeps the value of its row where it lies in memory until [`Cursor::let_go`] or its own end, so that whoever may hold more than
    /// one row at a time need not copy it; false where only a copy will do.
    #[inline]
    pub fn keep_value(&mut self) -> bool {
        match (self.at, &mut self.source) {
            (At::Source, Some(source)) => source.cursor.keep_value(),
            _ => false,
        }
    }

    /// Keeps no value any more ([`Cursor::keep_value`]).
    #[inline]
    pub fn let_go(&mut self) {
        if let Some(source) = &mut self.source {
            source.cursor.let_go();
        }
    }

    /// Goes to the row after this one where that is a step inside of a block; false, and stays, where [`Cursor::next`] has to look.
    /// For who has just moved it, and goes on without a pause.
    #[inline]
    pub fn advance(&mut self) -> bool {
        let (At::Source, Some(source)) = (self.at, &mut self.source) else { return false };
        let done = source.cursor.advance();
        self.steps += u64::from(done);
        done
    }

    /// Shows `take` the rows that follow, up to `most`, as far as they lie in the block of this one and need no look at anything else: each
    /// key in two parts, and its value, which stays as long as that of this row does. Goes to the last one of those before the first
    /// that it refuses; how many those are. For who has just moved it, and goes on without a pause.
    #[inline]
    pub fn pass(&mut self, most: usize, mut take: impl FnMut([&[u8]; 2], &[u8]) -> bool) -> usize {
        let (At::Source, Some(source)) = (self.at, &mut self.source) else { return 0 };
        let keys_only = self.keys_only;
        let passed = source.cursor.pass(most, |common, rest, value| match common.get(PREFIX_BYTES..) {
            Some(common) => take([common, rest], if keys_only { &[] } else { value }),
            // Keys of several trees.
            None => false,
        });
        self.steps += passed as u64;
        passed
    }
}
