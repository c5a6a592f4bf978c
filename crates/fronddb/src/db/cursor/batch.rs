//! For who takes many rows at a time: steps that look at nothing, and values that stay while the cursor goes on.

use super::{At, Cursor};

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
}
