//! Checksums and hashes, each in one place so that all layers agree.

/// Checksum of a stored block: over its bytes and the address where it belongs, so that a block written
/// to or read from the wrong place is noticed. XXH3, 64 bits.
#[inline]
pub fn block(address: u64, bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, address ^ 0x9e37_79b9_7f4a_7c15)
}

/// Checksum of a log record: CRC-32C over the position where it belongs and its bytes, so that what an
/// earlier use left in a recycled segment is noticed.
#[inline]
pub fn log(position: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&position.to_le_bytes()), bytes)
}

/// Hash of a key for filters and hash tables. XXH3, 64 bits; stored in filters, so it must not change.
#[inline]
pub fn key_hash(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// Which of so many places a [`key_hash`] chooses, by its high half; stored filters go by it, so it must not change.
#[inline]
pub fn place_of(hash: u64, places: usize) -> usize {
    (((hash >> 32) * places as u64) >> 32) as usize
}
