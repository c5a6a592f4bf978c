//! libfronddb: the engine behind a C interface. `include/frond.h` is its documentation and its contract.
//!
//! Owns the translation between C and Rust, and nothing else: no policy, no default, no state but the handles.
//! Rooms, in reading order: [`border`] (crossing it: panics, errors, slices, texts), [`constants`] and [`types`] (the
//! numbers and structures of the header), [`options`], [`database`], [`tree`], [`transaction`], [`read`], [`cursor`],
//! [`write`], [`bulk`], [`program`], [`prepared`], [`upkeep`], [`offline`], [`monitor`], [`statistics`].
//!
//! Pointers become Rust types in the signatures: `Option<&T>` and `Option<&mut T>` are a nullable pointer,
//! `Option<Box<T>>` a nullable owned one, by guarantee of the language. What the bodies then rely on is what the header
//! demands of its callers:
//!
//! - C1: a pointer that is not NULL points to a valid object of its type (a result: to writable memory); a handle
//!   is one that this library made and that has not ended.
//! - C2: the bytes of an input slice, and the items of an input array, are readable while the call lasts.
//! - C3: calls with one handle that is not shared (`&mut`) do not overlap, and its results do not overlap each other.
//! - C4: what the library lends is not touched after the moment that the header names.
//!
//! Anything else is checked. A panic never crosses: see [`border::enter`].
#![allow(unsafe_code, reason = "a C interface exports symbols and follows pointers that C gave it")]
#![allow(non_camel_case_types, reason = "types bear the names that they have in frond.h")]
#![allow(clippy::missing_safety_doc, reason = "C1 to C4 are the contract of every exported function")]
#![warn(clippy::undocumented_unsafe_blocks)]

pub mod border;
pub mod bulk;
pub mod constants;
pub mod cursor;
pub mod database;
pub mod fetch;
pub mod monitor;
pub mod offline;
pub mod options;
pub mod prepared;
pub mod program;
pub mod read;
pub mod statistics;
pub mod transaction;
pub mod tree;
pub mod types;
pub mod upkeep;
pub mod write;

#[cfg(test)]
mod header_tests;
