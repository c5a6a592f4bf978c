//! Memory for direct I/O: aligned to [`PAGE_BYTES`], zeroed, and a whole number of pages long.
//!
//! A [`PageBuf`] derefs to the bytes asked for; [`PageBuf::padded`] is the same memory rounded up to whole
//! pages, which is what goes to a direct file. Small buffers come from the allocator. Large ones are
//! anonymous maps: they are zeroed by the kernel only where they are touched, and go back to the
//! system when dropped, whichever allocator the host program uses.
//!
//! A *large* buffer is a map for which the system is asked for its large pages: where memory is touched all over, much of
//! the time goes into finding small ones, above all in a virtual machine.
//!
//! - B1: `pointer` is aligned to a page and owns `capacity` initialised bytes (dangling when that is 0).
//! - B2: `length <= capacity`, and `capacity` is a multiple of a page.
//! - B3: a buffer is mapped exactly when `capacity >= MAPPED_BYTES_MIN`.
#![allow(unsafe_code, reason = "aligned allocation and anonymous maps have no safe form")]

use std::alloc::Layout;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::space::PAGE_BYTES;

/// Alignment of the memory, and unit of its length: a page.
pub const ALIGNMENT: usize = PAGE_BYTES as usize;
/// Buffers of at least this many bytes are anonymous maps.
pub const MAPPED_BYTES_MIN: usize = 16 << 10;
/// Bytes of a large page, as of most processors: no more than a size where it is another.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;

#[repr(align(4096))]
struct Aligned;

const _: () = assert!(align_of::<Aligned>() == ALIGNMENT, "the literal above is the alignment");

/// Stands for no memory: page-aligned, not null, never dereferenced.
const DANGLING: NonNull<u8> = NonNull::<Aligned>::dangling().cast();

/// Page-aligned zeroed memory.
pub struct PageBuf {
    pointer: NonNull<u8>,
    length: usize,
    capacity: usize,
}

// Safety: a `PageBuf` owns its memory alone and hands it out by the borrow rules of `&self` and `&mut self`.
unsafe impl Send for PageBuf {}
// Safety: as above; `&PageBuf` gives shared reads only.
unsafe impl Sync for PageBuf {}

/// `length` rounded up to whole pages.
pub fn round_up(length: usize) -> usize {
    length.checked_next_multiple_of(ALIGNMENT).unwrap_or_else(|| capacity_overflow(length))
}

#[cold]
fn capacity_overflow(length: usize) -> ! {
    panic!("buffer of {length} bytes asked for")
}

impl PageBuf {
    /// `length` zeros, in memory rounded up to whole pages.
    ///
    /// # Panics
    /// Aborts when memory is exhausted, as every Rust allocation does.
    pub fn zeroed(length: usize) -> PageBuf {
        let capacity = round_up(length);
        if capacity == 0 {
            return PageBuf { pointer: DANGLING, length: 0, capacity: 0 };
        }
        let pointer = if is_mapped(capacity) {
            map(capacity, ALIGNMENT)
        } else {
            let layout = layout(capacity);
            // Safety: the layout's size is not 0.
            let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
            NonNull::new(pointer).unwrap_or_else(|| std::alloc::handle_alloc_error(layout))
        };
        PageBuf { pointer, length, capacity }
    }

    /// Zeros in a map of which parts may be given back by [`PageBuf::discard`]: without large pages, so that
    /// what is resident is known by page.
    ///
    /// # Panics
    /// When `length` is below [`MAPPED_BYTES_MIN`].
    pub fn scattered(length: usize) -> PageBuf {
        assert!(length >= MAPPED_BYTES_MIN, "length={length}");
        let mut buf = PageBuf::zeroed(length);
        buf.ask_for_large(0, buf.capacity, false);
        buf
    }

    /// Zeros in a map that begins with a large page, of large pages if the system has them.
    ///
    /// # Panics
    /// When `length` is not of whole large pages, or 0.
    pub fn large(length: usize) -> PageBuf {
        assert!(length > 0 && length.is_multiple_of(LARGE_PAGE_BYTES), "length={length}");
        if !is_mapped(length) {
            return PageBuf::zeroed(length);
        }
        let mut buf = PageBuf { pointer: map(length, LARGE_PAGE_BYTES), length, capacity: length };
        buf.ask_for_large(0, length, true);
        buf
    }

    /// Asks the system for large pages in a part of a mapped buffer, or for small ones: what is touched from now on. No
    /// content changes, and a system without large pages refuses.
    ///
    /// # Panics
    /// When the range is not inside the buffer.
    pub fn ask_for_large(&mut self, start: usize, bytes: usize, large: bool) {
        let pointer = self.raw(start, bytes);
        #[cfg(not(miri))]
        {
            use rustix::mm::{Advice, madvise};
            let advice = if large { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
            // Safety: the range lies in a map of ours (checked by `raw`), and this advice changes no content.
            let _ = unsafe { madvise(pointer.as_ptr().cast(), bytes, advice) };
        }
        #[cfg(miri)]
        let _ = (pointer, large);
    }

    /// Gives whole pages of a mapped buffer back to the system: they hold zeros until they are written again.
    ///
    /// # Panics
    /// When the range is not of whole pages inside the buffer.
    pub fn discard(&mut self, start: usize, bytes: usize) {
        assert!(start.is_multiple_of(ALIGNMENT) && bytes.is_multiple_of(ALIGNMENT), "start={start} bytes={bytes}");
        let pointer = self.raw(start, bytes);
        #[cfg(not(miri))]
        {
            use rustix::mm::{Advice, madvise};
            // Safety: the range lies in a map of ours (checked by `raw`) that `&mut self` holds; private anonymous
            // pages read as zeros afterwards, which is a valid content.
            if unsafe { madvise(pointer.as_ptr().cast(), bytes, Advice::LinuxDontNeed) }.is_ok() {
                return;
            }
        }
        // Safety: inside the memory, as checked by `raw`.
        unsafe { pointer.as_ptr().write_bytes(0, bytes) };
    }

    /// The address of `bytes` bytes from `start` on, for an owner that hands out parts of the buffer.
    ///
    /// # Panics
    /// When they are not inside the buffer.
    pub fn raw(&mut self, start: usize, bytes: usize) -> NonNull<u8> {
        assert!(start <= self.capacity && bytes <= self.capacity - start, "start={start} bytes={bytes}");
        // Safety: inside the memory, as checked (B1).
        unsafe { self.pointer.add(start) }
    }

    /// A copy of `bytes`, padded with zeros to whole pages.
    pub fn from_slice(bytes: &[u8]) -> PageBuf {
        let mut buf = PageBuf::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Bytes of memory, at least the length: a multiple of a page.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the length within the capacity; bytes that come into view keep what they had.
    ///
    /// # Panics
    /// When `length` is above the capacity.
    pub fn set_len(&mut self, length: usize) {
        assert!(length <= self.capacity, "length={length} capacity={}", self.capacity);
        self.length = length;
    }

    /// The memory up to the page boundary at or after the length.
    pub fn padded(&self) -> &[u8] {
        &self.all()[..round_up(self.length)]
    }

    /// The memory up to the page boundary at or after the length, for writing.
    pub fn padded_mut(&mut self) -> &mut [u8] {
        let end = round_up(self.length);
        &mut self.all_mut()[..end]
    }

    /// Zeroes what lies between the length and the page boundary after it, so that what a reused buffer
    /// held earlier does not reach the disk.
    pub fn clear_padding(&mut self) {
        let length = self.length;
        self.padded_mut()[length..].fill(0);
    }

    fn all(&self) -> &[u8] {
        // Safety: B1; the borrow of `self` covers the slice.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.capacity) }
    }

    fn all_mut(&mut self) -> &mut [u8] {
        // Safety: B1; the unique borrow of `self` covers the slice.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.capacity) }
    }
}

fn layout(capacity: usize) -> Layout {
    match Layout::from_size_align(capacity, ALIGNMENT) {
        Ok(layout) => layout,
        Err(_) => capacity_overflow(capacity),
    }
}

#[cfg(not(miri))]
fn is_mapped(capacity: usize) -> bool {
    capacity >= MAPPED_BYTES_MIN
}

/// Miri knows no anonymous maps through raw system calls: there, everything comes from the allocator.
#[cfg(miri)]
fn is_mapped(_capacity: usize) -> bool {
    false
}

/// A map of fresh zeros. `alignment`: a multiple of a page.
fn map(capacity: usize, alignment: usize) -> NonNull<u8> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let spare = alignment - ALIGNMENT;
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // Safety: a fresh private map at an address of the kernel's choice aliases nothing.
    let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), capacity + spare, access, MapFlags::PRIVATE) };
    let Some(base) = mapped.ok().and_then(|pointer| NonNull::new(pointer.cast::<u8>())) else {
        std::alloc::handle_alloc_error(layout(capacity))
    };
    let before = base.as_ptr().align_offset(alignment).min(spare);
    // Safety: cuts `before` bytes off the front and the rest of the spare bytes off the end of the fresh map, whole pages
    // that nothing points to; what stays has `capacity` bytes.
    unsafe {
        let aligned = base.add(before);
        if before > 0 {
            let _ = munmap(base.as_ptr().cast(), before);
        }
        if before < spare {
            let _ = munmap(aligned.add(capacity).as_ptr().cast(), spare - before);
        }
        aligned
    }
}

impl Drop for PageBuf {
    /// Gives the memory back.
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        if is_mapped(self.capacity) {
            // Safety: B1 and B3: the map was made by `map` with this length and nothing borrows it any more.
            // It fails only for arguments that are wrong, and leaking is all that could be done then.
            let _ = unsafe { rustix::mm::munmap(self.pointer.as_ptr().cast(), self.capacity) };
        } else {
            // Safety: B1 and B3: allocated in `zeroed` with this same layout.
            unsafe { std::alloc::dealloc(self.pointer.as_ptr(), layout(self.capacity)) }
        }
    }
}

impl Deref for PageBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.all()[..self.length]
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let length = self.length;
        &mut self.all_mut()[..length]
    }
}

impl AsRef<[u8]> for PageBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for PageBuf {
    fn clone(&self) -> PageBuf {
        PageBuf::from_slice(self)
    }
}

impl Default for PageBuf {
    fn default() -> PageBuf {
        PageBuf::zeroed(0)
    }
}

impl fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBuf").field("length", &self.length).field("capacity", &self.capacity).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_padded_at_each_edge() {
        let small = [0, 1, 4095, 4096, 4097];
        let large = [MAPPED_BYTES_MIN - 1, MAPPED_BYTES_MIN, MAPPED_BYTES_MIN + 1, 1 << 20];
        // Under Miri nothing is mapped, and a mebibyte takes minutes.
        let large = large.into_iter().filter(|_| !cfg!(miri));
        for length in small.into_iter().chain(large) {
            let mut buf = PageBuf::zeroed(length);
            assert_eq!((buf.len(), buf.capacity(), buf.padded().len()), (length, round_up(length), round_up(length)));
            assert_eq!(buf.as_ptr() as usize % ALIGNMENT, 0);
            assert!(buf.padded().iter().all(|byte| *byte == 0));
            buf.fill(7);
            assert!(buf.padded()[length..].iter().all(|byte| *byte == 0));
            assert_eq!(buf.clone()[..], buf[..]);
        }
    }

    #[test]
    fn a_shorter_length_shows_less_and_its_padding_can_be_cleared() {
        let mut buf = PageBuf::zeroed(8192);
        buf.fill(9);
        buf.set_len(5000);
        assert_eq!(buf.padded().len(), 8192);
        buf.clear_padding();
        assert!(buf[..].iter().all(|byte| *byte == 9));
        assert!(buf.padded()[5000..].iter().all(|byte| *byte == 0));
        buf.set_len(10);
        assert_eq!(buf.padded().len(), 4096);
    }

    #[test]
    #[should_panic(expected = "capacity=4096")]
    fn the_length_stays_within_the_capacity() {
        PageBuf::zeroed(1).set_len(4097);
    }

    #[test]
    fn a_buffer_may_move_between_threads() {
        let buf = PageBuf::from_slice(b"frond");
        let back = std::thread::spawn(move || buf).join();
        assert_eq!(back.ok().as_deref(), Some(b"frond".as_slice()));
    }
}
