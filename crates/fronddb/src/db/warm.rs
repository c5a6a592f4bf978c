//! After a restart, "ready" should soon mean "fast": the keys of hot blocks are kept at checkpoints by time and when the
//! database is closed, and after opening these blocks are read again, a few at a time beside the other work of
//! `frond-tick`, as long as the cache has room to spare: a third of the time, and all of it while a processor is idle.
//!
//! All of it is best effort: a list that cannot be written or read is no list.

use std::time::Duration;

use super::engine::Engine;
use crate::format::hot_keys;
use crate::io::{read_file, replace_file};

const HOT_FILE: &str = "hot-keys";
/// Most keys kept: blocks of about a gibibyte, which are read within half a minute, or a third of that.
const KEYS_MAX: usize = 1 << 16;
/// How long one step reads.
const STEP: Duration = Duration::from_millis(10);

impl Engine {
    /// Writes down which blocks are hot.
    pub(crate) fn keep_hot(&self) {
        if self.options.manual_background || self.log.is_none() || self.poison.get().is_some() {
            return;
        }
        let mut keys = Vec::new();
        self.cache.for_each_hot(KEYS_MAX, &mut |block| {
            let mut key = Vec::new();
            block.copy_key(0, &mut key);
            keys.push(key);
        });
        // What was hot before and has not been read again yet.
        keys.extend(self.hot_left.lock().iter().flatten().cloned());
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(KEYS_MAX);
        let _ = replace_file(&*self.storage, &self.directory.join(HOT_FILE), &hot_keys::encode(&keys));
    }

    /// Reads the list of what was hot before the start.
    pub(crate) fn recall_hot(&self) {
        let list = read_file(&*self.storage, &self.directory.join(HOT_FILE)).and_then(|bytes| hot_keys::decode(&bytes));
        let mut left = list.unwrap_or_default();
        // Taken from the end: the lowest keys, the catalog's among them, come first.
        left.reverse();
        *self.hot_left.lock() = Some(left);
    }

    /// Reads some of the blocks that were hot. The list stays in its place until the last of them is read: [`Engine::is_warm`]
    /// looks at it at any moment. True when more are to be read without a rest.
    pub(crate) fn warm_step(&self) -> bool {
        let began = self.clock.micros();
        let until = began + STEP.as_micros() as u64;
        while self.clock.micros() < until {
            let Some(key) = self.next_hot() else { return false };
            if self.tree.warm(&self.tree.version_guard(), &key).is_err() {
                // Whoever needs the block is told what is wrong with it.
                *self.hot_left.lock() = None;
                return false;
            }
        }
        // What this thread takes need not be told: it waits for reads as well, and with one processor a rest is right.
        self.processors.are_idle(began)
    }

    /// The next key to be warmed; without one, the list is done with.
    fn next_hot(&self) -> Option<Vec<u8>> {
        let has_room = self.cache.has_room();
        let mut left = self.hot_left.lock();
        let key = left.as_mut()?.pop().filter(|_| has_room);
        if key.is_none() {
            *left = None;
        }
        key
    }

    /// True when nothing is left to be read again. Who opens for reading only has no thread that would.
    pub(crate) fn is_warm(&self) -> bool {
        self.options.manual_background || self.log.is_none() || (*self.begun.lock() && self.hot_left.lock().is_none())
    }
}
