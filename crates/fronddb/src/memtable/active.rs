//! The active memtable: the newest messages, in order, while writers add to them.
//!
//! Owns the sorted list and the books about what is in it (how many of each kind, from whom, of which positions).
//! Which memtable is active, and when it is sealed, is the tree's and the database's to say.
//!
//! A writer holds the level-0 gate shared from before it reserves its place in the log until its messages are here,
//! so that whoever holds the gate exclusively finds all messages below the end of the log. Readers hold nothing.
//!
//! - M1: a message that is found was inserted whole. Messages of one record appear one by one: a reader that must
//!   not see half of a record knows by its snapshot.
//!   Of versions of one key that were written over some may be gone, which no snapshot needs.
//! - M2: stamps are `Written`; fates are looked up in the status table.
//!
//! Range-deletes are few as a rule and lie in lists beside ([`RangeLists`]), which readers take without a latch: a new one is in there before the
//! write returns. Without any, asking for them is one load.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::chunk_pool::ChunkPool;
use super::leaves::{LeafCursor, LeafList};
use super::node::Target;
use super::presence::Presence;
use super::sample::RangeSample;
use crate::base::checksum::key_hash;
use crate::base::key::tree_end;
use crate::base::memory::{MemoryBudget, Purpose};
use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::base::sync::{ArcSwap, Mutex};
use crate::base::{TreeId, TxnId};
use crate::format::block::RangeLists;
use crate::format::{Kind, Message, RangeDelete, Retention, Stamp};

/// Counters that every insert touches, together on their own cache lines.
#[derive(Debug)]
struct Books {
    kinds: [AtomicU64; 6],
    min_seq: AtomicU64,
    max_seq: AtomicU64,
}

#[derive(Debug)]
struct Ranges {
    lists: ArcSwap<RangeLists>,
    /// Who adds one holds it.
    adding: Mutex<()>,
    /// Of all; not 0 once the first can be found.
    bytes: AtomicUsize,
}

/// The active (or sealed, not yet written) memtable. Many threads insert and read at the same time.
///
/// Dropping it gives its memory back to the pool of chunks.
pub struct Memtable {
    id: u64,
    list: Arc<LeafList>,
    presence: Presence,
    books: CachePadded<Books>,
    ranges: Ranges,
    budget: MemoryBudget,
}

impl Memtable {
    /// Empty. Its memory is of `chunks`, and counted where that is.
    pub fn new(id: u64, chunks: &ChunkPool) -> Memtable {
        let budget = chunks.budget();
        let books = Books { kinds: Default::default(), min_seq: AtomicU64::new(u64::MAX), max_seq: AtomicU64::new(0) };
        Memtable {
            id,
            list: Arc::new(LeafList::new(chunks)),
            presence: Presence::new(budget),
            books: CachePadded::new(books),
            ranges: Ranges {
                lists: ArcSwap::from_pointee(RangeLists::default()),
                adding: Mutex::new(()),
                bytes: AtomicUsize::new(0),
            },
            budget: budget.clone(),
        }
    }

    /// The same, which nobody has written to yet, under another number.
    pub(crate) fn renumbered(mut self, id: u64) -> Memtable {
        debug_assert!(self.is_empty());
        self.id = id;
        self
    }

    /// Its number, as given.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Adds a message with this sequence number, written by this transaction; `message.seq` and
    /// `message.stamp` are not looked at. Of messages with the same key and sequence number the one added later
    /// is the newer. Cannot fail: key and value were checked before they were logged.
    ///
    /// What `retention` then lets go may leave: who sees it sees something newer. It is asked rarely.
    #[inline]
    pub fn insert<'r>(
        &self,
        seq: u64,
        (txn, step): (TxnId, u32),
        message: &Message<'_>,
        retention: impl FnOnce() -> Option<Retention<'r>>,
    ) {
        self.presence.add(key_hash(message.key));
        let forgotten = self.list.insert((seq, txn, step), message, retention);
        self.books.kinds[message.kind as usize].fetch_add(1, Ordering::Relaxed);
        for (kind, count) in self.books.kinds.iter().zip(forgotten.into_iter().flatten()) {
            kind.fetch_sub(count.into(), Ordering::Relaxed);
        }
        self.note(seq);
    }

    #[inline]
    fn note(&self, seq: u64) {
        if seq > self.books.max_seq.load(Ordering::Relaxed) {
            self.books.max_seq.fetch_max(seq, Ordering::Relaxed);
        }
        if seq < self.books.min_seq.load(Ordering::Relaxed) {
            self.books.min_seq.fetch_min(seq, Ordering::Relaxed);
        }
    }

    /// Adds a range-delete; its stamp must be `Written`.
    pub fn insert_range(&self, range: RangeDelete) {
        debug_assert!(
            matches!(range.stamp, Stamp::Written { .. }),
            "a range-delete in a memtable is written by a transaction"
        );
        self.note(range.seq);
        let bytes = range_bytes(&range);
        self.budget.add(Purpose::Level0, bytes);
        let _adding = self.ranges.adding.lock();
        let lists = self.ranges.lists.load().with(range);
        self.ranges.lists.store(Arc::new(lists));
        self.ranges.bytes.fetch_add(bytes, Ordering::Release);
    }

    /// True when there is a range-delete.
    #[inline]
    pub fn has_range_deletes(&self) -> bool {
        self.ranges.bytes.load(Ordering::Acquire) > 0
    }

    /// Shows `visit` the range-deletes.
    #[inline]
    pub fn range_deletes<T>(&self, visit: impl FnOnce(&RangeLists) -> T) -> T {
        visit(&self.ranges.lists.load())
    }

    /// Visits the messages of `key`, whose [`key_hash`] is `hash`, newest to oldest, until the visitor breaks off.
    #[inline]
    pub fn get(
        &self,
        key: &[u8],
        hash: u64,
        mut visit: impl FnMut(&Message<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut flow = ControlFlow::Continue(());
        if !self.presence.may_have(hash) {
            return flow;
        }
        self.list.get(key, |message| {
            flow = visit(message);
            flow.is_continue()
        });
        flow
    }

    /// True when there is a put or delete of `key`, whose [`key_hash`] is `hash`, with a higher sequence number. So long as there is none, no
    /// message of the key has left without one that took it away and that a reader finds who met the message of that number first.
    pub fn is_overwritten_after(&self, key: &[u8], hash: u64, seq: u64) -> bool {
        // Of one that came first on the way down the rest may be forgotten under another that came meanwhile: then it goes down again.
        let mut newest = None;
        loop {
            let (before, mut is_overwritten) = (newest.take(), false);
            let _ = self.get(key, hash, |message| {
                newest = newest.or(Some(message.seq));
                is_overwritten = message.seq > seq && matches!(message.kind, Kind::Put | Kind::Delete);
                let is_done = is_overwritten || message.seq <= seq || before == newest;
                if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if is_overwritten || newest.is_none_or(|newest| newest <= seq) || before == newest {
                return is_overwritten;
            }
        }
    }

    /// See [`super::Level0::sample`].
    pub(super) fn sample(&self, lower: &[u8], upper: Option<&[u8]>) -> Option<RangeSample> {
        let lower = Target::new(lower, u64::MAX);
        let end = tree_end(TreeId(lower.tree));
        let upper = upper.filter(|upper| *upper != end.as_slice()).map(|upper| Target::new(upper, u64::MAX));
        match upper {
            Some(upper) if upper.tree != lower.tree => None,
            upper => Some(self.list.sample(&lower, upper.as_ref())),
        }
    }

    pub(super) fn leaf_cursor(&self) -> LeafCursor {
        LeafCursor::new(Arc::clone(&self.list))
    }

    /// Bytes that messages and range-deletes take: compare with the threshold for sealing.
    pub fn bytes(&self) -> usize {
        self.list.used_bytes() + self.ranges.bytes.load(Ordering::Relaxed)
    }

    /// Bytes held from the system.
    pub fn memory_bytes(&self) -> usize {
        self.list.held_bytes() + self.presence.bytes() + self.ranges.bytes.load(Ordering::Relaxed)
    }

    /// Number of messages; range-deletes are not among them.
    pub fn messages(&self) -> u64 {
        self.kinds().iter().sum()
    }

    /// True without messages and range-deletes.
    pub fn is_empty(&self) -> bool {
        self.messages() == 0 && !self.has_range_deletes()
    }

    /// Number of messages by kind number.
    pub fn kinds(&self) -> [u64; 6] {
        std::array::from_fn(|kind| self.books.kinds[kind].load(Ordering::Relaxed))
    }

    /// Bounds of the sequence numbers of what was ever added, range-deletes included; `None` when empty.
    pub fn seq_bounds(&self) -> Option<(u64, u64)> {
        let bounds = (self.books.min_seq.load(Ordering::Relaxed), self.books.max_seq.load(Ordering::Relaxed));
        (bounds.0 <= bounds.1).then_some(bounds)
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.budget.sub(Purpose::Level0, self.ranges.bytes.load(Ordering::Relaxed));
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("id", &self.id)
            .field("messages", &self.messages())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Memory of a range-delete, in its list and in the one that becomes of that and others, while readers have the first.
pub(super) fn range_bytes(range: &RangeDelete) -> usize {
    2 * (range.start.len() + range.end.len() + size_of::<RangeDelete>())
}
