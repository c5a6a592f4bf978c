//! Options of a database that is to be opened. Names options by number; knows no default and no limit.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::{Error, Options, RecoveryPhase, RecoveryProgress, Result};

use crate::border::{Status, Text, c_string, enter, guard, need, unknown};
use crate::constants::*;
use crate::types::{c_structs, codec};

/// The handle.
pub struct frond_options {
    pub(crate) inner: Options,
}

c_structs! {
    frond_recovery_progress { phase: u32, reserved: u32, bytes_done: u64, bytes_total: u64, }
}

/// Told of recovery's progress.
pub type frond_progress_fn = Option<unsafe extern "C" fn(*mut c_void, *const frond_recovery_progress)>;

/// A function of C with its context. The engine wants to share it between threads; it is called in the opening one
/// only.
struct Progress {
    function: unsafe extern "C" fn(*mut c_void, *const frond_recovery_progress),
    context: *mut c_void,
}

// Safety: the context is only handed back, in the thread that opens the database, as the header says.
unsafe impl Send for Progress {}
// Safety: as above.
unsafe impl Sync for Progress {}

impl Progress {
    fn tell(&self, progress: &RecoveryProgress) {
        let progress = frond_recovery_progress {
            phase: phase_number(progress.phase),
            reserved: 0,
            bytes_done: progress.bytes_done,
            bytes_total: progress.bytes_total,
        };
        // Safety: C1 and the header bind the callback: it takes what it was declared for, returns and does not throw.
        unsafe { (self.function)(self.context, &raw const progress) }
    }
}

fn phase_number(phase: RecoveryPhase) -> u32 {
    match phase {
        RecoveryPhase::Roots => FROND_RECOVERY_ROOTS,
        RecoveryPhase::Log => FROND_RECOVERY_LOG,
        RecoveryPhase::Sort => FROND_RECOVERY_SORT,
        RecoveryPhase::Transactions => FROND_RECOVERY_TRANSACTIONS,
        RecoveryPhase::Done => FROND_RECOVERY_DONE,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_recovery_phase_name(phase: u32) -> *const std::ffi::c_char {
    let name = match phase {
        FROND_RECOVERY_ROOTS => c"roots",
        FROND_RECOVERY_LOG => c"log",
        FROND_RECOVERY_SORT => c"sort",
        FROND_RECOVERY_TRANSACTIONS => c"transactions",
        FROND_RECOVERY_DONE => c"done",
        _ => c"unknown phase",
    };
    name.as_ptr()
}

impl frond_options {
    /// Applies a setter, which wants to own what it changes, to a value that has passed its check.
    fn apply<T>(&mut self, value: Result<T>, setter: fn(Options, T) -> Options) -> Result<()> {
        let value = value?;
        self.inner = setter(std::mem::take(&mut self.inner), value);
        Ok(())
    }

    fn set(&mut self, option: u32, value: u64) -> Result<()> {
        let size = || usize::try_from(value).map_err(|_| out_of_range(option, value));
        let switch = || match value {
            0 | 1 => Ok(value == 1),
            _ => Err(out_of_range(option, value)),
        };
        match option {
            FROND_OPTION_CREATE_IF_MISSING => self.apply(switch(), Options::create_if_missing),
            FROND_OPTION_ERROR_IF_EXISTS => self.apply(switch(), Options::error_if_exists),
            FROND_OPTION_READ_ONLY => self.apply(switch(), Options::read_only),
            FROND_OPTION_MEMORY_BYTES => self.apply(size(), Options::memory_bytes),
            FROND_OPTION_LEVEL0_BYTES => self.apply(size(), Options::level0_bytes),
            FROND_OPTION_LOG_SEGMENT_BYTES => self.apply(Ok(value), Options::log_segment_bytes),
            FROND_OPTION_LOG_COMPRESSION => self.apply(switch(), Options::log_compression),
            FROND_OPTION_LOG_SYNC_PERIOD_MS => self.apply(Ok(value), Options::log_sync_period_ms),
            FROND_OPTION_CHECKPOINT_INTERVAL_MS => self.apply(Ok(value), Options::checkpoint_interval_ms),
            FROND_OPTION_RECOVERY_TARGET_MS => self.apply(Ok(value), Options::recovery_target_ms),
            FROND_OPTION_BACKGROUND_THREADS => self.apply(size(), Options::background_threads),
            FROND_OPTION_DIRECT_IO => self.apply(switch(), Options::direct_io),
            FROND_OPTION_BLOCK_BYTES => self.apply(size(), Options::block_bytes),
            FROND_OPTION_FILTER_BITS_PER_KEY => {
                self.apply(u8::try_from(value).map_err(|_| out_of_range(option, value)), Options::filter_bits_per_key)
            }
            FROND_OPTION_BLOB_BYTES_MIN => self.apply(size(), Options::blob_bytes_min),
            FROND_OPTION_LOCK_TIMEOUT_MS => self.apply(Ok(Duration::from_millis(value)), Options::lock_timeout),
            FROND_OPTION_MANUAL_BACKGROUND => self.apply(switch(), Options::manual_background),
            _ => Err(unknown("option", option)),
        }
    }
}

fn out_of_range(option: u32, value: u64) -> Error {
    Error::invalid(format!("option out of range, option={option} value={value}"))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_new() -> Box<frond_options> {
    guard("frond_options_new", || Box::new(frond_options { inner: Options::new() }))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_free(options: Option<Box<frond_options>>) {
    guard("frond_options_free", || drop(options));
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_set(options: Option<&mut frond_options>, option: u32, value: u64) -> Status {
    enter("frond_options_set", || need(options, "options")?.set(option, value))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_set_log_dir(options: Option<&mut frond_options>, path: Text<'_>) -> Status {
    enter("frond_options_set_log_dir", || {
        let path = PathBuf::from(path.get("path")?);
        need(options, "options")?.apply(Ok(Some(path)), Options::log_dir)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_set_codec(options: Option<&mut frond_options>, number: u32, level: i32) -> Status {
    enter("frond_options_set_codec", || {
        need(options, "options")?.apply(codec(number, level).map(Option::unwrap_or_default), Options::default_codec)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_set_progress(
    options: Option<&mut frond_options>,
    function: frond_progress_fn,
    context: *mut c_void,
) -> Status {
    enter("frond_options_set_progress", || {
        let callback = function.map(|function| {
            let progress = Progress { function, context };
            Arc::new(move |now: &RecoveryProgress| progress.tell(now)) as engine::ProgressCallback
        });
        need(options, "options")?.apply(Ok(callback), Options::on_recovery_progress)
    })
}

/// Told who is about to wait for whom.
pub type frond_wait_observer_fn = Option<unsafe extern "C" fn(*mut c_void, u64, u64)>;
/// Told whose wait is over.
pub type frond_wait_end_fn = Option<unsafe extern "C" fn(*mut c_void, u64)>;
/// Asked for the victim of a deadlock.
pub type frond_victim_fn = Option<unsafe extern "C" fn(*mut c_void, u64, u64) -> i32>;
/// Told of events.
pub type frond_log_fn = Option<unsafe extern "C" fn(*mut c_void, u32, *const c_char)>;

/// The context of a function that any thread may call.
#[derive(Clone, Copy)]
struct Context(*mut c_void);

// Safety: the context is only handed back; that any thread may use it is what the header asks of the caller.
unsafe impl Send for Context {}
// Safety: as above.
unsafe impl Sync for Context {}

impl Context {
    fn get(self) -> *mut c_void {
        self.0
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_set_wait_observer(
    options: Option<&mut frond_options>,
    observer: frond_wait_observer_fn,
    context: *mut c_void,
) -> Status {
    enter("frond_options_set_wait_observer", || {
        let context = Context(context);
        let callback = observer.map(|observer| {
            // Safety: C1 and the header bind the callback: it takes what it was declared for, returns and does not throw.
            let tell = move |waiter, blocker| unsafe { observer(context.get(), waiter, blocker) };
            Arc::new(tell) as engine::WaitCallback
        });
        need(options, "options")?.apply(Ok(callback), Options::on_lock_wait)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_set_wait_end(
    options: Option<&mut frond_options>,
    observer: frond_wait_end_fn,
    context: *mut c_void,
) -> Status {
    enter("frond_options_set_wait_end", || {
        let context = Context(context);
        let callback = observer.map(|observer| {
            // Safety: as for the observer.
            let tell = move |waiter| unsafe { observer(context.get(), waiter) };
            Arc::new(tell) as engine::WaitEndCallback
        });
        need(options, "options")?.apply(Ok(callback), Options::on_lock_wait_end)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_set_victim_preference(
    options: Option<&mut frond_options>,
    preference: frond_victim_fn,
    context: *mut c_void,
) -> Status {
    enter("frond_options_set_victim_preference", || {
        let context = Context(context);
        let callback = preference.map(|preference| {
            // Safety: as for the observer.
            let ask = move |one, other| unsafe { preference(context.get(), one, other) }.cmp(&0);
            Arc::new(ask) as engine::VictimCallback
        });
        need(options, "options")?.apply(Ok(callback), Options::on_deadlock)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_set_log(
    options: Option<&mut frond_options>,
    log: frond_log_fn,
    context: *mut c_void,
) -> Status {
    enter("frond_options_set_log", || {
        let context = Context(context);
        let callback = log.map(|log| {
            let tell = move |level: engine::LogLevel, message: &str| {
                let message = c_string(message.to_owned());
                // Safety: as for the observer.
                unsafe { log(context.get(), level as u32, message.as_ptr()) }
            };
            Arc::new(tell) as engine::LogCallback
        });
        need(options, "options")?.apply(Ok(callback), Options::on_log)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_the_header_is_known_and_checked() {
        let mut options = frond_options_new();
        for option in 1..=17 {
            assert_eq!(frond_options_set(Some(&mut options), option, 1), 0, "option={option}");
        }
        assert_eq!(frond_options_set(Some(&mut options), 18, 1), 5);
        assert_eq!(frond_options_set(Some(&mut options), FROND_OPTION_READ_ONLY, 2), 5);
        assert_eq!(frond_options_set(Some(&mut options), FROND_OPTION_FILTER_BITS_PER_KEY, 256), 5);
        assert_eq!(frond_options_set(None, 1, 1), 5);
    }

    #[test]
    fn levels_have_the_numbers_of_the_engine() {
        use engine::LogLevel::{Error, Note, Warning};
        let numbers = [Error, Warning, Note].map(|level| level as u32);
        assert_eq!(numbers, [FROND_LOG_ERROR, FROND_LOG_WARNING, FROND_LOG_NOTE]);
    }

    #[test]
    fn phases_have_the_names_of_the_engine() {
        use RecoveryPhase::{Done, Log, Roots, Sort, Transactions};
        for phase in [Roots, Log, Sort, Transactions, Done] {
            // Safety: a static text.
            let name = unsafe { std::ffi::CStr::from_ptr(frond_recovery_phase_name(phase_number(phase))) };
            assert_eq!(name.to_str(), Ok(phase.name()));
        }
    }
}
