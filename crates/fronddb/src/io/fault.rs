//! Makes chosen calls fail.
//!
//! A [`FaultStorage`] passes every call to the storage below it unless a [`FaultRule`] of its shared [`FaultPlan`] fires.
//! A rule watches some classes of calls, counts those it watches from when it was added, and fires at
//! the n-th, once or from then on. Every call is counted per class also without rules, so that a test can learn
//! how many there are and then fail each of them in turn.
//!
//! What a fired fault does: `Error` and `NoSpace` fail the call without effect. `ShortWrite` writes the first half
//! (whole pages) and fails; `BitFlip` inverts one bit of what is read or written, drawn from the plan's seed, and reports
//! success; on calls without data both act as `Error`. A durable write is a write and a sync: what fails the sync alone leaves it written, but not durable. `NoMemory` and `NoDescriptor` fail the call without effect, and say nothing about
//! what is stored. `Latency` sleeps, then lets the call go on. `Hold` lets it wait until the test says
//! so ([`FaultPlan::wait_held`]), which then knows what happens meanwhile however slow the machine is. A bad sector is a rule for the reads that touch a range of a file
//! ([`FaultRule::unreadable`]).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

// Not the facade's: in tests of schedules a call to the simulated disk is one step.
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::{Directory, File, OpenMode, Storage, failed};
use crate::base::Result;
use crate::base::page_buf::{ALIGNMENT, PageBuf};
use crate::base::random;

/// So that what waits for a held call to end by itself fails instead of going on for ever.
const HOLD_MAX: Duration = Duration::from_secs(60);

/// Groups of calls that a rule can watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum CallClass {
    /// [`Storage::open`], [`Storage::open_dir`].
    Open = 0,
    /// [`File::read_at`].
    Read = 1,
    /// [`File::write_at`], [`File::write_durable_at`].
    Write = 2,
    /// [`File::sync_data`], [`File::write_durable_at`].
    Sync = 3,
    /// [`File::set_len`].
    SetLen = 4,
    /// [`File::allocate`].
    Allocate = 5,
    /// [`File::punch`].
    Punch = 6,
    /// [`Storage::create_dir_all`], [`Storage::remove`], [`Storage::rename`].
    Names = 7,
    /// [`Storage::sync_dir`], [`Directory::sync`].
    SyncDir = 8,
    /// [`Storage::list`], [`Storage::exists`], [`Storage::free_bytes`], [`File::len`].
    Query = 9,
    /// [`Storage::lock`].
    Lock = 10,
}

impl CallClass {
    /// All classes.
    pub const ALL: [CallClass; 11] = [
        CallClass::Open,
        CallClass::Read,
        CallClass::Write,
        CallClass::Sync,
        CallClass::SetLen,
        CallClass::Allocate,
        CallClass::Punch,
        CallClass::Names,
        CallClass::SyncDir,
        CallClass::Query,
        CallClass::Lock,
    ];
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails with an I/O error.
    Error,
    /// It fails for want of space.
    NoSpace,
    /// It fails for want of memory.
    NoMemory,
    /// It fails because the process has as many files open as it may.
    NoDescriptor,
    /// Half of it is written, then it fails with an I/O error.
    ShortWrite,
    /// It succeeds with one bit inverted.
    BitFlip,
    /// It takes this much longer.
    Latency(Duration),
    /// It waits to be let go ([`Held`]), for a minute at most, then goes on.
    Hold,
    /// It panics, as a broken invariant does.
    Panic,
}

/// When which calls fail, and how.
#[derive(Debug, Clone)]
pub struct FaultRule {
    /// The calls it watches; empty: all.
    pub classes: Vec<CallClass>,
    /// Watches only files whose path contains this.
    pub path_contains: Option<String>,
    /// Watches only reads and writes that touch this range of their file.
    pub offsets: Option<Range<u64>>,
    /// Fires at the n-th watched call, from 1, counted from when the rule was added.
    pub nth: u64,
    /// Fires at every later watched call too.
    pub permanent: bool,
    /// What happens then.
    pub fault: Fault,
}

impl FaultRule {
    /// `fault` at the `nth` call of `class`, once.
    pub fn once(class: CallClass, nth: u64, fault: Fault) -> FaultRule {
        FaultRule { classes: vec![class], path_contains: None, offsets: None, nth, permanent: false, fault }
    }

    /// `fault` at the `nth` call of `class` and all later ones.
    pub fn from(class: CallClass, nth: u64, fault: Fault) -> FaultRule {
        FaultRule { permanent: true, ..FaultRule::once(class, nth, fault) }
    }

    /// Bad sectors: every read that touches `range` of a file fails.
    pub fn unreadable(range: Range<u64>) -> FaultRule {
        FaultRule { offsets: Some(range), ..FaultRule::from(CallClass::Read, 1, Fault::Error) }
    }

    /// The same rule for files whose path contains `part`.
    #[must_use]
    pub fn on(mut self, part: &str) -> FaultRule {
        self.path_contains = Some(part.to_owned());
        self
    }

    /// The same rule for calls of every class.
    #[must_use]
    pub fn any_call(mut self) -> FaultRule {
        self.classes.clear();
        self
    }
}

/// The rules and counters of a [`FaultStorage`]. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan(Arc<Plan>);

#[derive(Debug, Default)]
struct Plan {
    seed: u64,
    off: AtomicBool,
    calls: [AtomicU64; CallClass::ALL.len()],
    fired: AtomicU64,
    rules: Mutex<Vec<(FaultRule, u64)>>,
    holds: Mutex<Holds>,
    holds_changed: Condvar,
}

/// Calls that were held, and that were let go, since the plan was made.
#[derive(Debug, Default)]
struct Holds {
    held: u64,
    let_go: u64,
}

/// Calls wait as long as this is there; dropping it lets go all that are held by then.
///
/// # Panics
/// When dropped after the call went on by itself: then what was done meanwhile may have waited for that.
#[derive(Debug)]
#[must_use = "lets the call go when dropped"]
pub struct Held<'a> {
    plan: &'a FaultPlan,
    /// Of the call that is held.
    number: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut holds = self.plan.0.holds.lock();
        let in_time = holds.let_go < self.number;
        holds.let_go = holds.held;
        self.plan.0.holds_changed.notify_all();
        drop(holds);
        assert!(in_time || std::thread::panicking(), "the call has waited for as long as it may");
    }
}

impl FaultPlan {
    /// Without rules.
    pub fn new() -> FaultPlan {
        FaultPlan::default()
    }

    /// Without rules; `seed` chooses the bits that are flipped.
    pub fn seeded(seed: u64) -> FaultPlan {
        FaultPlan(Arc::new(Plan { seed, ..Plan::default() }))
    }

    /// Adds a rule.
    pub fn add(&self, rule: FaultRule) {
        self.0.rules.lock().push((rule, 0));
    }

    /// Removes all rules; the counters go on.
    pub fn clear(&self) {
        self.0.rules.lock().clear();
    }

    /// Switches all rules on or off; while off, rules do not count.
    pub fn set_enabled(&self, enabled: bool) {
        self.0.off.store(!enabled, Ordering::Relaxed);
    }

    /// Calls of a class so far.
    pub fn calls(&self, class: CallClass) -> u64 {
        self.0.calls[class as usize].load(Ordering::Relaxed)
    }

    /// Calls of all classes so far.
    pub fn calls_total(&self) -> u64 {
        CallClass::ALL.iter().map(|class| self.calls(*class)).sum()
    }

    /// How many faults have fired.
    pub fn fired(&self) -> u64 {
        self.0.fired.load(Ordering::Relaxed)
    }

    /// Waits until a call is held that has not been let go.
    ///
    /// # Panics
    /// When there is none for a minute.
    pub fn wait_held(&self) -> Held<'_> {
        let mut holds = self.0.holds.lock();
        while holds.held == holds.let_go {
            let waited = self.0.holds_changed.wait_for(&mut holds, HOLD_MAX);
            assert!(!waited.timed_out(), "no call came to be held");
        }
        Held { plan: self, number: holds.held }
    }

    fn hold(&self) {
        let mut holds = self.0.holds.lock();
        holds.held += 1;
        let number = holds.held;
        self.0.holds_changed.notify_all();
        self.0.holds_changed.wait_while_for(&mut holds, |holds| holds.let_go < number, HOLD_MAX);
        holds.let_go = holds.let_go.max(number);
    }

    /// Counts a call, which touches these bytes of the file, and says what shall happen to it. Latency and holds are served here.
    fn enter(&self, class: CallClass, path: &Path, touched: Range<u64>) -> Option<Fault> {
        self.0.calls[class as usize].fetch_add(1, Ordering::Relaxed);
        if self.0.off.load(Ordering::Relaxed) {
            return None;
        }
        let mut chosen = None;
        for (rule, seen) in self.0.rules.lock().iter_mut() {
            let watched = (rule.classes.is_empty() || rule.classes.contains(&class))
                && rule.path_contains.as_ref().is_none_or(|part| path.to_string_lossy().contains(part.as_str()))
                && rule.offsets.as_ref().is_none_or(|range| range.start < touched.end && touched.start < range.end);
            if watched {
                *seen += 1;
                if *seen == rule.nth || (rule.permanent && *seen > rule.nth) {
                    chosen = chosen.or(Some(rule.fault));
                }
            }
        }
        if chosen.is_some() {
            self.0.fired.fetch_add(1, Ordering::Relaxed);
        }
        match chosen {
            Some(Fault::Latency(time)) => std::thread::sleep(time),
            Some(Fault::Hold) => self.hold(),
            Some(Fault::Panic) => panic!("injected panic, class={class:?} path={}", path.display()),
            other => return other,
        }
        None
    }

    /// For calls without data: fails or not.
    fn check(&self, class: CallClass, path: &Path) -> Result<()> {
        match self.enter(class, path, 0..0) {
            None => Ok(()),
            Some(fault) => Err(injected(fault, class, path)),
        }
    }

    /// The bit that a flip inverts: another one each time, and for each seed.
    fn bit(&self, bytes: usize) -> (usize, u8) {
        let draw = random::mix(self.0.seed ^ random::mix(self.fired()));
        ((draw / 8) as usize % bytes.max(1), 1 << (draw % 8))
    }
}

fn touched(buf: &[u8], offset: u64) -> Range<u64> {
    offset..offset.saturating_add(buf.len() as u64)
}

fn injected(fault: Fault, class: CallClass, path: &Path) -> crate::base::Error {
    let error = match fault {
        Fault::NoSpace => std::io::Error::from(std::io::ErrorKind::StorageFull),
        Fault::NoMemory => Errno::NOMEM.into(),
        Fault::NoDescriptor => Errno::MFILE.into(),
        _ => Errno::IO.into(),
    };
    failed(&format!("injected: {class:?}"), path, error)
}

/// A storage whose calls can be made to fail.
#[derive(Debug, Clone)]
pub struct FaultStorage {
    below: Arc<dyn Storage>,
    plan: FaultPlan,
}

impl FaultStorage {
    /// On top of `below`, following `plan`.
    pub fn new(below: Arc<dyn Storage>, plan: FaultPlan) -> FaultStorage {
        FaultStorage { below, plan }
    }

    /// The plan, for adding rules while running.
    pub fn plan(&self) -> &FaultPlan {
        &self.plan
    }
}

impl Storage for FaultStorage {
    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.plan.check(CallClass::Names, dir)?;
        self.below.create_dir_all(dir)
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>> {
        self.plan.check(CallClass::Open, path)?;
        let file = self.below.open(path, mode)?;
        Ok(Arc::new(FaultFile { below: file, plan: self.plan.clone(), path: path.to_path_buf() }))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.plan.check(CallClass::Query, dir)?;
        self.below.list(dir)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.plan.check(CallClass::Query, path)?;
        self.below.exists(path)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.plan.check(CallClass::Names, path)?;
        self.below.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.plan.check(CallClass::Names, from)?;
        self.below.rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.plan.check(CallClass::SyncDir, dir)?;
        self.below.sync_dir(dir)
    }

    fn open_dir(&self, dir: &Path) -> Result<Arc<dyn Directory>> {
        self.plan.check(CallClass::Open, dir)?;
        let directory = self.below.open_dir(dir)?;
        Ok(Arc::new(FaultDirectory { below: directory, plan: self.plan.clone(), path: dir.to_path_buf() }))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.plan.check(CallClass::Lock, path)?;
        self.below.lock(path)
    }

    fn free_bytes(&self, dir: &Path) -> Result<u64> {
        self.plan.check(CallClass::Query, dir)?;
        self.below.free_bytes(dir)
    }
}

#[derive(Debug)]
struct FaultDirectory {
    below: Arc<dyn Directory>,
    plan: FaultPlan,
    path: PathBuf,
}

impl Directory for FaultDirectory {
    fn sync(&self) -> Result<()> {
        self.plan.check(CallClass::SyncDir, &self.path)?;
        self.below.sync()
    }
}

#[derive(Debug)]
struct FaultFile {
    below: Arc<dyn File>,
    plan: FaultPlan,
    path: PathBuf,
}

impl FaultFile {
    /// A write, by `write` unless it fails before that.
    fn write_by(&self, buf: &[u8], offset: u64, write: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        match self.plan.enter(CallClass::Write, &self.path, touched(buf, offset)) {
            None => write(buf),
            Some(Fault::BitFlip) => {
                let mut copy = PageBuf::from_slice(buf);
                let (byte, bit) = self.plan.bit(buf.len());
                if let Some(byte) = copy.get_mut(byte) {
                    *byte ^= bit;
                }
                write(&copy)
            }
            Some(fault) => {
                if fault == Fault::ShortWrite {
                    let half = if buf.len() > ALIGNMENT { buf.len() / 2 / ALIGNMENT * ALIGNMENT } else { 0 };
                    self.below.write_at(&buf[..half], offset)?;
                }
                Err(injected(fault, CallClass::Write, &self.path))
            }
        }
    }
}

impl File for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match self.plan.enter(CallClass::Read, &self.path, touched(buf, offset)) {
            None => self.below.read_at(buf, offset),
            Some(Fault::BitFlip) => {
                self.below.read_at(buf, offset)?;
                let (byte, bit) = self.plan.bit(buf.len());
                if let Some(byte) = buf.get_mut(byte) {
                    *byte ^= bit;
                }
                Ok(())
            }
            Some(fault) => {
                Err(injected(fault, CallClass::Read, &self.path).context(format_args!("at offset={offset}")))
            }
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_by(buf, offset, |buf| self.below.write_at(buf, offset))
    }

    fn write_durable_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_by(buf, offset, |buf| match self.plan.check(CallClass::Sync, &self.path) {
            Ok(()) => self.below.write_durable_at(buf, offset),
            Err(error) => self.below.write_at(buf, offset).and(Err(error)),
        })
    }

    fn sync_data(&self) -> Result<()> {
        self.plan.check(CallClass::Sync, &self.path)?;
        self.below.sync_data()
    }

    fn len(&self) -> Result<u64> {
        self.plan.check(CallClass::Query, &self.path)?;
        self.below.len()
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.plan.check(CallClass::SetLen, &self.path)?;
        self.below.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<bool> {
        self.plan.check(CallClass::Allocate, &self.path)?;
        self.below.allocate(offset, length)
    }

    fn refused_direct(&self) -> bool {
        self.below.refused_direct()
    }

    fn punch(&self, offset: u64, length: u64) -> Result<()> {
        self.plan.check(CallClass::Punch, &self.path)?;
        self.below.punch(offset, length)
    }
}

#[cfg(test)]
mod tests;
