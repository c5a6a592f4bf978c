//! Opening and closing.

use std::path::Path;

use engine::{Database, Options};

use crate::border::{OK, Out, Status, Text, enter, guard, need, null, remember};
use crate::options::frond_options;

/// The handle.
pub struct frond_db {
    pub(crate) inner: Database,
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_open(
    path: Text<'_>,
    options: Option<&frond_options>,
    db: Out<'_, Option<Box<frond_db>>>,
) -> Status {
    enter("frond_db_open", || {
        let db = need(db, "db")?;
        let path = need(path.get_some(), "path")?;
        let options = options.map_or_else(Options::new, |options| options.inner.clone());
        let inner = Database::open(os_path(path)?, options)?;
        db.write(Some(Box::new(frond_db { inner })));
        Ok(())
    })
}

/// A path as the operating system sees it: any bytes but NUL.
#[cfg(unix)]
pub(crate) fn os_path(path: &std::ffi::CStr) -> engine::Result<&Path> {
    use std::os::unix::ffi::OsStrExt as _;
    Ok(Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())))
}

#[cfg(not(unix))]
pub(crate) fn os_path(path: &std::ffi::CStr) -> engine::Result<&Path> {
    path.to_str().map(Path::new).map_err(|_| engine::Error::invalid("path is not UTF-8"))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_close(db: Option<Box<frond_db>>) -> Status {
    enter("frond_db_close", || need(db, "db")?.inner.close())
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_poisoned(db: Option<&frond_db>) -> Status {
    guard("frond_db_poisoned", || match db {
        None => remember(&null("db")),
        Some(db) => db.inner.poisoned().map_or(OK, |cause| remember(&cause)),
    })
}
