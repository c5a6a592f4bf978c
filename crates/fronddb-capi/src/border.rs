//! Crossing the border: what every exported function does with panics, errors, pointers, slices and texts.
//!
//! On failure the error goes into a slot of the thread and its kind into the status. On a panic the message goes to
//! standard error and the process ends: a state that an invariant has left must not be served on (design §5).

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use engine::{Error, ErrorKind, Result};

/// `frond_status`.
pub(crate) type Status = i32;
/// A result pointer.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

pub(crate) const OK: Status = 0;

/// What stands behind slices that are empty: an address that is not NULL.
static EMPTY: u8 = 0;

struct LastError {
    status: Status,
    message: CString,
}

thread_local! {
    static LAST_ERROR: RefCell<LastError> = RefCell::new(LastError { status: OK, message: CString::default() });
}

/// Runs the body of the exported function `name` and turns its outcome into a status. Ends the process on a panic.
#[inline]
pub(crate) fn enter(name: &str, body: impl FnOnce() -> Result<()>) -> Status {
    guard(name, || match body() {
        Ok(()) => OK,
        Err(error) => remember(&error),
    })
}

/// Runs the body of an exported function that cannot fail. Ends the process on a panic.
#[inline]
pub(crate) fn guard<T>(name: &str, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => end_process(name, payload.as_ref()),
    }
}

#[cold]
fn end_process(name: &str, payload: &(dyn Any + Send)) -> ! {
    let message = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    eprintln!("fronddb: panic in {name}: {message}; the process ends, opening the database again recovers it");
    std::process::abort();
}

/// Makes `error` the thread's last one.
#[cold]
pub(crate) fn remember(error: &Error) -> Status {
    let status = error.kind() as Status;
    let message = c_string(error.to_string());
    // A thread that is ending may have given up its slot: the status alone has to do then.
    let _ = LAST_ERROR.try_with(|slot| *slot.borrow_mut() = LastError { status, message });
    status
}

/// `text` without its NULs, which C could not see past.
pub(crate) fn c_string(mut text: String) -> CString {
    text.retain(|character| character != '\0');
    CString::new(text).unwrap_or_default()
}

/// A required handle.
#[inline]
pub(crate) fn need<T>(handle: Option<T>, name: &str) -> Result<T> {
    handle.ok_or_else(|| null(name))
}

#[cold]
pub(crate) fn null(name: &str) -> Error {
    Error::invalid(format!("argument is NULL, name={name}"))
}

/// A number that names nothing.
#[cold]
pub(crate) fn unknown(name: &str, value: impl Into<i64>) -> Error {
    Error::invalid(format!("number out of range, {name}={}", value.into()))
}

/// Refuses flags outside of `known`.
#[inline]
pub(crate) fn check_flags(flags: u32, known: u32) -> Result<()> {
    if flags & !known == 0 { Ok(()) } else { Err(unknown("flags", flags)) }
}

/// Refuses a reserved field that is used.
#[inline]
pub(crate) fn check_reserved(reserved: u32) -> Result<()> {
    if reserved == 0 { Ok(()) } else { Err(unknown("reserved", reserved)) }
}

/// `frond_slice` as this library hands it out.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct frond_slice {
    pub data: *const u8,
    pub size: usize,
}

impl frond_slice {
    /// What does not exist.
    pub(crate) const NONE: frond_slice = frond_slice { data: std::ptr::null(), size: 0 };

    /// Lends bytes that exist, so that data is not NULL.
    #[inline]
    pub(crate) fn lend(bytes: &[u8]) -> frond_slice {
        let data = if bytes.is_empty() { &raw const EMPTY } else { bytes.as_ptr() };
        frond_slice { data, size: bytes.len() }
    }

    /// Lends bytes that may exist.
    #[inline]
    pub(crate) fn lend_some(bytes: Option<&[u8]>) -> frond_slice {
        bytes.map_or(frond_slice::NONE, frond_slice::lend)
    }
}

/// `frond_slice` as C gives it to this library.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    slice: frond_slice,
    caller: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes { slice: frond_slice::lend(bytes), caller: PhantomData }
    }

    /// Bytes that this library hands out, in a structure that C hands in as well.
    pub(crate) fn handed_out(slice: frond_slice) -> Bytes<'a> {
        Bytes { slice, caller: PhantomData }
    }

    #[cfg(test)]
    pub(crate) fn raw(data: *const u8, size: usize) -> Bytes<'a> {
        Bytes { slice: frond_slice { data, size }, caller: PhantomData }
    }

    /// The bytes; NULL is empty.
    #[inline]
    pub(crate) fn get(self) -> Result<&'a [u8]> {
        Ok(self.get_some()?.unwrap_or_default())
    }

    /// The bytes; NULL is none.
    #[inline]
    pub(crate) fn get_some(self) -> Result<Option<&'a [u8]>> {
        let frond_slice { data, size } = self.slice;
        if data.is_null() {
            return if size == 0 { Ok(None) } else { Err(null("slice.data")) };
        }
        if size > isize::MAX as usize {
            return Err(Error::invalid(format!("slice too long, bytes={size}")));
        }
        // Safety: not NULL, not too long; C2 for the rest. A tie to `'a`, the call, keeps C2 true.
        Ok(Some(unsafe { std::slice::from_raw_parts(data, size) }))
    }
}

/// A text that C gives to this library.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text<'a> {
    data: *const c_char,
    caller: PhantomData<&'a CStr>,
}

impl<'a> Text<'a> {
    pub(crate) fn get_some(self) -> Option<&'a CStr> {
        if self.data.is_null() {
            return None;
        }
        // Safety: not NULL; C2 says that it is readable up to its NUL while the call lasts.
        Some(unsafe { CStr::from_ptr(self.data) })
    }

    /// The text.
    pub(crate) fn get(self, name: &str) -> Result<&'a str> {
        let text = need(self.get_some(), name)?;
        text.to_str().map_err(|_| Error::invalid(format!("text is not UTF-8, name={name}")))
    }
}

/// The items of an input array.
///
/// # Safety
/// C2 for the array.
#[inline]
pub(crate) unsafe fn array<'a, T>(items: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if items.is_null() {
        return Err(null("array"));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Error::invalid(format!("array too long, count={count}")));
    }
    // Safety: not NULL, not too long; the caller promises the rest.
    Ok(unsafe { std::slice::from_raw_parts(items, count) })
}

/// Gives a text away; [`frond_string_free`] takes it back.
pub(crate) fn give_text(text: String, out: &mut MaybeUninit<*mut c_char>) {
    out.write(c_string(text).into_raw());
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn frond_string_free(string: *mut c_char) {
    guard("frond_string_free", || {
        if !string.is_null() {
            // Safety: C1: it came from `give_text`, which made it of a `CString`.
            drop(unsafe { CString::from_raw(string) });
        }
    });
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_last_error(message: Out<'_, *const c_char>) -> Status {
    guard("frond_last_error", || {
        let read = |slot: &RefCell<LastError>| {
            let last = slot.borrow();
            (last.status, last.message.as_ptr())
        };
        let (status, text) = LAST_ERROR.try_with(read).unwrap_or((OK, c"".as_ptr()));
        if let Some(message) = message {
            message.write(text);
        }
        status
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_status_name(status: Status) -> *const c_char {
    let name = match ErrorKind::ALL.get(status.wrapping_sub(1) as usize) {
        None if status == OK => c"ok",
        None => c"unknown status",
        Some(kind) => status_name(*kind),
    };
    name.as_ptr()
}

/// [`ErrorKind::name`] for C; a test compares them.
fn status_name(kind: ErrorKind) -> &'static CStr {
    match kind {
        ErrorKind::Deadlock => c"deadlock",
        ErrorKind::LockTimeout => c"lock timeout",
        ErrorKind::Conflict => c"write conflict",
        ErrorKind::KeyExists => c"key exists",
        ErrorKind::InvalidArgument => c"invalid argument",
        ErrorKind::NotFound => c"not found",
        ErrorKind::ReadOnly => c"read-only",
        ErrorKind::AlreadyOpen => c"already open",
        ErrorKind::NoSpace => c"no space",
        ErrorKind::Io => c"input/output error",
        ErrorKind::Corruption => c"corruption",
        ErrorKind::UnsupportedFormat => c"unsupported format",
        ErrorKind::Poisoned => c"poisoned",
        ErrorKind::Cancelled => c"cancelled",
        ErrorKind::Closed => c"closed",
        ErrorKind::Internal => c"internal error",
        _ => c"unknown status",
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_abi_version() -> u32 {
    crate::constants::FROND_ABI_VERSION
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_names_of_the_kinds() {
        for kind in ErrorKind::ALL {
            assert_eq!(status_name(kind).to_str(), Ok(kind.name()));
        }
    }

    #[test]
    fn the_last_error_belongs_to_its_thread() {
        assert_eq!(enter("test", || Err(Error::invalid("a\0b"))), ErrorKind::InvalidArgument as i32);
        let mut message = MaybeUninit::uninit();
        assert_eq!(frond_last_error(Some(&mut message)), ErrorKind::InvalidArgument as i32);
        // Safety: just written, and lent until this thread's next failure.
        let text = unsafe { CStr::from_ptr(message.assume_init()) };
        assert_eq!(text, c"invalid argument: ab");
        assert_eq!(std::thread::spawn(|| frond_last_error(None)).join().ok(), Some(OK));
    }

    /// Not a test by itself: the process that the next test watches.
    #[test]
    #[ignore = "ends the process"]
    fn a_panic_inside() {
        enter("frond_test", || panic!("broken invariant"));
    }

    #[test]
    fn a_panic_ends_the_process_and_says_why() {
        let program = std::env::current_exe().expect("a path");
        let output = std::process::Command::new(program)
            .args(["--exact", "--ignored", "--nocapture", "border::tests::a_panic_inside"])
            .output()
            .expect("run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("fronddb: panic in frond_test: broken invariant"), "{stderr}");
        #[cfg(unix)]
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(6), "SIGABRT");
        assert!(!output.status.success());
    }

    #[test]
    fn a_slice_is_none_empty_or_bytes_and_a_size_without_data_is_refused() {
        assert!(matches!(Bytes::raw(std::ptr::null(), 0).get_some(), Ok(None)));
        assert!(matches!(Bytes::of(b"").get_some(), Ok(Some(b""))));
        assert!(matches!(Bytes::of(b"ab").get(), Ok(b"ab")));
        assert!(Bytes::raw(std::ptr::null(), 1).get().is_err());
        assert!(Bytes::raw(&raw const EMPTY, usize::MAX).get().is_err());
    }
}
