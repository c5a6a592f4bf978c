//! Statistics and recovery, as structures and as JSON.
//!
//! The fields of `frond_statistics` are the engine's, by name and in its order; a test compares them.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;

use engine::{CheckpointCause, Distribution, RecoveryReport, Statistics};

use crate::border::{Out, Status, enter, give_text, guard, need, null, unknown};
use crate::constants::{
    FROND_CHECKPOINT_BY_REQUEST, FROND_CHECKPOINT_BY_SIZE, FROND_CHECKPOINT_BY_TARGET, FROND_CHECKPOINT_BY_TIME,
};
use crate::database::frond_db;
use crate::types::c_structs;

/// Declares `frond_statistics` with its conversion, and the table of its fields.
macro_rules! statistics {
    (distributions: $($distribution:ident)*; numbers: $($number:ident)*) => {
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        pub struct frond_statistics {
            $(pub $distribution: frond_distribution,)*
            $(pub $number: u64,)*
        }

        impl From<&Statistics> for frond_statistics {
            fn from(from: &Statistics) -> frond_statistics {
                frond_statistics {
                    $($distribution: (&from.$distribution).into(),)*
                    $($number: from.$number,)*
                }
            }
        }

        /// Names and offsets of all numbers, those inside distributions included.
        const FIELDS: &[(&str, usize)] = &[
            $(
                (concat!(stringify!($distribution), "_count\0"), distribution_offset!($distribution, count)),
                (concat!(stringify!($distribution), "_sum_micros\0"), distribution_offset!($distribution, sum_micros)),
                (concat!(stringify!($distribution), "_p50_micros\0"), distribution_offset!($distribution, p50_micros)),
                (concat!(stringify!($distribution), "_p95_micros\0"), distribution_offset!($distribution, p95_micros)),
                (concat!(stringify!($distribution), "_p99_micros\0"), distribution_offset!($distribution, p99_micros)),
                (
                    concat!(stringify!($distribution), "_p999_micros\0"),
                    distribution_offset!($distribution, p999_micros),
                ),
                (concat!(stringify!($distribution), "_max_micros\0"), distribution_offset!($distribution, max_micros)),
            )*
            $((concat!(stringify!($number), "\0"), std::mem::offset_of!(frond_statistics, $number)),)*
        ];

        #[cfg(test)]
        const NUMBERS: &[&str] = &[$(stringify!($number)),*];

        #[cfg(test)]
        pub(crate) fn statistics_layout() -> crate::types::Layout {
            crate::types::Layout {
                name: "frond_statistics",
                bytes: size_of::<frond_statistics>(),
                fields: vec![
                    $((stringify!($distribution), std::mem::offset_of!(frond_statistics, $distribution)),)*
                    $((stringify!($number), std::mem::offset_of!(frond_statistics, $number)),)*
                ],
            }
        }
    };
}

macro_rules! distribution_offset {
    ($distribution:ident, $field:ident) => {
        std::mem::offset_of!(frond_statistics, $distribution) + std::mem::offset_of!(frond_distribution, $field)
    };
}

statistics! {
    distributions: commit read stall log_sync;
    numbers:
        uptime_micros begins commits commits_read_only rollbacks gets gets_found cursor_seeks cursor_steps
        messages user_bytes log_bytes log_bytes_written log_records log_syncs blob_bytes seal_bytes flush_bytes
        compact_bytes publish_bytes seals compactions compactions_for_reads publications checkpoints_by_time checkpoints_by_size
        checkpoints_by_target checkpoints_by_request blocks_read bytes_read cache_hits cache_misses cache_decodes
        lock_waits lock_timeouts deadlocks stalls memory_bytes_max memory_bytes memory_level0_bytes memory_metadata_bytes
        memory_cache_bytes memory_lock_bytes memory_work_bytes level0_bytes level0_bytes_max sealed_memtables
        root_runs pending_bytes height transactions_open transactions_prepared aborted_ids locks_held
        commit_number oldest_snapshot log_end log_live_bytes recovery_micros file_bytes file_bytes_used
        file_bytes_live generation write_checks blocks_read_point blocks_read_scan blocks_read_meta blocks_read_bulk
        run_lookups filter_negatives filter_positives filter_false_positives
}

c_structs! {
    #[derive(Default)]
    frond_distribution {
        count: u64,
        sum_micros: u64,
        p50_micros: u64,
        p95_micros: u64,
        p99_micros: u64,
        p999_micros: u64,
        max_micros: u64,
    }
    #[derive(Default)]
    frond_recovery_report {
        created: u32,
        superblocks_skipped: u32,
        generation: u64,
        segments: u64,
        bytes_read: u64,
        bytes_replayed: u64,
        records: u64,
        messages: u64,
        log_end: u64,
        committed: u64,
        aborted: u64,
        prepared: u64,
        roots_micros: u64,
        log_micros: u64,
        sort_micros: u64,
        transactions_micros: u64,
        total_micros: u64,
    }
    frond_recovery_estimate { bytes: u64, messages: u64, micros: u64, }
    frond_checkpoint_summary {
        count: u64,
        finished: u64,
        age_micros: u64,
        last_micros: u64,
        max_micros: u64,
        sum_micros: u64,
    }
}

impl From<&Distribution> for frond_distribution {
    fn from(from: &Distribution) -> frond_distribution {
        frond_distribution {
            count: from.count,
            sum_micros: from.sum_micros,
            p50_micros: from.p50_micros,
            p95_micros: from.p95_micros,
            p99_micros: from.p99_micros,
            p999_micros: from.p999_micros,
            max_micros: from.max_micros,
        }
    }
}

impl From<&RecoveryReport> for frond_recovery_report {
    fn from(from: &RecoveryReport) -> frond_recovery_report {
        let phase = |name| from.phase_micros.iter().filter(|phase| phase.0 == name).map(|phase| phase.1).sum();
        frond_recovery_report {
            created: u32::from(from.created),
            superblocks_skipped: from.superblocks_skipped,
            generation: from.generation,
            segments: from.segments,
            bytes_read: from.bytes_read,
            bytes_replayed: from.bytes_replayed,
            records: from.records,
            messages: from.messages,
            log_end: from.log_end,
            committed: from.committed,
            aborted: from.aborted,
            prepared: from.prepared,
            roots_micros: phase("roots"),
            log_micros: phase("log"),
            sort_micros: phase("sort"),
            transactions_micros: phase("transactions"),
            total_micros: from.total_micros,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_db_statistics(db: Option<&frond_db>, out: *mut frond_statistics, size: usize) -> Status {
    enter("frond_db_statistics", || {
        let db = need(db, "db")?;
        if out.is_null() {
            return Err(null("statistics"));
        }
        let statistics = frond_statistics::from(&db.inner.statistics()?);
        let known = size.min(size_of::<frond_statistics>());
        let out = out.cast::<u8>();
        // Safety: C1 for `size` bytes, whatever version of the structure the caller has; `known` is no more than both.
        unsafe {
            out.copy_from_nonoverlapping((&raw const statistics).cast(), known);
            out.add(known).write_bytes(0, size - known);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_statistics_field(index: usize, name: Out<'_, *const c_char>, offset: Out<'_, usize>) -> bool {
    guard("frond_statistics_field", || {
        let Some((field, at)) = FIELDS.get(index) else { return false };
        if let Some(name) = name {
            name.write(CStr::from_bytes_until_nul(field.as_bytes()).unwrap_or_default().as_ptr());
        }
        if let Some(offset) = offset {
            offset.write(*at);
        }
        true
    })
}

fn json(name: &str, out: Out<'_, *mut c_char>, text: impl FnOnce() -> engine::Result<String>) -> Status {
    enter(name, || {
        let out: &mut MaybeUninit<_> = need(out, "json")?;
        give_text(text()?, out);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_statistics_json(db: Option<&frond_db>, out: Out<'_, *mut c_char>) -> Status {
    json("frond_db_statistics_json", out, || Ok(need(db, "db")?.inner.statistics()?.to_json()))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_recovery_report(db: Option<&frond_db>, report: Out<'_, frond_recovery_report>) -> Status {
    enter("frond_db_recovery_report", || {
        let (db, out) = (need(db, "db")?, need(report, "report")?);
        out.write((&db.inner.recovery_report()?).into());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_recovery_report_json(db: Option<&frond_db>, out: Out<'_, *mut c_char>) -> Status {
    json("frond_db_recovery_report_json", out, || Ok(need(db, "db")?.inner.recovery_report()?.to_json()))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_checkpoint_summary(
    db: Option<&frond_db>,
    cause: u32,
    summary: Out<'_, frond_checkpoint_summary>,
) -> Status {
    enter("frond_db_checkpoint_summary", || {
        let (db, out) = (need(db, "db")?, need(summary, "summary")?);
        let cause = match cause {
            FROND_CHECKPOINT_BY_TIME => CheckpointCause::Time,
            FROND_CHECKPOINT_BY_SIZE => CheckpointCause::Size,
            FROND_CHECKPOINT_BY_TARGET => CheckpointCause::Target,
            FROND_CHECKPOINT_BY_REQUEST => CheckpointCause::Request,
            _ => return Err(unknown("cause", cause)),
        };
        let summary = db.inner.checkpoint_summary(cause)?;
        out.write(frond_checkpoint_summary {
            count: summary.count,
            finished: summary.finished,
            age_micros: summary.age_micros.unwrap_or(u64::MAX),
            last_micros: summary.last_micros,
            max_micros: summary.max_micros,
            sum_micros: summary.sum_micros,
        });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_estimated_recovery(
    db: Option<&frond_db>,
    estimate: Out<'_, frond_recovery_estimate>,
) -> Status {
    enter("frond_db_estimated_recovery", || {
        let (db, out) = (need(db, "db")?, need(estimate, "estimate")?);
        let estimate = db.inner.estimated_recovery()?;
        out.write(frond_recovery_estimate {
            bytes: estimate.bytes,
            messages: estimate.messages,
            micros: estimate.micros,
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_the_engines_by_name_and_order() {
        let names: Vec<_> = Statistics::default().numbers().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, NUMBERS);
    }

    #[test]
    fn fields_cover_the_structure_without_a_gap() {
        for (index, (name, offset)) in FIELDS.iter().enumerate() {
            assert_eq!(*offset, index * 8, "{name}");
        }
        assert_eq!(FIELDS.len() * 8, size_of::<frond_statistics>());
        assert!(!frond_statistics_field(FIELDS.len(), None, None));
    }

    #[test]
    fn a_report_keeps_its_phases() {
        let phase_micros = [("roots", 1), ("log", 2), ("sort", 3), ("transactions", 4)];
        let report = frond_recovery_report::from(&RecoveryReport { phase_micros, ..RecoveryReport::default() });
        let phases = [report.roots_micros, report.log_micros, report.sort_micros, report.transactions_micros];
        assert_eq!(phases, [1, 2, 3, 4]);
    }
}
