//! Block codecs. A codec is stored in each block's header, so trees may change theirs at any time.

use super::{Error, Result, scratch};

/// How the blocks of a tree are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// As they are.
    None,
    /// LZ4: fast, modest.
    Lz4,
    /// Zstandard at a level from -7 to 22; low levels are several times faster than high ones.
    Zstd {
        /// Compression level.
        level: i8,
    },
}

impl Default for Codec {
    fn default() -> Codec {
        Codec::Zstd { level: 1 }
    }
}

impl Codec {
    /// The number stored in block headers. Decompression does not depend on the level.
    pub fn tag(self) -> u8 {
        match self {
            Codec::None => 0,
            Codec::Lz4 => 1,
            Codec::Zstd { .. } => 2,
        }
    }

    /// Checks its level.
    ///
    /// # Errors
    /// `InvalidArgument` for one past the limits.
    pub fn check(self) -> Result<()> {
        match self {
            Codec::Zstd { level } if !(-7..=22).contains(&level) => {
                Err(Error::invalid(format!("zstd level out of range, level={level}")))
            }
            _ => Ok(()),
        }
    }
}

/// Compresses blocks; keeps the codec's working memory between calls. One per writing thread.
pub struct Compressor {
    zstd: Option<(i8, zstd::bulk::Compressor<'static>)>,
}

impl Default for Compressor {
    fn default() -> Compressor {
        Compressor::new()
    }
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Compressor {
    /// Without working memory yet.
    pub fn new() -> Compressor {
        Compressor { zstd: None }
    }

    /// Appends the compressed form of `raw` to `out` and returns the tag of the codec that was used,
    /// which is `Codec::None`'s when compression does not make `raw` smaller.
    ///
    /// # Errors
    /// `Internal` if the codec fails, which it does only out of memory.
    pub fn compress(&mut self, codec: Codec, raw: &[u8], out: &mut Vec<u8>) -> Result<u8> {
        let start = out.len();
        match codec {
            Codec::None => {}
            Codec::Lz4 => {
                out.resize(start + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
                let length = lz4_flex::block::compress_into(raw, &mut out[start..])
                    .map_err(|error| Error::internal(format!("lz4 compression failed: {error}")))?;
                out.truncate(start + length);
            }
            Codec::Zstd { level } => {
                let compressor = match &mut self.zstd {
                    Some((at, compressor)) if *at == level => compressor,
                    slot => {
                        let compressor = zstd::bulk::Compressor::new(i32::from(level))
                            .map_err(|error| Error::internal(format!("zstd compressor failed: {error}")))?;
                        &mut slot.insert((level, compressor)).1
                    }
                };
                out.resize(start + zstd::zstd_safe::compress_bound(raw.len()), 0);
                let length = compressor
                    .compress_to_buffer(raw, &mut out[start..])
                    .map_err(|error| Error::internal(format!("zstd compression failed: {error}")))?;
                out.truncate(start + length);
            }
        }
        if codec == Codec::None || out.len() - start >= raw.len() {
            out.truncate(start);
            out.extend_from_slice(raw);
            return Ok(Codec::None.tag());
        }
        Ok(codec.tag())
    }
}

thread_local! {
    static ZSTD: std::cell::RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { std::cell::RefCell::new(None) };
}

/// Decompresses `stored` into `out`, whose length is the raw length.
///
/// # Errors
/// `Corruption` when the tag is unknown or the bytes do not decompress to exactly `out.len()` bytes.
pub fn decompress(tag: u8, stored: &[u8], out: &mut [u8]) -> Result<()> {
    let expected = out.len();
    let length = match tag {
        0 if stored.len() == expected => {
            out.copy_from_slice(stored);
            expected
        }
        0 => stored.len(),
        1 => lz4_flex::block::decompress_into(stored, out)
            .map_err(|error| Error::corruption(format!("lz4 block does not decompress: {error}")))?,
        2 => scratch::lend(&ZSTD, Option::default, |slot| {
            let decompressor = match slot {
                Some(decompressor) => decompressor,
                None => slot.insert(
                    zstd::bulk::Decompressor::new()
                        .map_err(|error| Error::internal(format!("zstd decompressor failed: {error}")))?,
                ),
            };
            decompressor
                .decompress_to_buffer(stored, out)
                .map_err(|error| Error::corruption(format!("zstd block does not decompress: {error}")))
        })?,
        _ => return Err(Error::corruption(format!("unknown codec, tag={tag}"))),
    };
    if length != expected {
        return Err(Error::corruption(format!("block has the wrong raw length, bytes={length} expected={expected}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_codec_gives_back_what_it_got(raw: Vec<u8>, repeat in 1usize..50, which in 0usize..4) {
            let raw = raw.repeat(repeat);
            let codec = [Codec::None, Codec::Lz4, Codec::Zstd { level: 1 }, Codec::Zstd { level: 6 }][which];
            let mut stored = vec![7];
            let tag = Compressor::new().compress(codec, &raw, &mut stored)?;
            prop_assert!(stored.len() <= raw.len() + 1);
            let mut back = vec![0; raw.len()];
            decompress(tag, &stored[1..], &mut back)?;
            prop_assert_eq!(back, raw);
        }

        #[test]
        fn arbitrary_bytes_never_panic(tag in 0u8..5, stored: Vec<u8>, length in 0usize..5000) {
            let _ = decompress(tag, &stored, &mut vec![0; length]);
        }
    }
}
