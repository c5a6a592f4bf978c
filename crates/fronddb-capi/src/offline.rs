//! Databases that nobody has open: check, salvage, and what their log says.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;

use engine::{CheckOptions, CheckProgress, Error, Finding, LogAction, LogEvent, Result};

use crate::border::{Out, Status, Text, c_string, enter, frond_slice, give_text, need};
use crate::constants::*;
use crate::database::os_path;
use crate::types::c_structs;
use crate::upkeep::{frond_finding_fn, tell};

c_structs! {
    frond_offline_progress { phase: *const c_char, done: u64, total: u64, findings: u64, }
    frond_offline_options<'a> {
        log_dir: Text<'a>,
        memory_bytes: u64,
        finding: frond_finding_fn,
        progress: frond_offline_progress_fn,
        context: *mut c_void,
    }
    frond_log_event {
        lsn: u64,
        txn: u64,
        step: u32,
        step_last: u32,
        action: u32,
        op: u32,
        flags: u32,
        tree: u32,
        key: frond_slice,
        value: frond_slice,
        number: u64,
    }
}

/// Told how far a check or a salvage is.
pub type frond_offline_progress_fn = Option<unsafe extern "C" fn(*mut c_void, *const frond_offline_progress)>;

/// Who is told of what.
#[derive(Default)]
struct Listener {
    finding: frond_finding_fn,
    progress: frond_offline_progress_fn,
    context: Option<*mut c_void>,
}

impl Listener {
    fn context(&self) -> *mut c_void {
        self.context.unwrap_or(std::ptr::null_mut())
    }

    fn progress(&self, now: &CheckProgress) {
        let Some(progress) = self.progress else { return };
        let phase = c_string(now.phase.to_owned());
        let now =
            frond_offline_progress { phase: phase.as_ptr(), done: now.done, total: now.total, findings: now.findings };
        // Safety: the header binds the callback: it takes what it was declared for, returns and does not throw.
        unsafe { progress(self.context(), &raw const now) }
    }

    fn findings(&self, findings: Vec<Finding>) {
        findings.into_iter().for_each(|finding| tell(self.finding, self.context(), finding));
    }
}

/// The engine's options; the defaults for NULL.
fn to_engine(options: Option<&frond_offline_options<'_>>) -> Result<(CheckOptions, Listener)> {
    let mut engine = CheckOptions::default();
    let Some(options) = options else { return Ok((engine, Listener::default())) };
    if options.log_dir.get_some().is_some() {
        engine.log_dir = Some(PathBuf::from(options.log_dir.get("log_dir")?));
    }
    if options.memory_bytes != 0 {
        let bytes = options.memory_bytes;
        engine.memory_bytes =
            usize::try_from(bytes).map_err(|_| Error::invalid(format!("option out of range, memory_bytes={bytes}")))?;
    }
    let listener = Listener { finding: options.finding, progress: options.progress, context: Some(options.context) };
    Ok((engine, listener))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_check(
    path: Text<'_>,
    options: Option<&frond_offline_options<'_>>,
    findings: Out<'_, u64>,
    json: Out<'_, *mut c_char>,
) -> Status {
    enter("frond_check", || {
        let path = os_path(need(path.get_some(), "path")?)?;
        let (options, listener) = to_engine(options)?;
        let report = engine::check(path, &options, &mut |now| listener.progress(now))?;
        if let Some(findings) = findings {
            findings.write(report.findings.len() as u64);
        }
        if let Some(json) = json {
            give_text(report.to_json(), json);
        }
        listener.findings(report.findings);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_salvage(
    from: Text<'_>,
    to: Text<'_>,
    options: Option<&frond_offline_options<'_>>,
    rows: Out<'_, u64>,
    json: Out<'_, *mut c_char>,
) -> Status {
    enter("frond_salvage", || {
        let from = os_path(need(from.get_some(), "from")?)?;
        let to = os_path(need(to.get_some(), "to")?)?;
        let (options, listener) = to_engine(options)?;
        let report = engine::salvage(from, to, &options, &mut |now| listener.progress(now))?;
        if let Some(rows) = rows {
            rows.write(report.rows());
        }
        if let Some(json) = json {
            give_text(report.to_json(), json);
        }
        listener.findings(report.findings);
        Ok(())
    })
}

/// Told of what the log says; false ends it.
pub type frond_log_event_fn = Option<unsafe extern "C" fn(*mut c_void, *const frond_log_event) -> bool>;

impl From<&LogEvent<'_>> for frond_log_event {
    fn from(from: &LogEvent<'_>) -> frond_log_event {
        let mut event = frond_log_event {
            lsn: from.lsn.0,
            txn: from.txn.0,
            step: from.step,
            step_last: from.step,
            action: 0,
            op: 0,
            flags: 0,
            tree: 0,
            key: frond_slice::NONE,
            value: frond_slice::NONE,
            number: 0,
        };
        match from.action {
            LogAction::Message { kind, tree, key, payload, blob } => {
                event.action = FROND_ACTION_WRITE;
                event.op = match kind {
                    "put" => FROND_OP_PUT,
                    "insert-if-absent" => FROND_OP_INSERT_IF_ABSENT,
                    "delete" => FROND_OP_DELETE,
                    "single-delete" => FROND_OP_SINGLE_DELETE,
                    _ => FROND_OP_UPDATE,
                };
                event.flags = if blob { FROND_LOG_EVENT_BLOB } else { 0 };
                (event.tree, event.key, event.value) = (tree.0, frond_slice::lend(key), frond_slice::lend(payload));
            }
            LogAction::RangeDelete { tree, start, end } => {
                event.action = FROND_ACTION_DELETE_RANGE;
                (event.tree, event.key, event.value) = (tree.0, frond_slice::lend(start), frond_slice::lend(end));
            }
            LogAction::Commit { number } => (event.action, event.number) = (FROND_ACTION_COMMIT, number.0),
            LogAction::Abort => event.action = FROND_ACTION_ABORT,
            LogAction::AbortSteps { from, to } => {
                (event.action, event.step, event.step_last) = (FROND_ACTION_ABORT_STEPS, from, to);
            }
            LogAction::Prepare { xid, locks } => {
                (event.action, event.key, event.number) = (FROND_ACTION_PREPARE, frond_slice::lend(xid), locks);
            }
            LogAction::Locks { locks } => (event.action, event.number) = (FROND_ACTION_LOCKS, locks),
        }
        event
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_log_events(
    path: Text<'_>,
    options: Option<&frond_offline_options<'_>>,
    visit: frond_log_event_fn,
    context: *mut c_void,
) -> Status {
    enter("frond_log_events", || {
        let path = os_path(need(path.get_some(), "path")?)?;
        let (options, _) = to_engine(options)?;
        let visit = need(visit, "visit")?;
        engine::log_records(path, &options, &mut |event| {
            let event = frond_log_event::from(event);
            // Safety: the header binds the callback: it takes what it was declared for, returns and does not throw.
            unsafe { visit(context, &raw const event) }
        })
    })
}
