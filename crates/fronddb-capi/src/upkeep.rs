//! Upkeep: checkpoints, settings of a running database, check, compaction on request, background work by hand.

use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;
use std::time::Duration;

use engine::{CompactProgress, Error, Finding, OnlineCheckProgress};

use crate::border::{Bytes, Out, Status, c_string, enter, need};
use crate::database::frond_db;
use crate::tree::frond_tree;
use crate::types::c_structs;

c_structs! {
    frond_finding {
        file: *const c_char,
        message: *const c_char,
        offset: u64,
        tree: u32,
        tree_last: u32,
        tree_name: *const c_char,
    }
    frond_check_progress { bytes_done: u64, bytes_total: u64, }
    frond_compact_progress { bytes_done: u64, bytes_total: u64, }
}

/// Told of each finding of a check.
pub type frond_finding_fn = Option<unsafe extern "C" fn(*mut c_void, *const frond_finding)>;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_db_checkpoint(db: Option<&frond_db>) -> Status {
    enter("frond_db_checkpoint", || need(db, "db")?.inner.checkpoint())
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_sync_log(db: Option<&frond_db>) -> Status {
    enter("frond_db_sync_log", || need(db, "db")?.inner.sync_log())
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_set_memory_bytes(db: Option<&frond_db>, bytes: u64) -> Status {
    enter("frond_db_set_memory_bytes", || {
        let bytes =
            usize::try_from(bytes).map_err(|_| Error::invalid(format!("option out of range, memory_bytes={bytes}")))?;
        need(db, "db")?.inner.set_memory_bytes(bytes)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_set_checkpoint_interval_ms(db: Option<&frond_db>, interval_ms: u64) -> Status {
    enter("frond_db_set_checkpoint_interval_ms", || {
        need(db, "db")?.inner.set_checkpoint_interval(Duration::from_millis(interval_ms))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_set_recovery_target_ms(db: Option<&frond_db>, target_ms: u64) -> Status {
    enter("frond_db_set_recovery_target_ms", || {
        need(db, "db")?.inner.set_recovery_target(Duration::from_millis(target_ms))
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_set_log_sync_period_ms(db: Option<&frond_db>, period_ms: u64) -> Status {
    enter("frond_db_set_log_sync_period_ms", || {
        need(db, "db")?.inner.set_log_sync_period(Duration::from_millis(period_ms))
    })
}

/// Tells of a finding.
pub(crate) fn tell(report: frond_finding_fn, context: *mut c_void, finding: Finding) {
    let Some(report) = report else { return };
    let (file, message) = (c_string(finding.file), c_string(finding.message));
    let tree_name = finding.tree_name.map(c_string);
    let finding = frond_finding {
        file: file.as_ptr(),
        message: message.as_ptr(),
        offset: finding.offset.unwrap_or(u64::MAX),
        tree: finding.tree.map_or(0, |tree| tree.0),
        tree_last: finding.tree_last.map_or(0, |tree| tree.0),
        tree_name: tree_name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr()),
    };
    // Safety: the header binds the callback: it takes what it was declared for, returns and does not throw.
    unsafe { report(context, &raw const finding) }
}

/// Told of the progress of a check; false ends it.
pub type frond_check_fn = Option<unsafe extern "C" fn(*mut c_void, *const frond_check_progress) -> bool>;

fn go_on(wanted: bool) -> ControlFlow<()> {
    if wanted { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_db_check(
    db: Option<&frond_db>,
    report: frond_finding_fn,
    progress: frond_check_fn,
    context: *mut c_void,
    findings: Out<'_, u64>,
) -> Status {
    enter("frond_db_check", || {
        let mut found = 0;
        let mut report = |finding| {
            found += 1;
            tell(report, context, finding);
        };
        let mut told = |done: OnlineCheckProgress| {
            let Some(progress) = progress else { return ControlFlow::Continue(()) };
            let done = frond_check_progress { bytes_done: done.bytes_done, bytes_total: done.bytes_total };
            // Safety: the header binds the callback: it takes what it was declared for, returns and does not throw.
            go_on(unsafe { progress(context, &raw const done) })
        };
        need(db, "db")?.inner.check(&mut report, Some(&mut told))?;
        if let Some(findings) = findings {
            findings.write(found);
        }
        Ok(())
    })
}

/// Told of the progress of a compaction; false ends it.
pub type frond_compact_fn = Option<unsafe extern "C" fn(*mut c_void, *const frond_compact_progress) -> bool>;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_db_compact(
    db: Option<&frond_db>,
    tree: Option<&frond_tree>,
    lower: Bytes<'_>,
    upper: Bytes<'_>,
    progress: frond_compact_fn,
    context: *mut c_void,
) -> Status {
    enter("frond_db_compact", || {
        let mut told = |done: CompactProgress| {
            let Some(progress) = progress else { return ControlFlow::Continue(()) };
            let done = frond_compact_progress { bytes_done: done.bytes_done, bytes_total: done.bytes_total };
            // Safety: the header binds the callback: it takes what it was declared for, returns and does not throw.
            go_on(unsafe { progress(context, &raw const done) })
        };
        let tree = tree.map(|tree| &tree.inner);
        need(db, "db")?.inner.compact(tree, lower.get()?, upper.get()?, &mut told)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_step_background(db: Option<&frond_db>, worked: Out<'_, bool>) -> Status {
    enter("frond_db_step_background", || {
        let did = need(db, "db")?.inner.step_background()?;
        if let Some(worked) = worked {
            worked.write(did);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_is_warm(db: Option<&frond_db>, warm: Out<'_, bool>) -> Status {
    enter("frond_db_is_warm", || {
        let (db, warm) = (need(db, "db")?, need(warm, "warm")?);
        warm.write(db.inner.is_warm());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_wait_idle(db: Option<&frond_db>) -> Status {
    enter("frond_db_wait_idle", || need(db, "db")?.inner.wait_idle())
}
