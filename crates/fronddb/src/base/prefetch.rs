//! Asking the processor for memory before it is needed.
//!
//! What lies in none of its caches comes after a tenth of a microsecond, and what is asked for together comes together. Where the next
//! look needs what the one before has found, nothing is asked for together by itself.
#![allow(unsafe_code, reason = "an instruction that the language has no word for")]

use std::sync::{Arc, Weak};

/// Bytes that a processor reads from memory at once.
pub const CACHE_LINE_BYTES: usize = 64;

/// So much of a message or row is asked for before it is known how long it is: most are shorter, and of others this leads to the next of their bytes.
pub const FRONT_BYTES: usize = 4 * CACHE_LINE_BYTES;

/// What `known` refers to, if it still is there. With the count of references, which has to be read now, comes the value itself.
#[inline(always)]
pub fn upgrade<T>(known: &Weak<T>) -> Option<Arc<T>> {
    prefetch(known.as_ptr().cast(), size_of::<T>());
    known.upgrade()
}

/// Has the processor read `bytes` bytes from `start` on while it does something else. Costs next to nothing where they are at hand. Any address may be
/// asked for, also one at which there is nothing.
#[inline(always)]
pub fn prefetch(start: *const u8, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let before = start.addr() % CACHE_LINE_BYTES;
        for at in (0..before + bytes).step_by(CACHE_LINE_BYTES) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // Safety: the instruction reads nothing that the program sees, and does not fail.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_sub(before).wrapping_add(at).cast()) };
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (start, bytes);
}
