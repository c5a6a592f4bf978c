//! How runs are written.
use crate::base::TreeId;
use crate::base::compress::Codec;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::sync::Arc;

/// Codec by tree. Clones share the table; changes count for blocks written afterwards.
#[derive(Debug, Clone)]
pub struct CodecTable(Arc<ArcSwap<(Codec, HashMap<TreeId, Codec>)>>);

impl CodecTable {
    /// Every tree has `default`.
    pub fn new(default: Codec) -> CodecTable {
        CodecTable(Arc::new(ArcSwap::from_pointee((default, HashMap::new()))))
    }

    /// Codec of `tree`.
    pub fn get(&self, tree: TreeId) -> Codec {
        let table = self.0.load();
        table.1.get(&tree).copied().unwrap_or(table.0)
    }

    /// Sets the codec of `tree`; `None`: the default again.
    pub fn set(&self, tree: TreeId, codec: Option<Codec>) {
        self.0.rcu(|table| {
            let mut table = (**table).clone();
            match codec {
                Some(codec) => table.1.insert(tree, codec),
                None => table.1.remove(&tree),
            };
            table
        });
    }

    /// Sets the codec of all trees that have none of their own.
    pub fn set_default(&self, codec: Codec) {
        self.0.rcu(|table| (codec, table.1.clone()));
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
}
