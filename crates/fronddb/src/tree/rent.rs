//! Flushing where reads pay for what is pending.
//!
//! By its size a buffer asks for a flush when writers have filled it ([`super::node`]). One that they left before stays as
//! it is, and every read on that path goes through its runs. So each slot keeps an account: a read charges it with about the
//! time that a flush would have spared ([`Rent`]). When the charges come to what the flush costs, it is done: whoever
//! rents skis until he has paid their price, and then buys them, pays at most twice what he might have
//! (Karlin et al., "Competitive snoopy caching", Algorithmica 3, 1988). Work that idle processors do is had
//! cheaper, and is done at a part of its price. In a full cache most of what is rewritten is read from the file: there that is so while the file is
//! quick, and for what cursors have paid alone, because a block less to read spares them much, and point reads next to nothing.
//!
//! The flush of a leaf writes all of the leaf again, and many small runs above it can be had as one for a small part of that. So the newest
//! runs of such a buffer are *gathered* first, as soon as readers have paid for that: as many of them as spare most for
//! what they cost ([`Relief`]). Then a new account begins, for the flush.
//!
//! A cursor pays for going to a key when it comes to a leaf range, and for the keys of buffers that it went through there when it leaves
//! that. A long scan pays for all of them when it comes.
//!
//! What a read loses is known by experience, but for blocks of pending runs that a cursor finds in no cache: each costs it what
//! reads of blocks have taken lately, though those of one seek are made at the same time.
//!
//! A slot whose account has reached that part is noted in a list, and in another one when its readers have paid all. From them
//! [`BeTree::flush_for_reads`] takes the one that is worth it most. (In one list alone, slots that are seldom read would keep the places
//! from those that are read often, until processors are idle.) The jobs are those of [`super::plan`], under the same reservations.
//!
//! - An account lives in memory, with its slot. It goes on when the slot gets a run, and a flush ends it.
//! - Charges are rough, and some are lost (to a slot that is just being replaced). They decide when work is done and
//!   nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::node::{Node, Slot, Target};
use super::plan::{self, SlotName};
use super::tuning::TreeTuning;
use super::{BeTree, Version};
use crate::base::sync::Mutex;
use crate::base::{ErrorKind, Result};
use crate::format::visibility::Retention;
use crate::run::Run;

/// What a flush costs per stored byte that it reads, in nanoseconds of a processor and a disk.
const FLUSH_NANOS_PER_BYTE: u64 = 15;
/// Fewer runs are not gathered.
const GATHER_RUNS_MIN: usize = 4;
/// Gathering is worth it at one part in so many of what the flush costs, which has to be paid for after it.
const GATHER_PART: u64 = 2;
/// What a run costs a read that positions a cursor in it.
const SEEK_NANOS: u64 = 1500;
/// What a run costs a point read, which mostly asks its filter alone: the run, the filter and its line are in no cache of the processor.
const PROBE_NANOS: u64 = 500;
/// The same where the cache is full: next to nothing, beside the block that is read from the file.
const PROBE_NANOS_FULL: u64 = 100;
/// What each message of a run costs a long scan that merges it.
const MERGE_NANOS: u64 = 50;
/// What each key costs a cursor that has just begun and goes through it: where it lies is in no cache of the processor, and it ends a stretch of rows
/// ([`super::cursor`]).
const PASS_NANOS: u64 = 1000;
/// What a block that has to be read from the file for a cursor costs at most. What takes longer waited for others.
const MISS_NANOS_MAX: u64 = 1_000_000;
/// One point read in so many charges, for all of them.
const PROBES_PER_CHARGE: u64 = 16;
/// A file whose reads take longer is busy, or slow; one of which none was timed is quick.
pub(super) const QUICK_READ_NANOS: u64 = 300_000;
/// Idle processors work for readers at this part of the price.
const IDLE_PART: u64 = 8;
/// Slots noted at once in a list, about; what finds no place comes again with the next read.
const NOTED_MAX: usize = 64;

/// What readers have paid of a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paid {
    /// What the work costs where processors are idle.
    Part,
    /// All of it.
    All,
}

impl Paid {
    /// The part of the price.
    fn share(self) -> f64 {
        match self {
            Paid::Part => 1.0 / IDLE_PART as f64,
            Paid::All => 1.0,
        }
    }
}

/// A slot's account.
#[derive(Debug, Default)]
pub(super) struct Rent {
    /// Nanoseconds.
    paid: AtomicU64,
    /// That part of them which cursors have paid.
    paid_by_cursors: AtomicU64,
    /// In the list of each [`Paid`].
    is_noted: [AtomicBool; 2],
}

impl Rent {
    /// Its readers have paid nothing.
    fn begin(&self) {
        self.paid.store(0, Ordering::Relaxed);
        self.paid_by_cursors.store(0, Ordering::Relaxed);
    }

    /// The account of the slot that takes the place of this one with no fewer runs.
    pub(super) fn continued(&self) -> Rent {
        let [part, all] = &self.is_noted;
        let same = |nanos: &AtomicU64| AtomicU64::new(nanos.load(Ordering::Relaxed));
        Rent {
            paid: same(&self.paid),
            paid_by_cursors: same(&self.paid_by_cursors),
            is_noted: [part, all].map(|noted| AtomicBool::new(noted.load(Ordering::Relaxed))),
        }
    }
}

/// A read, as far as its charges go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// Point reads: as many as charge at once.
    Probes,
    /// A cursor goes to a key.
    Seek,
    /// A scan goes through all of it.
    Scan,
}

/// True when a point read of the key with this hash charges.
#[inline]
pub(super) fn is_charged(hash: u64) -> bool {
    hash.is_multiple_of(PROBES_PER_CHARGE)
}

/// The work on a slot that its readers pay for first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Relief {
    /// How much they pay until it is done, in nanoseconds.
    nanos: u64,
    /// So many of the newest runs become one; 0: all are flushed.
    gathers: usize,
}

/// What spares the readers of a slot most for what it costs. `pending`: the bytes of its `buffer`.
pub(super) fn relief(tuning: &TreeTuning, buffer: &[Arc<Run>], pending: u64, target: &Target) -> Relief {
    let flush = Relief { nanos: flush_nanos(pending, target), gathers: 0 };
    let has_ranges = || buffer.iter().any(|run| run.has_range_deletes());
    if matches!(target, Target::Node(_)) || buffer.len() < GATHER_RUNS_MIN || has_ranges() {
        return flush;
    }
    let mut bytes = 0;
    // Runs are not cut there, and the filter of one has to fit into an extent.
    let gathered = buffer.iter().enumerate().map_while(|(spared, run)| {
        bytes += run.meta().bytes;
        (bytes <= tuning.node_buffer_bytes).then_some((spared, bytes))
    });
    // Of what readers lose, that is the part which ends: it has to come to the price.
    let price = |(spared, bytes): (usize, u64)| {
        let nanos = (tuning.gather_nanos + bytes * FLUSH_NANOS_PER_BYTE) * buffer.len() as u64 / spared as u64;
        Relief { nanos, gathers: spared + 1 }
    };
    let worthwhile =
        gathered.skip(GATHER_RUNS_MIN - 1).map(price).filter(|relief| relief.nanos <= flush.nanos / GATHER_PART);
    worthwhile.min_by_key(|relief| relief.nanos).unwrap_or(flush)
}

/// What the flush of a slot with `pending` bytes in its buffer costs, in nanoseconds: for each byte that is rewritten, now and, of a buffer above a node, once more.
fn flush_nanos(pending: u64, target: &Target) -> u64 {
    let bytes = match target {
        Target::Leaf(base) => pending + base.as_ref().map_or(0, |base| base.meta().bytes),
        Target::Node(_) => 2 * pending,
    };
    bytes * FLUSH_NANOS_PER_BYTE
}

/// The slots whose readers have paid enough to be looked at: a list for each [`Paid`].
#[derive(Debug, Default)]
pub(super) struct Noted([List; 2]);

#[derive(Debug, Default)]
struct List {
    names: Mutex<Vec<SlotName>>,
    /// Their number, for readers that find no place and workers that find no work.
    count: AtomicUsize,
}

impl List {
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn change(&self, change: impl FnOnce(&mut Vec<SlotName>)) {
        let mut names = self.names.lock();
        change(&mut names);
        self.count.store(names.len(), Ordering::Relaxed);
    }
}

impl Slot {
    /// Runs that a flush spares each read. Those above a node lie above a leaf after it, where they are spared next.
    fn runs_spared(&self) -> u64 {
        if self.is_damaged() { 0 } else { self.buffer().len() as u64 }
    }

    /// What its readers have paid, or its cursors alone, in parts of what they pay for first.
    fn rent_paid(&self, cursors_alone: bool) -> f64 {
        let rent = self.rent();
        let paid = if cursors_alone { &rent.paid_by_cursors } else { &rent.paid };
        let nanos = if self.runs_spared() > 0 { paid.load(Ordering::Relaxed) } else { 0 };
        nanos as f64 / self.relief().nanos.max(1) as f64
    }

    /// Messages in its buffer that a scan of one leaf below it merges, about.
    fn messages_per_leaf(&self) -> u64 {
        let messages: u64 = self.buffer().iter().map(|run| run.meta().messages).sum();
        match self.target() {
            Target::Leaf(_) => messages,
            Target::Node(child) => messages / child.loaded().map_or(1, |child| child.slots().len().max(1) as u64),
        }
    }
}

impl BeTree {
    /// Charges the account of a slot of a node at `height` for a read.
    #[inline]
    pub(super) fn charge(&self, height: u8, slot: &Slot, read: Read) {
        let runs = slot.runs_spared();
        if runs > 0 {
            let nanos = match read {
                Read::Probes => {
                    let probe = if self.env.cache.is_full() { PROBE_NANOS_FULL } else { PROBE_NANOS };
                    runs * probe * PROBES_PER_CHARGE
                }
                Read::Seek => runs * SEEK_NANOS,
                Read::Scan => runs * SEEK_NANOS + slot.messages_per_leaf() * MERGE_NANOS,
            };
            self.charge_nanos(height, slot, nanos, read != Read::Probes);
        }
    }

    /// Charges the account of a slot of a node at `height` for blocks of its buffer that a cursor had to read from the file to
    /// get to its key.
    pub(super) fn charge_misses(&self, height: u8, slot: &Slot, blocks: u32) {
        if blocks > 0 && slot.runs_spared() > 0 {
            let nanos = self.env.cache.read_nanos().min(MISS_NANOS_MAX);
            self.charge_nanos(height, slot, u64::from(blocks) * nanos, true);
        }
    }

    /// Charges the slots on the way to `key` for what a cursor went through in their buffers: `passed` keys of those in a node of a height.
    #[cold]
    pub(super) fn charge_passed(&self, version: &Version, key: &[u8], passed: impl Fn(u8) -> u64) {
        let mut node = Some(&version.root);
        while let Some(at) = node {
            let slot = &at.slots()[at.find(key)];
            let keys = passed(at.height());
            if keys > 0 && slot.runs_spared() > 0 {
                self.charge_nanos(at.height(), slot, keys * PASS_NANOS, true);
            }
            node = match slot.target() {
                Target::Leaf(_) => None,
                Target::Node(child) => child.loaded(),
            };
        }
    }

    fn charge_nanos(&self, height: u8, slot: &Slot, nanos: u64, is_cursor: bool) {
        // Ordering, here and below: accounts lead to no other memory, and who misses a charge sees it the next time.
        let paid = slot.rent().paid.fetch_add(nanos, Ordering::Relaxed) + nanos;
        let by_cursors = &slot.rent().paid_by_cursors;
        let paid_by_cursors = match is_cursor {
            true => by_cursors.fetch_add(nanos, Ordering::Relaxed) + nanos,
            false => by_cursors.load(Ordering::Relaxed),
        };
        let price = slot.relief().nanos;
        if paid < price / IDLE_PART {
            return;
        }
        let list = if paid < price { Paid::Part } else { Paid::All };
        if list == Paid::Part && paid_by_cursors < price / IDLE_PART && self.env.cache.is_full() {
            return;
        }
        let has_room = || self.noted.0[list as usize].count.load(Ordering::Relaxed) < NOTED_MAX;
        if has_room() && !slot.rent().is_noted[list as usize].swap(true, Ordering::Relaxed) {
            let name = SlotName { height, lower: slot.lower().clone() };
            self.noted.0[list as usize].change(|names| names.push(name));
        }
    }

    /// True when there may be something for [`BeTree::flush_for_reads`] to do, were the machine idle.
    pub fn has_rents(&self) -> bool {
        self.noted.0.iter().any(|list| !list.is_empty())
    }

    /// Does the flush, compaction or gathering for which readers have paid most, in proportion to what it costs; with `idle` processors, where
    /// that spares readers more than it takes from them, at a part of that. Tells what they had paid; `None` when there is none, none that can be begun now, or no
    /// space for it.
    ///
    /// # Errors
    /// As [`BeTree::work_step`], but for `NoSpace`.
    pub fn flush_for_reads(&self, retention: &Retention<'_>, idle: bool) -> Result<Option<Paid>> {
        if !self.has_rents() {
            return Ok(None);
        }
        let is_quick = || self.env.cache.read_nanos() < QUICK_READ_NANOS;
        let is_cheap = idle && (!self.env.cache.is_full() || is_quick());
        let chosen = self.planned(&mut |state, root| {
            let mut dear = self.noted_slots(root, Paid::All);
            dear.extend(self.noted_slots(root, Paid::Part));
            dear.retain(|noted| noted.paid >= Paid::All.share() || (is_cheap && noted.part >= Paid::Part.share()));
            dear.sort_by(|a, b| b.worth().total_cmp(&a.worth()));
            for noted in dear {
                let upper = noted.upper.as_deref();
                let (env, reservations, height) = (&self.env, &mut state.reservations, noted.name.height);
                let reserved = match noted.slot.relief().gathers {
                    0 => plan::reserve(env, reservations, height, &noted.slot, upper)?,
                    runs => plan::reserve_gathering(env, reservations, height, &noted.slot, upper, runs),
                };
                if let Some(job) = reserved {
                    return Ok(Some((job, noted)));
                }
            }
            Ok(None)
        })?;
        let Some((job, noted)) = chosen else { return Ok(None) };
        match self.do_job(retention, &job) {
            // It can wait, so the disk is not full on its account. Its readers pay once more.
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                noted.slot.rent().begin();
                Ok(None)
            }
            done => done.map(|()| {
                self.counters.for_reads.add(1);
                Some(if noted.paid < Paid::All.share() { Paid::Part } else { Paid::All })
            }),
        }
    }

    /// The slots of a list as they are now, asked for under the latch. Those whose readers have not paid that share of the price any more leave it.
    fn noted_slots(&self, root: &Arc<Node>, list: Paid) -> Vec<NotedSlot> {
        let mut slots = Vec::new();
        let cursors_alone = self.env.cache.is_full();
        let stays = |name: &SlotName| {
            let Some(found) = find(root, name, cursors_alone) else { return false };
            let paid = if list == Paid::All { found.paid } else { found.part };
            let is_due = paid >= list.share();
            if is_due {
                slots.push(found);
            } else {
                found.slot.rent().is_noted[list as usize].store(false, Ordering::Relaxed);
            }
            is_due
        };
        self.noted.0[list as usize].change(|names| names.retain(stays));
        slots
    }
}

/// A slot that was noted, as it is now.
struct NotedSlot {
    name: SlotName,
    slot: Arc<Slot>,
    upper: Option<Vec<u8>>,
    /// In parts of the price.
    paid: f64,
    /// What counts of it where the work is had cheaply.
    part: f64,
}

impl NotedSlot {
    /// What its readers lose until it is done, in parts of the price.
    fn worth(&self) -> f64 {
        if self.paid < Paid::All.share() { self.part } else { self.paid }
    }
}

/// The slot of that name, if there still is one.
fn find(root: &Arc<Node>, name: &SlotName, cursors_alone: bool) -> Option<NotedSlot> {
    let (slot, upper) = plan::slot_at(root, name)?;
    let (upper, paid, part) = (upper.map(<[u8]>::to_vec), slot.rent_paid(false), slot.rent_paid(cursors_alone));
    Some(NotedSlot { name: name.clone(), slot: slot.clone(), upper, paid, part })
}
