//! The sizes that shape the tree. Defaults were measured (`docs/decisions/0004-tree-shape.md`); tests use
//! small ones to reach splits and deep trees with little data.

/// Sizes and thresholds of the tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TreeTuning {
    /// Slots above which an internal node splits.
    pub fanout_max: usize,
    /// Stored bytes above which a leaf splits.
    pub leaf_bytes_max: u64,
    /// Runs in a buffer above a leaf that ask for compaction into it.
    pub leaf_runs: usize,
    /// Pending stored bytes, in proportion to the leaf's base, that ask for compaction into it.
    pub leaf_pending_ratio: f32,
    /// Pending stored bytes below which the ratio does not count.
    pub leaf_pending_bytes_min: u64,
    /// Runs in a buffer above a node that ask for a flush.
    pub node_runs: usize,
    /// Stored bytes in a buffer above a node that ask for a flush.
    pub node_buffer_bytes: u64,
    /// Raw bytes of a block of a run.
    pub block_bytes: usize,
    /// Filter bits per key of runs in buffers.
    pub buffer_filter_bits: u8,
    /// Filter bits per key of leaf bases.
    pub base_filter_bits: u8,
    /// What it costs to make one run of several, however small they are, in nanoseconds: nodes are saved again, and space is given back.
    pub gather_nanos: u64,
}

impl Default for TreeTuning {
    fn default() -> TreeTuning {
        TreeTuning {
            fanout_max: 24,
            leaf_bytes_max: 2 << 20,
            leaf_runs: 16,
            leaf_pending_ratio: 0.8,
            leaf_pending_bytes_min: 256 << 10,
            node_runs: 8,
            node_buffer_bytes: 16 << 20,
            block_bytes: 16 << 10,
            buffer_filter_bits: 14,
            base_filter_bits: 10,
            gather_nanos: 1_000_000,
        }
    }
}

impl TreeTuning {
    /// Tiny nodes, leaves and blocks, so that a test of a few thousand rows has a tree of several levels.
    pub fn tiny() -> TreeTuning {
        TreeTuning {
            fanout_max: 4,
            leaf_bytes_max: 8 << 10,
            leaf_runs: 3,
            leaf_pending_ratio: 0.7,
            leaf_pending_bytes_min: 1 << 10,
            node_runs: 3,
            node_buffer_bytes: 16 << 10,
            block_bytes: 512,
            gather_nanos: 0,
            ..TreeTuning::default()
        }
    }

    /// Stored bytes that a leaf has after a split.
    pub fn leaf_bytes_target(&self) -> u64 {
        self.leaf_bytes_max * 5 / 8
    }
}
