//! Options of a database that is to be opened. Names options by number; knows no default and no limit.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::{Error, Options, RecoveryPhase, RecoveryProgress, Result};

use crate::border::{Status, Text, enter, guard, need, unknown};
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

/// A function of C with its context. The engine wants to share it between threads; it is called in the opening one only.
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
    /// Applies a setter, which wants to own what it changes.
    fn change(&mut self, setter: impl FnOnce(Options) -> Options) {
        self.inner = setter(std::mem::take(&mut self.inner));
    }

    fn set(&mut self, option: u32, value: u64) -> Result<()> {
        let size = || usize::try_from(value).map_err(|_| too_large(option, value));
        let switch = || match value {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(too_large(option, value)),
        };
        match option {
            FROND_OPTION_CREATE_IF_MISSING => switch().map(|on| self.change(|o| o.create_if_missing(on))),
            FROND_OPTION_ERROR_IF_EXISTS => switch().map(|on| self.change(|o| o.error_if_exists(on))),
            FROND_OPTION_READ_ONLY => switch().map(|on| self.change(|o| o.read_only(on))),
            FROND_OPTION_MEMORY_BYTES => size().map(|bytes| self.change(|o| o.memory_bytes(bytes))),
            FROND_OPTION_LEVEL0_BYTES => size().map(|bytes| self.change(|o| o.level0_bytes(bytes))),
            FROND_OPTION_LOG_SEGMENT_BYTES => Ok(self.change(|o| o.log_segment_bytes(value))),
            FROND_OPTION_LOG_COMPRESSION => switch().map(|on| self.change(|o| o.log_compression(on))),
            FROND_OPTION_LOG_SYNC_PERIOD_MS => Ok(self.change(|o| o.log_sync_period_ms(value))),
            FROND_OPTION_CHECKPOINT_INTERVAL_MS => Ok(self.change(|o| o.checkpoint_interval_ms(value))),
            FROND_OPTION_RECOVERY_TARGET_MS => Ok(self.change(|o| o.recovery_target_ms(value))),
            FROND_OPTION_BACKGROUND_THREADS => size().map(|count| self.change(|o| o.background_threads(count))),
            FROND_OPTION_DIRECT_IO => switch().map(|on| self.change(|o| o.direct_io(on))),
            FROND_OPTION_BLOCK_BYTES => size().map(|bytes| self.change(|o| o.block_bytes(bytes))),
            FROND_OPTION_FILTER_BITS_PER_KEY => {
                let bits = u8::try_from(value).map_err(|_| too_large(option, value))?;
                Ok(self.change(|o| o.filter_bits_per_key(bits)))
            }
            FROND_OPTION_BLOB_BYTES_MIN => size().map(|bytes| self.change(|o| o.blob_bytes_min(bytes))),
            FROND_OPTION_LOCK_TIMEOUT_MS => Ok(self.change(|o| o.lock_timeout(Duration::from_millis(value)))),
            FROND_OPTION_MANUAL_BACKGROUND => switch().map(|on| self.change(|o| o.manual_background(on))),
            _ => Err(unknown("option", option)),
        }
    }
}

fn too_large(option: u32, value: u64) -> Error {
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
        need(options, "options")?.change(|o| o.log_dir(Some(path)));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_options_set_codec(options: Option<&mut frond_options>, number: u32, level: i32) -> Status {
    enter("frond_options_set_codec", || {
        let options = need(options, "options")?;
        let codec = codec(number, level)?.unwrap_or_default();
        options.change(|o| o.default_codec(codec));
        Ok(())
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
        need(options, "options")?.change(|o| o.on_recovery_progress(callback));
        Ok(())
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
    fn phases_have_the_names_of_the_engine() {
        use RecoveryPhase::{Done, Log, Roots, Sort, Transactions};
        for phase in [Roots, Log, Sort, Transactions, Done] {
            // Safety: a static text.
            let name = unsafe { std::ffi::CStr::from_ptr(frond_recovery_phase_name(phase_number(phase))) };
            assert_eq!(name.to_str(), Ok(phase.name()));
        }
    }
}
