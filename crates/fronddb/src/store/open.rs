//! Creating and opening a data file.
//!
//! *Creating* builds the file under another name, syncs it, renames it and syncs the directory: a file called
//! [`DATA_FILE`] always holds a valid superblock, so a file without one is damaged, never half created. What else a database needs
//! is made between the two steps: it can then be told from what is not its own, also after a crash, because the file under the other
//! name says which id was drawn ([`Store::interrupted_creation`]).
//!
//! *Opening* reads the slots and takes up the newest valid generation, or the one asked for. Slots that are newer
//! than it or damaged are erased: space that only they reference is free from here on, so they must not come back to life (a damaged
//! slot could after a passing read error). So are the slots of older generations if there may have been a newer one, which may have
//! used their space again, and that of the generation before, if its summary is damaged. Who may have
//! to go on with an older generation asks for that to be left until the generation has proved usable
//! ([`StoreOptions::keep_slots`]). Then two summaries are read: of the generation, and of the one before, which stays intact
//! until the next is durable (S1).
//!
//! *Which generations may be tried* when the newest turns out to be damaged says [`Store::candidates`]: the newest and the one
//! before (S1), and not that one if a damaged slot may have held a newer one, because then its space may have been used again. If the
//! slots of two newer generations are damaged, that may be so of the newest valid one as well: nobody writes on from there
//! ([`Candidates::overtaken`]).

use std::path::Path;
use std::sync::Arc;

use super::Store;
use super::ahead::AskQueue;
use super::allocator::{Allocator, SLOT_PAGES};
use super::data_file::DataFile;
use super::frame::FrameKind;
use super::reads::Scratches;
use super::reserve::Reserve;
use super::space_map::{self, Entry};
use crate::base::page_buf::PageBuf;
use crate::base::space::PAGE_BYTES;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::AtomicBool;
use crate::base::{Error, ErrorKind, Lsn, Result};
use crate::format::superblock::{SECTOR_BYTES, SLOT_STRIDE_BYTES, SLOTS, SLOTS_BYTES, SUPERBLOCK_BYTES, slot_offset};
use crate::format::{Slot, Superblock, SuperblockBody};
use crate::io::{OpenMode, Storage, read_file};

/// Name of the data file in the database's directory.
pub const DATA_FILE: &str = "data.frond";
const NEW_FILE: &str = "data.frond.new";

/// How to open a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Bypass the page cache. Default: yes.
    pub direct: bool,
    /// Write nothing, erase nothing. Default: no.
    pub read_only: bool,
    /// Space kept for compactions when the disk is full, in bytes. Default: 1 MiB.
    pub reserve_bytes: u64,
    /// Take up this generation instead of the newest valid one: for when that one's tree or map is damaged. Newer
    /// ones are erased. Default: none.
    pub generation: Option<u64>,
    /// Erase no slots yet: the caller does by [`Store::erase_slots`], before anything is allocated. Default: no.
    pub keep_slots: bool,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions { direct: true, read_only: false, reserve_bytes: 1 << 20, generation: None, keep_slots: false }
    }
}

/// What opening found.
#[derive(Debug)]
pub struct Opened {
    /// The store, at the generation taken up: [`Store::superblock`].
    pub store: Arc<Store>,
    /// All valid superblocks found, newest first.
    pub superblocks: Vec<Superblock>,
    /// What is wrong with slots that are neither valid nor empty.
    pub damaged: Vec<Error>,
    /// Offsets of slots that are still to be erased: newer than what was taken up, damaged, or not to be opened any more.
    pub unwanted: Vec<u64>,
}

/// Which generations may be taken up.
#[derive(Debug)]
pub struct Candidates {
    /// Newest first; at least one.
    pub generations: Vec<u64>,
    /// What is wrong with slots that are neither valid nor empty.
    pub damaged: Vec<Error>,
    /// Why not even the newest valid generation can be trusted, if so: two newer ones may be lost, and have used its space again.
    pub overtaken: Option<Error>,
}

/// What the slots hold.
struct Slots {
    valid: Vec<Superblock>,
    damaged: Vec<(u64, Error)>,
}

impl Slots {
    /// What is wrong with the slot of a generation.
    fn damage_of(&self, generation: u64) -> Option<&Error> {
        self.damaged.iter().find(|(offset, _)| *offset == slot_offset(generation)).map(|(_, error)| error)
    }
}

impl Opened {
    /// Up to where the log was durable when the latest of these superblocks was written: not only of the one that was taken
    /// up, so that to go back to another loses nothing unnoticed.
    pub fn log_end(&self) -> Lsn {
        self.superblocks.iter().map(|superblock| superblock.body.log_end).max().unwrap_or_default()
    }
}

impl Store {
    /// True when `dir` holds a data file.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn exists(storage: &dyn Storage, dir: &Path) -> Result<bool> {
        storage.exists(&dir.join(DATA_FILE))
    }

    /// Creates the data file of a new, empty database, durably, as generation 1. `dir` must exist. Everything that `body` refers to
    /// (the log) must be durable before: from here on the database exists.
    ///
    /// # Errors
    /// `InvalidArgument` when there is one already or `body` names blocks; else what the storage reports.
    pub fn create(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        options: &StoreOptions,
        uuid: [u8; 16],
        body: SuperblockBody,
    ) -> Result<Arc<Store>> {
        Store::begin_creation(storage, dir, uuid, body)?;
        Store::finish_creation(storage, dir, options)
    }

    /// The first half of [`Store::create`]: the file under another name, durably.
    ///
    /// # Errors
    /// As [`Store::create`].
    pub fn begin_creation(storage: &Arc<dyn Storage>, dir: &Path, uuid: [u8; 16], body: SuperblockBody) -> Result<()> {
        let (path, new) = (dir.join(DATA_FILE), dir.join(NEW_FILE));
        if storage.exists(&path)? {
            return Err(Error::invalid(format!("the data file exists, path={}", path.display())));
        }
        if body.root.is_some() || !body.status.is_empty() {
            return Err(Error::invalid("a new data file has no blocks yet"));
        }
        let superblock =
            Superblock { generation: 1, uuid, end_page: u64::from(SLOT_PAGES), space_map: Vec::new(), body };
        let file = storage.open(&new, OpenMode { create: true, truncate: true, ..OpenMode::default() })?;
        let mut slots = PageBuf::zeroed(SLOTS_BYTES as usize);
        let at = superblock.offset() as usize;
        slots[at..at + SUPERBLOCK_BYTES].copy_from_slice(&superblock.encode()?);
        file.write_at(&slots, 0)?;
        file.sync_data()?;
        storage.sync_dir(dir)
    }

    /// The id that a creation in `dir` had drawn which has not come to its end; `None` when there is none, or it has
    /// made nothing else yet.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn interrupted_creation(storage: &dyn Storage, dir: &Path) -> Result<Option<[u8; 16]>> {
        let new = dir.join(NEW_FILE);
        if !storage.exists(&new)? {
            return Ok(None);
        }
        let bytes = read_file(storage, &new)?;
        let at = slot_offset(1) as usize;
        let slot = bytes.get(at..at + SUPERBLOCK_BYTES).map(|slot| Superblock::decode(at as u64, slot));
        match slot {
            Some(Ok(Slot::Valid(superblock))) => Ok(Some(superblock.uuid)),
            // It was not durable yet.
            _ => Ok(None),
        }
    }

    /// The second half of [`Store::create`]: the database exists.
    ///
    /// # Errors
    /// As [`Store::create`].
    pub fn finish_creation(storage: &Arc<dyn Storage>, dir: &Path, options: &StoreOptions) -> Result<Arc<Store>> {
        storage.rename(&dir.join(NEW_FILE), &dir.join(DATA_FILE))?;
        storage.sync_dir(dir)?;
        let options = StoreOptions { generation: None, read_only: false, keep_slots: false, ..options.clone() };
        Ok(Store::open(storage, dir, &options)?.store)
    }

    /// The generations that the data file in `dir` may be opened at.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn candidates(storage: &Arc<dyn Storage>, dir: &Path, options: &StoreOptions) -> Result<Candidates> {
        let path = dir.join(DATA_FILE);
        let mode = OpenMode { direct: options.direct, read_only: true, ..OpenMode::default() };
        let data = DataFile::new(storage.open(&path, mode)?, &path, true)?;
        let slots = read_slots(&data)?;
        let newest = choose(&data, &slots, None)?.generation;
        let overtaken = overtaken(&data, &slots, newest);
        let next_is_damaged = slots.damage_of(newest + 1).is_some();
        let before = slots.valid.get(1).filter(|before| before.generation + 1 == newest && !next_is_damaged);
        let generations = std::iter::once(newest).chain(before.map(|before| before.generation)).collect();
        let damaged = slots.damaged.into_iter().map(|(_, error)| error).collect();
        Ok(Candidates { generations, damaged, overtaken })
    }

    /// Erases slots that must not come back to life, durably.
    ///
    /// # Errors
    /// What the storage reports.
    pub fn erase_slots(&self, unwanted: &[u64]) -> Result<()> {
        erase(&self.data, unwanted)
    }

    /// Opens the data file in `dir`.
    ///
    /// # Errors
    /// `UnsupportedFormat` when a newer version wrote it, `Corruption` when no slot, or not the generation asked for, is valid, the
    /// file was cut, or the summary is damaged, or when none was asked for and the store is not only read, and two newer ones than the
    /// newest valid one may be lost; else what the storage reports.
    pub fn open(storage: &Arc<dyn Storage>, dir: &Path, options: &StoreOptions) -> Result<Opened> {
        let path = dir.join(DATA_FILE);
        let mode = OpenMode { direct: options.direct, read_only: options.read_only, ..OpenMode::default() };
        let data = DataFile::new(storage.open(&path, mode)?, &path, options.read_only)?;
        let slots = read_slots(&data)?;
        let chosen = choose(&data, &slots, options.generation)?;
        if options.generation.is_none()
            && !options.read_only
            && let Some(error) = overtaken(&data, &slots, chosen.generation)
        {
            return Err(error);
        }
        if data.pages() < chosen.end_page {
            return Err(data.corruption(format!(
                "the file was cut, generation={} pages={} expected={}",
                chosen.generation,
                data.pages(),
                chosen.end_page
            )));
        }
        let entries = summary(&data, &chosen)?;
        let before = slots.valid.iter().find(|slot| slot.generation + 1 == chosen.generation);
        let mut unwanted = unwanted(&slots, chosen.generation);
        let before = match before.map(|before| (before, summary(&data, before))) {
            Some((before, Err(error))) if error.is_unreadable() => {
                // Nobody can open it, so its space is not kept; then nobody may, if the summary comes back to life.
                if !unwanted.contains(&before.offset()) {
                    unwanted.push(before.offset());
                }
                Vec::new()
            }
            Some((_, entries)) => entries?,
            None => Vec::new(),
        };
        let unwanted = if options.keep_slots || options.read_only {
            unwanted
        } else {
            erase(&data, &unwanted)?;
            Vec::new()
        };
        let mut reserve = Reserve::new(options.reserve_bytes.div_ceil(PAGE_BYTES));
        reserve.set_regions(entries.len());
        let allocator = Allocator::new(&entries, before, data.pages(), chosen.generation, reserve);
        let store = Store {
            data,
            allocator: Mutex::new(allocator),
            growing: Mutex::new(()),
            refilling: Mutex::new(()),
            is_short: AtomicBool::new(false),
            turn: Mutex::new(()),
            ask_queue: AskQueue::default(),
            scratches: Scratches::default(),
            current: Mutex::new(Arc::new(chosen)),
        };
        let damaged = slots.damaged.into_iter().map(|(_, error)| error).collect();
        Ok(Opened { store: Arc::new(store), superblocks: slots.valid, damaged, unwanted })
    }
}

fn read_slots(data: &DataFile) -> Result<Slots> {
    let mut buf = PageBuf::zeroed(SLOTS_BYTES as usize);
    let all = match data.read(&mut buf, 0) {
        Err(error) if error.is_unreadable() => None,
        read => read.map(|()| Some(buf))?,
    };
    let decode = |offset: u64| {
        let read = |slot: &[u8]| Superblock::decode(offset, slot).map_err(|error| data.name(error));
        match &all {
            Some(all) => read(&all[offset as usize..offset as usize + SUPERBLOCK_BYTES]),
            // One by one: what lies beside a bad sector is sound.
            None => {
                let mut slot = PageBuf::zeroed(SUPERBLOCK_BYTES);
                data.read(&mut slot, offset)?;
                read(&slot)
            }
        }
    };
    let mut slots = Slots { valid: Vec::new(), damaged: Vec::new() };
    for offset in (0..SLOTS).map(|slot| slot * SLOT_STRIDE_BYTES) {
        match decode(offset) {
            Ok(Slot::Empty) => {}
            Ok(Slot::Valid(superblock)) => slots.valid.push(*superblock),
            Err(error) if error.kind() == ErrorKind::Corruption => slots.damaged.push((offset, error)),
            Err(error) => return Err(error),
        }
    }
    slots.valid.sort_by_key(|superblock| std::cmp::Reverse(superblock.generation));
    Ok(slots)
}

fn choose(data: &DataFile, slots: &Slots, wanted: Option<u64>) -> Result<Superblock> {
    let chosen = match wanted {
        None => slots.valid.first(),
        Some(generation) => slots.valid.iter().find(|superblock| superblock.generation == generation),
    };
    chosen.cloned().ok_or_else(|| {
        // What the system said as well.
        let reasons: Vec<String> = slots.damaged.iter().map(|(_, error)| error.to_string()).collect();
        let wanted = wanted.map_or_else(String::new, |generation| format!(" of generation {generation}"));
        data.corruption(format!("no valid superblock{wanted}: {}", reasons.join("; ")))
    })
}

/// Whether the two generations after the newest valid one may be lost: then what it no longer shares with them may have been used
/// again (S1), by blocks that are as sound as its own.
fn overtaken(data: &DataFile, slots: &Slots, newest: u64) -> Option<Error> {
    let (next, after) = (slots.damage_of(newest + 1)?, slots.damage_of(newest + 2)?);
    Some(data.corruption(format!(
        "two superblocks that may be newer than the newest valid one are damaged, and its space may have been used again: \
         salvage it, generation={newest}: {}; {}",
        next.message(),
        after.message()
    )))
}

fn summary(data: &DataFile, superblock: &Superblock) -> Result<Vec<Entry>> {
    if superblock.space_map.is_empty() {
        return Ok(Vec::new());
    }
    let generation = Some(superblock.generation);
    let bytes = space_map::read_pieces(data, FrameKind::Summary, &superblock.space_map, generation)?;
    space_map::decode_summary(&bytes).map_err(|error| data.name(error))
}

/// The slots that are newer than the generation taken up, or damaged. Before them, while they say that there was or may have been
/// a newer one, those of older generations, whose space that one may have used again.
fn unwanted(slots: &Slots, generation: u64) -> Vec<u64> {
    let offsets = |is_wanted: &dyn Fn(u64) -> bool| -> Vec<u64> {
        slots.valid.iter().filter(|slot| is_wanted(slot.generation)).map(Superblock::offset).collect()
    };
    let newer = offsets(&|other| other > generation);
    let mut unwanted = Vec::new();
    if !newer.is_empty() || slots.damage_of(generation + 1).is_some() {
        unwanted = offsets(&|other| other < generation);
    }
    unwanted.extend(newer);
    unwanted.extend(slots.damaged.iter().map(|(offset, _)| *offset));
    unwanted
}

/// Erases slots, in this order also if the machine stops: a slot is then as it was, or empty. Were it neither, it would pass for that of
/// a lost generation.
fn erase(data: &DataFile, unwanted: &[u64]) -> Result<()> {
    for offset in unwanted {
        let mut slot = PageBuf::zeroed(SUPERBLOCK_BYTES);
        match data.read(&mut slot, *offset) {
            // It is damaged, and stays so until it is written whole.
            Err(error) if error.is_unreadable() => slot.fill(0),
            read => read?,
        }
        slot[..SECTOR_BYTES].fill(0);
        data.write(&slot, *offset)?;
        data.sync()?;
    }
    if !unwanted.is_empty() {
        // What follows the sectors says nothing any more, and earlier versions take only a slot of zeros for empty.
        unwanted.iter().try_for_each(|offset| data.write(&PageBuf::zeroed(SUPERBLOCK_BYTES), *offset))?;
        data.sync()?;
    }
    Ok(())
}
