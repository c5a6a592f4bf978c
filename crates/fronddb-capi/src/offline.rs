//! Databases that nobody has open: check and salvage.

use std::ffi::{c_char, c_void};
use std::path::PathBuf;

use engine::{CheckOptions, CheckProgress, Error, Finding, Result};

use crate::border::{Out, Status, Text, c_string, enter, give_text, need};
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
