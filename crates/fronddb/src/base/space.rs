//! Places in the data file.

use super::codec::{Decoder, put_varint};
use super::{Error, Result};

/// Unit of allocation, in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// A contiguous piece of the data file, in pages of [`PAGE_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// First page.
    pub start: u64,
    /// Number of pages, at least 1.
    pub pages: u32,
}

impl Extent {
    /// Offset of the first byte in the data file.
    pub fn offset(self) -> u64 {
        self.start * PAGE_BYTES
    }

    /// Length in bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.pages) * PAGE_BYTES
    }

    /// First page after it.
    pub fn end(self) -> u64 {
        self.start + u64::from(self.pages)
    }

    /// Appends it to `out`: two varints.
    pub fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.start);
        put_varint(out, u64::from(self.pages));
    }

    /// Reads what [`Extent::encode`] wrote.
    ///
    /// # Errors
    /// `Corruption` when it is malformed, empty or past the largest file.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Extent> {
        let extent = Extent { start: decoder.varint()?, pages: decoder.varint_u32()? };
        if extent.pages == 0 || extent.start > u64::MAX / PAGE_BYTES - u64::from(u32::MAX) {
            return Err(Error::corruption(format!("impossible extent, start={} pages={}", extent.start, extent.pages)));
        }
        Ok(extent)
    }
}

/// Where a block is stored in the data file. Blocks are packed: the offset need not be aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockPtr {
    /// Offset of its header in the data file, in bytes.
    pub offset: u64,
    /// Header and payload as stored, in bytes. 0: no block.
    pub stored: u32,
}

impl BlockPtr {
    /// No block.
    pub const NONE: BlockPtr = BlockPtr { offset: 0, stored: 0 };

    /// True for [`BlockPtr::NONE`].
    pub fn is_none(self) -> bool {
        self.stored == 0
    }

    /// Appends it to `out`: two varints.
    pub fn encode(self, out: &mut Vec<u8>) {
        put_varint(out, self.offset);
        put_varint(out, u64::from(self.stored));
    }

    /// Reads what [`BlockPtr::encode`] wrote.
    ///
    /// # Errors
    /// `Corruption` when it is malformed.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<BlockPtr> {
        let ptr = BlockPtr { offset: decoder.varint()?, stored: decoder.varint_u32()? };
        if ptr.offset > u64::MAX / 2 {
            return Err(Error::corruption(format!("impossible block address, offset={}", ptr.offset)));
        }
        Ok(ptr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_many_tebibytes_come_back() {
        for tebibytes in [1, 16, 1 << 10, 1 << 20, (1 << 23) - 1] {
            let (extent, ptr) = (
                Extent { start: (tebibytes << 40) / PAGE_BYTES, pages: u32::MAX },
                BlockPtr { offset: (tebibytes << 40) + 77, stored: u32::MAX },
            );
            assert_eq!(
                (extent.offset(), extent.end() * PAGE_BYTES),
                (tebibytes << 40, extent.offset() + extent.bytes())
            );
            let mut out = Vec::new();
            extent.encode(&mut out);
            ptr.encode(&mut out);
            let mut decoder = Decoder::new(&out);
            assert_eq!(Extent::decode(&mut decoder).ok(), Some(extent));
            assert_eq!(BlockPtr::decode(&mut decoder).ok(), Some(ptr));
        }
    }
}
