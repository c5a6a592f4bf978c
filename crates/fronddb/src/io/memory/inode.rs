//! One file of the simulated disk: pages, length, and what of them is not durable yet.
//!
//! Content is a map of 4 KiB pages; a page that is missing is all zeros. A change of a page keeps the page
//! that it replaces, marked with its moment, until the next sync. So the history of a page since then
//! is a list of (page, replaced at), and a crash chooses, sector by sector, one member of it. The length has
//! such a history too. A sync forgets all histories, which makes it cheap however large the file is.
//!
//! - M1: the histories are in ascending order of moments.
//! - M2: a page or part of it past the length is zero.
//! - M3: a page is counted in [`Space`] exactly when its bit in `occupied` is set.
//!
//! A history is kept to [`VERSIONS_MAX`] members by dropping the second oldest, which only takes possibilities away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

// Not the facade's, see the storage.
use parking_lot::RwLock;

use super::crash::Draw;
use crate::base::space::PAGE_BYTES;

const PAGE: usize = PAGE_BYTES as usize;
const SECTOR: usize = 512;
const VERSIONS_MAX: usize = 8;

type Page = Arc<[u8; PAGE]>;

/// What all files of a disk share: how many pages they may and do occupy.
#[derive(Debug)]
pub(super) struct Space {
    capacity: AtomicU64,
    pages: AtomicU64,
}

impl Space {
    pub(super) fn new(capacity: u64) -> Space {
        Space { capacity: AtomicU64::new(capacity), pages: AtomicU64::new(0) }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    pub(super) fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn occupied(&self) -> u64 {
        self.pages.load(Ordering::Relaxed) * PAGE_BYTES
    }

    pub(super) fn free(&self) -> u64 {
        self.capacity().saturating_sub(self.occupied())
    }

    fn take(&self, pages: u64) -> bool {
        let limit = self.capacity() / PAGE_BYTES;
        let taken = self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| {
            Some(now + pages).filter(|sum| pages == 0 || *sum <= limit)
        });
        taken.is_ok()
    }

    fn give(&self, pages: u64) {
        self.pages.fetch_sub(pages, Ordering::Relaxed);
    }
}

/// What a page held until the change at `until` replaced it.
#[derive(Debug, Clone)]
struct Older {
    until: u64,
    page: Option<Page>,
}

#[derive(Debug, Default, Clone)]
struct Content {
    pages: BTreeMap<u64, Page>,
    length: u64,
    /// One bit per page.
    occupied: Vec<u64>,
    page_history: BTreeMap<u64, Vec<Older>>,
    /// Pages that no sync makes durable until they are written again.
    clean: BTreeSet<u64>,
    /// (moment of the change, length before it).
    length_history: Vec<(u64, u64)>,
}

/// A file.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) number: u64,
    content: RwLock<Content>,
    space: Arc<Space>,
}

impl Drop for Inode {
    /// Gives the space back.
    fn drop(&mut self) {
        self.space.give(self.content.get_mut().occupied_pages());
    }
}

/// The part of each page that a byte range touches: (page, first byte in it, bytes).
fn split(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset.saturating_add(length);
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, within) = (at / PAGE_BYTES, at % PAGE_BYTES);
        let bytes = (PAGE_BYTES - within).min(end - at);
        at += bytes;
        Some((page, within as usize, bytes as usize))
    })
}

impl Content {
    fn occupied_pages(&self) -> u64 {
        self.occupied.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    fn is_occupied(&self, page: u64) -> bool {
        self.occupied.get((page / 64) as usize).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    fn set_occupied(&mut self, page: u64) {
        let index = (page / 64) as usize;
        if index >= self.occupied.len() {
            self.occupied.resize(index + 1, 0);
        }
        self.occupied[index] |= 1 << (page % 64);
    }

    /// Puts `new` in place of a page and keeps the old one in its history.
    fn replace(&mut self, page: u64, new: Option<Page>, moment: u64) {
        let old = match new {
            Some(new) => self.pages.insert(page, new),
            None => self.pages.remove(&page),
        };
        self.clean.remove(&page);
        let history = self.page_history.entry(page).or_default();
        history.push(Older { until: moment, page: old });
        if history.len() > VERSIONS_MAX {
            let dropped = history.remove(1);
            history[0].until = dropped.until;
        }
    }

    fn set_length(&mut self, length: u64, moment: u64) {
        if length != self.length {
            self.length_history.push((moment, self.length));
            self.length = length;
        }
    }

    /// Zeroes a range; returns the number of whole pages whose space is given back.
    fn clear(&mut self, offset: u64, end: u64, moment: u64) -> u64 {
        let (first, last) = (offset / PAGE_BYTES, end.div_ceil(PAGE_BYTES));
        let present: Vec<u64> = self.pages.range(first..last.max(first)).map(|(page, _)| *page).collect();
        for page in present {
            let start = offset.saturating_sub(page * PAGE_BYTES) as usize;
            let stop = (end - page * PAGE_BYTES).min(PAGE_BYTES) as usize;
            if start == 0 && stop == PAGE {
                self.replace(page, None, moment);
            } else if let Some(mut copy) = self.pages.get(&page).cloned() {
                Arc::make_mut(&mut copy)[start..stop].fill(0);
                self.replace(page, Some(copy), moment);
            }
        }
        let whole = offset.div_ceil(PAGE_BYTES)..(end / PAGE_BYTES).min(self.occupied.len() as u64 * 64);
        let mut given = 0;
        for page in whole {
            if self.is_occupied(page) {
                self.occupied[(page / 64) as usize] &= !(1 << (page % 64));
                given += 1;
            }
        }
        given
    }
}

impl Inode {
    pub(super) fn new(number: u64, space: Arc<Space>) -> Inode {
        Inode { number, content: RwLock::default(), space }
    }

    pub(super) fn length(&self) -> u64 {
        self.content.read().length
    }

    /// False when the file ends before.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> bool {
        let content = self.content.read();
        if offset.saturating_add(buf.len() as u64) > content.length {
            return false;
        }
        let mut rest = buf;
        for (page, within, bytes) in split(offset, rest.len() as u64) {
            let (part, tail) = rest.split_at_mut(bytes);
            match content.pages.get(&page) {
                Some(page) => part.copy_from_slice(&page[within..within + bytes]),
                None => part.fill(0),
            }
            rest = tail;
        }
        true
    }

    /// False when the disk is full; what came before the first page without space is written then.
    pub(super) fn write(&self, buf: &[u8], offset: u64, moment: u64) -> bool {
        let mut content = self.content.write();
        let mut rest = buf;
        let mut end = offset;
        for (number, within, bytes) in split(offset, buf.len() as u64) {
            if !content.is_occupied(number) {
                if !self.space.take(1) {
                    break;
                }
                content.set_occupied(number);
            }
            let (part, tail) = rest.split_at(bytes);
            let page = match <&[u8; PAGE]>::try_from(part) {
                Ok(whole) => Arc::new(*whole),
                Err(_) => {
                    let mut page = content.pages.get(&number).cloned().unwrap_or_else(|| Arc::new([0; PAGE]));
                    Arc::make_mut(&mut page)[within..within + bytes].copy_from_slice(part);
                    page
                }
            };
            content.replace(number, Some(page), moment);
            rest = tail;
            end += bytes as u64;
        }
        if end > content.length && end > offset {
            content.set_length(end, moment);
        }
        rest.is_empty()
    }

    pub(super) fn set_length(&self, length: u64, moment: u64) {
        let mut content = self.content.write();
        // What is reserved beyond the length goes as well.
        if length <= content.length {
            let end = (content.occupied.len() as u64 * 64 * PAGE_BYTES).max(content.length);
            let given = content.clear(length, end.next_multiple_of(PAGE_BYTES), moment);
            self.space.give(given);
        }
        content.set_length(length, moment);
    }

    /// False when the disk cannot hold it: it keeps what there was for its first pages then, as ext4 does, and has the length for them.
    pub(super) fn allocate(&self, offset: u64, length: u64, moment: u64) -> bool {
        let mut content = self.content.write();
        let mut end = offset;
        let is_whole = split(offset, length).all(|(page, _, bytes)| {
            let is_there = content.is_occupied(page) || self.space.take(1);
            if is_there {
                content.set_occupied(page);
                end += bytes as u64;
            }
            is_there
        });
        if end > content.length {
            content.set_length(end, moment);
        }
        is_whole
    }

    pub(super) fn punch(&self, offset: u64, length: u64, moment: u64) {
        let mut content = self.content.write();
        let end = offset.saturating_add(length).min(content.length);
        if offset < end {
            let given = content.clear(offset, end, moment);
            self.space.give(given);
        }
    }

    pub(super) fn sync(&self) {
        let mut content = self.content.write();
        let Content { page_history, clean, .. } = &mut *content;
        page_history.retain(|page, _| clean.contains(page));
        content.length_history.clear();
    }

    /// Makes what the file holds in a range durable, with the length that it has, and nothing else.
    pub(super) fn persist(&self, offset: u64, length: u64) {
        let mut content = self.content.write();
        let Content { pages, page_history, length_history, .. } = &mut *content;
        for (number, within, bytes) in split(offset, length) {
            if bytes == PAGE {
                page_history.remove(&number);
                continue;
            }
            // Whichever of its older versions a crash leaves has these bytes.
            for older in page_history.get_mut(&number).into_iter().flatten() {
                let page = Arc::make_mut(older.page.get_or_insert_with(|| Arc::new([0; PAGE])));
                let now = pages.get(&number).map_or(&[0; PAGE][..], |page| &page[..]);
                page[within..within + bytes].copy_from_slice(&now[within..within + bytes]);
            }
        }
        length_history.clear();
    }

    /// What is not durable passes for written: only what is written again becomes so.
    pub(super) fn forget_unsynced(&self) {
        let mut content = self.content.write();
        content.clean = content.page_history.keys().copied().collect();
    }

    pub(super) fn has_unsynced(&self) -> bool {
        self.first_unsynced().is_some()
    }

    /// The moment of the first change that is not durable.
    pub(super) fn first_unsynced(&self) -> Option<u64> {
        let content = self.content.read();
        let pages = content.page_history.values().filter_map(|history| history.first().map(|older| older.until));
        pages.chain(content.length_history.first().map(|(moment, _)| *moment)).min()
    }

    /// Changes a byte wherever the file holds it; false when the file ends before.
    pub(super) fn damage(&self, offset: u64, change: &mut dyn FnMut(&mut u8)) -> bool {
        let mut content = self.content.write();
        if offset >= content.length {
            return false;
        }
        let (number, within) = (offset / PAGE_BYTES, (offset % PAGE_BYTES) as usize);
        let page = content.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE]));
        change(&mut Arc::make_mut(page)[within]);
        for older in content.page_history.get_mut(&number).into_iter().flatten() {
            change(&mut Arc::make_mut(older.page.get_or_insert_with(|| Arc::new([0; PAGE])))[within]);
        }
        true
    }

    /// A copy, histories included, on another disk.
    pub(super) fn copy(&self, space: &Arc<Space>) -> Inode {
        self.with(self.content.read().clone(), space)
    }

    fn with(&self, content: Content, space: &Arc<Space>) -> Inode {
        space.pages.fetch_add(content.occupied_pages(), Ordering::Relaxed);
        Inode { number: self.number, content: RwLock::new(content), space: space.clone() }
    }

    /// What a crash leaves, on another disk.
    pub(super) fn after_crash(&self, draw: &Draw, space: &Arc<Space>) -> Inode {
        let now = self.content.read();
        let mut left = Content { pages: now.pages.clone(), occupied: now.occupied.clone(), ..Content::default() };
        // The length is metadata, which file systems keep in order: the first lost change loses all after it.
        let lost = now.length_history.iter().find(|(moment, _)| !draw.name_survives(*moment));
        left.length = lost.map_or(now.length, |(_, before)| *before);
        for (number, history) in &now.page_history {
            let page = choose(history, now.pages.get(number), |moment, sector| {
                draw.sector_survives(moment, (self.number << 48) ^ (number * 8 + sector as u64))
            });
            match page {
                Some(page) => {
                    left.set_occupied(*number);
                    left.pages.insert(*number, page)
                }
                None => left.pages.remove(number),
            };
        }
        let end = (left.occupied.len() as u64 * 64 * PAGE_BYTES).max(left.length);
        left.clear(left.length, end.next_multiple_of(PAGE_BYTES), 0);
        left.page_history.clear();
        self.with(left, space)
    }
}

/// The page that is left: each of its sectors as the last change that survived left it.
fn choose(history: &[Older], now: Option<&Page>, survives: impl Fn(u64, usize) -> bool) -> Option<Page> {
    let versions: Vec<Option<&Page>> = history.iter().map(|older| older.page.as_ref()).chain([now]).collect();
    let picks: [usize; PAGE / SECTOR] = std::array::from_fn(|sector| {
        // The change at `history[i].until` made version i + 1.
        history.iter().rposition(|older| survives(older.until, sector)).map_or(0, |change| change + 1)
    });
    if picks.iter().all(|pick| *pick == picks[0]) {
        return versions[picks[0]].cloned();
    }
    let mut page = [0; PAGE];
    for (sector, pick) in picks.into_iter().enumerate() {
        if let Some(version) = versions[pick] {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            page[range.clone()].copy_from_slice(&version[range]);
        }
    }
    Some(Arc::new(page))
}
