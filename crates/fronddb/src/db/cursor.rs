//! Cursors: ordered reading, forward and backward, with a transaction's eyes.

use super::options::{LockMode, Wait};
use crate::base::Result;

/// Walks over the visible rows of one tree, between bounds. Made by [`crate::Transaction::cursor`].
///
/// It is at a row or at none ([`Cursor::valid`]); a new one is at none. It sees its own transaction's writes up to
/// its last positioning by key or end ([`Cursor::first`], [`Cursor::last`], [`Cursor::seek`],
/// [`Cursor::seek_for_prev`]); whether it sees later ones while stepping is not defined, and neither is it
/// disturbed by them. It must not be used after its transaction has ended (`Closed`). After an error it is at no row.
#[derive(Debug)]
pub struct Cursor {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Cursor {
    /// Goes to the first row; false when there is none.
    ///
    /// # Errors
    /// As all positioning: `Closed`, `Io`, `Corruption`; with locks also `Deadlock`, `LockTimeout`, `Cancelled`.
    pub fn first(&mut self) -> Result<bool> {
        Err(super::not_built())
    }

    /// Goes to the last row; false when there is none.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    pub fn last(&mut self) -> Result<bool> {
        Err(super::not_built())
    }

    /// Goes to the first row at or after `key`; false when there is none.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    pub fn seek(&mut self, _key: &[u8]) -> Result<bool> {
        Err(super::not_built())
    }

    /// Goes to the last row at or before `key`; false when there is none.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    pub fn seek_for_prev(&mut self, _key: &[u8]) -> Result<bool> {
        Err(super::not_built())
    }

    /// Goes to the row after this one; false when there is none. At no row: as [`Cursor::first`] after
    /// creation, otherwise false.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    #[expect(clippy::should_implement_trait, reason = "a cursor goes both ways and lends its rows; it is no iterator")]
    pub fn next(&mut self) -> Result<bool> {
        Err(super::not_built())
    }

    /// Goes to the row before this one; false when there is none. At no row: as [`Cursor::last`] after
    /// creation, otherwise false.
    ///
    /// # Errors
    /// As [`Cursor::first`].
    pub fn prev(&mut self) -> Result<bool> {
        Err(super::not_built())
    }

    /// True when it is at a row.
    pub fn valid(&self) -> bool {
        false
    }

    /// The key of its row; empty when it is at none.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value of its row; empty when it is at none.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// Locks the row that it is at, and reads it again as it is now; false when it is gone or (with
    /// [`Wait::SkipLocked`]) held by another, and the cursor stays between its neighbours.
    ///
    /// # Errors
    /// `Deadlock`, `LockTimeout`, `Cancelled`, `Conflict`, `Closed`, `Io`, `Corruption`.
    pub fn lock_row(&mut self, _mode: LockMode, _wait: Wait) -> Result<bool> {
        Err(super::not_built())
    }
}
