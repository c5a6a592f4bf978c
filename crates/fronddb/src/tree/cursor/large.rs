//! Large values that a cursor loads, and which of them stay in the cache: as blocks of messages do, those of a long walk only while there is room.

use crate::base::Result;
use crate::cache::Priority;
use crate::tree::{BeTree, Wanted};

/// A walk that has loaded so many bytes is a long one.
const LONG_BYTES: usize = 4 << 20;

/// Those that a cursor has loaded since it was positioned by a key or an end.
#[derive(Debug, Default)]
pub(super) struct LargeValues {
    bytes: usize,
}

impl LargeValues {
    /// How the next one stays.
    pub(super) fn priority(&self, tree: &BeTree, fill_cache: bool) -> Option<Priority> {
        let is_long = self.bytes >= LONG_BYTES;
        let stays = fill_cache && !(is_long && tree.env().cache.is_full());
        stays.then_some(if is_long { Priority::Low } else { Priority::Normal })
    }

    /// What is wanted of the one that `reference` stands for.
    ///
    /// # Errors
    /// As [`BeTree::load_blob`].
    pub(super) fn load(
        &mut self,
        tree: &BeTree,
        key: &[u8],
        reference: &[u8],
        wanted: Wanted,
        fill_cache: bool,
    ) -> Result<Vec<u8>> {
        let value = tree.load_blob(key, reference, wanted, self.priority(tree, fill_cache))?;
        self.bytes = self.bytes.saturating_add(value.len());
        Ok(value)
    }
}
