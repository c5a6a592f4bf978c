//! The structures of the header that are plain values, and how they become the engine's. A test compares each size
//! and offset with `frond.h`.

use std::time::Duration;

use engine::{Codec, Durability, Isolation, LockMode, Result, TreeOptions, TxnOptions, Wait};

use crate::border::{Bytes, check_flags, check_reserved, frond_slice, unknown};
use crate::constants::*;

/// Declares structures of the header, and for the test their layouts.
macro_rules! c_structs {
    ($($(#[$attribute:meta])* $name:ident $(<$life:lifetime>)? { $($field:ident: $type:ty,)* })*) => {
        $($(#[$attribute])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name $(<$life>)? { $(pub $field: $type,)* })*

        /// Name, size, and name, offset and size of each field.
        #[cfg(test)]
        pub(crate) fn layouts() -> Vec<crate::types::Layout> {
            vec![$({
                type Struct $(<$life>)? = $name $(<$life>)?;
                crate::types::Layout {
                    name: stringify!($name),
                    bytes: size_of::<Struct>(),
                    fields: vec![$((stringify!($field), std::mem::offset_of!(Struct, $field))),*],
                }
            }),*]
        }
    };
}
pub(crate) use c_structs;

/// How a structure lies in memory.
#[cfg(test)]
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) bytes: usize,
    pub(crate) fields: Vec<(&'static str, usize)>,
}

c_structs! {
    frond_row { key: frond_slice, value: frond_slice, }
    frond_tree_options<'a> { codec: u32, codec_level: i32, metadata: Bytes<'a>, }
    frond_txn_options { isolation: u32, durability: u32, flags: u32, reserved: u32, lock_wait_ms: i64, }
    frond_estimate { rows: u64, bytes: u64, blob_bytes: u64, }
    frond_cursor_options<'a> {
        lower: Bytes<'a>,
        upper: Bytes<'a>,
        prefix: Bytes<'a>,
        flags: u32,
        lock: u32,
        wait_ms: i64,
        read_ahead_bytes: u64,
    }
    frond_fetch {
        buffer: *mut u8,
        capacity: usize,
        rows_max: u32,
        flags: u32,
        rows: u32,
        more: u32,
        bytes: usize,
        bytes_needed: usize,
        peeked: u32,
    }
    frond_operation<'a> {
        tree: Option<&'a crate::tree::frond_tree>,
        key: Bytes<'a>,
        value: Bytes<'a>,
        op: u32,
        flags: u32,
    }
    frond_step<'a> { kind: u32, offset: u32, width: u32, flags: u32, delta: i64, bytes: Bytes<'a>, }
}

impl frond_row {
    pub(crate) const NONE: frond_row = frond_row { key: frond_slice::NONE, value: frond_slice::NONE };

    pub(crate) fn lend(key: &[u8], value: &[u8]) -> frond_row {
        frond_row { key: frond_slice::lend(key), value: frond_slice::lend(value) }
    }
}

/// How long a transaction waits for locks: as its database says, not at all, or milliseconds.
pub(crate) fn lock_timeout(lock_wait_ms: i64) -> Result<Option<Duration>> {
    match lock_wait_ms {
        FROND_WAIT_DEFAULT => Ok(None),
        FROND_WAIT_NONE => Ok(Some(Duration::ZERO)),
        ms => Ok(Some(Duration::from_millis(u64::try_from(ms).map_err(|_| unknown("lock_wait_ms", ms))?))),
    }
}

impl From<engine::RangeEstimate> for frond_estimate {
    fn from(from: engine::RangeEstimate) -> frond_estimate {
        frond_estimate { rows: from.rows, bytes: from.bytes, blob_bytes: from.blob_bytes }
    }
}

impl frond_txn_options {
    /// The engine's options; the defaults for NULL.
    pub(crate) fn to_engine(options: Option<&frond_txn_options>) -> Result<TxnOptions> {
        let Some(options) = options else { return Ok(TxnOptions::default()) };
        check_flags(options.flags, FROND_TXN_READ_ONLY | FROND_TXN_FIRST_UPDATER_WINS | FROND_TXN_CONSISTENT_SNAPSHOT)?;
        check_reserved(options.reserved)?;
        Ok(TxnOptions {
            isolation: isolation(options.isolation)?,
            durability: durability(options.durability)?,
            read_only: options.flags & FROND_TXN_READ_ONLY != 0,
            lock_timeout: lock_timeout(options.lock_wait_ms)?,
            first_updater_wins: options.flags & FROND_TXN_FIRST_UPDATER_WINS != 0,
            consistent_snapshot: options.flags & FROND_TXN_CONSISTENT_SNAPSHOT != 0,
        })
    }
}

impl frond_tree_options<'_> {
    /// The engine's options; the defaults for NULL.
    pub(crate) fn to_engine(options: Option<&frond_tree_options<'_>>) -> Result<TreeOptions> {
        let Some(options) = options else { return Ok(TreeOptions::default()) };
        Ok(TreeOptions {
            codec: codec(options.codec, options.codec_level)?,
            metadata: options.metadata.get()?.to_vec(),
        })
    }
}

pub(crate) fn isolation(number: u32) -> Result<Isolation> {
    Ok(match number {
        FROND_ISOLATION_DEFAULT => Isolation::default(),
        FROND_ISOLATION_READ_UNCOMMITTED => Isolation::ReadUncommitted,
        FROND_ISOLATION_READ_COMMITTED => Isolation::ReadCommitted,
        FROND_ISOLATION_REPEATABLE_READ => Isolation::RepeatableRead,
        FROND_ISOLATION_SERIALIZABLE => Isolation::Serializable,
        _ => return Err(unknown("isolation", number)),
    })
}

pub(crate) fn isolation_number(isolation: Isolation) -> u32 {
    match isolation {
        Isolation::ReadUncommitted => FROND_ISOLATION_READ_UNCOMMITTED,
        Isolation::ReadCommitted => FROND_ISOLATION_READ_COMMITTED,
        Isolation::RepeatableRead => FROND_ISOLATION_REPEATABLE_READ,
        Isolation::Serializable => FROND_ISOLATION_SERIALIZABLE,
    }
}

pub(crate) fn durability(number: u32) -> Result<Durability> {
    Ok(match number {
        FROND_DURABILITY_DEFAULT => Durability::default(),
        FROND_DURABILITY_SYNC => Durability::Sync,
        FROND_DURABILITY_WRITE => Durability::Write,
        FROND_DURABILITY_NONE => Durability::None,
        _ => return Err(unknown("durability", number)),
    })
}

/// A mode that locks.
pub(crate) fn lock_mode(number: u32) -> Result<LockMode> {
    lock_mode_or_none(number)?.ok_or_else(|| unknown("mode", number))
}

pub(crate) fn lock_mode_or_none(number: u32) -> Result<Option<LockMode>> {
    Ok(match number {
        FROND_LOCK_NONE => None,
        FROND_LOCK_SHARED => Some(LockMode::Shared),
        FROND_LOCK_EXCLUSIVE => Some(LockMode::Exclusive),
        _ => return Err(unknown("mode", number)),
    })
}

pub(crate) fn lock_mode_number(mode: LockMode) -> u32 {
    match mode {
        LockMode::Shared => FROND_LOCK_SHARED,
        LockMode::Exclusive => FROND_LOCK_EXCLUSIVE,
    }
}

pub(crate) fn wait(milliseconds: i64) -> Result<Wait> {
    Ok(match milliseconds {
        FROND_WAIT_DEFAULT => Wait::Default,
        FROND_WAIT_NONE => Wait::NoWait,
        FROND_WAIT_SKIP => Wait::SkipLocked,
        ms => Wait::Timeout(Duration::from_millis(u64::try_from(ms).map_err(|_| unknown("wait_ms", ms))?)),
    })
}

/// A codec; `None` for the default.
pub(crate) fn codec(number: u32, level: i32) -> Result<Option<Codec>> {
    Ok(match number {
        FROND_CODEC_DEFAULT => None,
        FROND_CODEC_NONE => Some(Codec::None),
        FROND_CODEC_LZ4 => Some(Codec::Lz4),
        FROND_CODEC_ZSTD => match i8::try_from(level) {
            Ok(level @ -7..=22) => Some(Codec::Zstd { level }),
            _ => return Err(unknown("codec_level", level)),
        },
        _ => return Err(unknown("codec", number)),
    })
}

/// Number and level of a codec.
pub(crate) fn codec_numbers(codec: Option<Codec>) -> (u32, i32) {
    match codec {
        None => (FROND_CODEC_DEFAULT, 0),
        Some(Codec::None) => (FROND_CODEC_NONE, 0),
        Some(Codec::Lz4) => (FROND_CODEC_LZ4, 0),
        Some(Codec::Zstd { level }) => (FROND_CODEC_ZSTD, i32::from(level)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_engine_values_map_both_ways() {
        for number in 1..=4 {
            assert_eq!(isolation(number).map(isolation_number).ok(), Some(number));
        }
        for number in 1..=2 {
            assert_eq!(lock_mode(number).map(lock_mode_number).ok(), Some(number));
        }
        for numbers in [(0, 0), (1, 0), (2, 0), (3, -7), (3, 22)] {
            assert_eq!(codec(numbers.0, numbers.1).map(codec_numbers).ok(), Some(numbers));
        }
    }

    #[test]
    fn numbers_that_name_nothing_are_refused() {
        assert!(isolation(5).is_err() && durability(4).is_err() && lock_mode(0).is_err() && lock_mode(3).is_err());
        assert!(wait(-3).is_err() && codec(4, 0).is_err() && codec(3, 23).is_err() && codec(3, 300).is_err());
        let wrong = |flags, reserved, lock_wait_ms| {
            let options = frond_txn_options { isolation: 0, durability: 0, flags, reserved, lock_wait_ms };
            frond_txn_options::to_engine(Some(&options)).is_err()
        };
        assert!(wrong(8, 0, 0) && wrong(0, 1, 0) && wrong(0, 0, FROND_WAIT_SKIP) && !wrong(7, 0, FROND_WAIT_NONE));
    }
}
