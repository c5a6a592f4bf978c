//! How runs are written, and what the writers of a database share.

use super::layout::Layouts;
use super::scratch::Scratch;
use super::traffic::{Traffic, TreeTraffic};
use crate::base::TreeId;
use crate::base::compress::Codec;
use crate::base::sync::Mutex;
use crate::cache::Cache;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::sync::Arc;

/// Working memory kept for later writers: about as many as write at the same time.
const SCRATCH_KEPT: usize = 4;

/// How the blocks of trees are stored: the codec by tree, which is given, and the layout by tree, which writers
/// find out; and how much they have written for each. Clones share the table; changes count for blocks written afterwards.
#[derive(Debug, Clone)]
pub struct CodecTable(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    codecs: ArcSwap<(Codec, HashMap<TreeId, Codec>)>,
    #[cfg(test)]
    copies: std::sync::atomic::AtomicUsize,
    layouts: Mutex<Layouts>,
    traffic: Traffic,
    #[expect(clippy::vec_box, reason = "a scratch moves between here and its writers; it is large")]
    scratch: Mutex<Vec<Box<Scratch>>>,
}

impl CodecTable {
    /// Every tree has `default`.
    pub fn new(default: Codec) -> CodecTable {
        CodecTable(Arc::new(Shared {
            codecs: ArcSwap::from_pointee((default, HashMap::new())),
            #[cfg(test)]
            copies: std::sync::atomic::AtomicUsize::new(0),
            layouts: Mutex::default(),
            traffic: Traffic::default(),
            scratch: Mutex::default(),
        }))
    }

    /// Codec of `tree`.
    pub fn get(&self, tree: TreeId) -> Codec {
        let table = self.0.codecs.load();
        table.1.get(&tree).copied().unwrap_or(table.0)
    }

    /// Sets the codec of `tree`; `None`: the default again.
    pub fn set(&self, tree: TreeId, codec: Option<Codec>) {
        self.change(|own| {
            match codec {
                Some(codec) => own.insert(tree, codec),
                None => own.remove(&tree),
            };
        });
    }

    /// Sets the codecs of many trees at once, but of those that have one of their own already.
    pub fn add(&self, codecs: &[(TreeId, Codec)]) {
        self.change(|own| {
            for (tree, codec) in codecs {
                own.entry(*tree).or_insert(*codec);
            }
        });
    }

    /// Another table for readers, which costs a copy of what is in it.
    fn change(&self, change: impl Fn(&mut HashMap<TreeId, Codec>)) {
        #[cfg(test)]
        self.0.copies.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.0.codecs.rcu(|table| {
            let mut table = (**table).clone();
            change(&mut table.1);
            table
        });
    }

    /// How often the table was copied.
    #[cfg(test)]
    pub(crate) fn copies(&self) -> usize {
        self.0.copies.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Trees that have a codec of their own.
    #[cfg(test)]
    pub(crate) fn own_count(&self) -> usize {
        self.0.codecs.load().1.len()
    }

    /// Sets the codec of all trees that have none of their own.
    pub fn set_default(&self, codec: Codec) {
        self.0.codecs.rcu(|table| (codec, table.1.clone()));
    }

    pub(super) fn layouts(&self) -> &Mutex<Layouts> {
        &self.0.layouts
    }

    pub(super) fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    /// What has been written for `tree`.
    pub fn written(&self, tree: TreeId) -> TreeTraffic {
        self.0.traffic.get(tree)
    }

    /// A large value of `tree`, of `user_bytes`, has taken `stored` bytes.
    pub fn count_blob(&self, tree: TreeId, user_bytes: u64, stored: u64) {
        self.0.traffic.add(tree, TreeTraffic { user_bytes, bytes_written: stored });
    }

    /// Working memory that an earlier writer left, or new one.
    pub(super) fn take_scratch(&self) -> Box<Scratch> {
        self.0.scratch.lock().pop().unwrap_or_default()
    }

    pub(super) fn put_scratch(&self, scratch: Box<Scratch>) {
        let mut kept = self.0.scratch.lock();
        if kept.len() < SCRATCH_KEPT {
            kept.push(scratch);
        }
    }
}

/// How a run is written.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Target size of entry blocks, in bytes as they lie in memory.
    pub block_bytes: usize,
    /// Bits of filter per distinct key; 0 = no filter.
    pub filter_bits_per_key: u8,
    /// Store sequence numbers with the messages: needed when the run holds range-deletes.
    pub has_seq: bool,
    /// Codecs by tree.
    pub codecs: CodecTable,
    /// Where heirs may go ([`super::heirs`]); its budget counts the working memory.
    pub cache: Arc<Cache>,
}
