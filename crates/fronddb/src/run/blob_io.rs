//! Blobs through the store.
use super::Store;
use crate::base::Result;
use crate::base::compress::Codec;
use crate::format::blob::BlobRef;
use std::sync::Arc;

/// Writes a value to extents of its own. Written, not synced.
///
/// # Errors
/// `NoSpace`, `Io`.
pub fn write_blob(_store: &Arc<Store>, _codec: Codec, _value: &[u8]) -> Result<BlobRef> {
    unimplemented!()
}

/// Reads a value back.
///
/// # Errors
/// `Io`, `Corruption`.
pub fn read_blob(_store: &Store, _blob: &BlobRef) -> Result<Vec<u8>> {
    unimplemented!()
}
