//! The list of hot keys: one key of each block of messages that was in use in the cache. Read after a start to bring
//! these blocks back; it is help, so a damaged or missing list is as good as an empty one.
//!
//! Keys and not addresses, because blocks move. Layout: magic `FRONDHOT` · version u8 · number of keys varint · for each,
//! ascending: bytes shared with the key before (varint), the rest (byte string) · checksum over all before, u64.

use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::{Error, Result, checksum};

const MAGIC: &[u8; 8] = b"FRONDHOT";
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 8;

/// The stored form of `keys`, which ascend.
pub fn encode(keys: &[Vec<u8>]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(VERSION);
    put_varint(&mut out, keys.len() as u64);
    let mut before: &[u8] = &[];
    for key in keys {
        let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
        put_varint(&mut out, shared as u64);
        put_bytes(&mut out, &key[shared..]);
        before = key;
    }
    let sum = checksum::block(0, &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Reads what [`encode`] wrote.
///
/// # Errors
/// `Corruption`, of another version too.
pub fn decode(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
    let damaged = || Error::corruption("damaged list of hot keys");
    let (body, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(damaged)?;
    if checksum::block(0, body) != u64::from_le_bytes(*sum) {
        return Err(damaged());
    }
    let body = body.strip_prefix(MAGIC).and_then(|body| body.strip_prefix(&[VERSION])).ok_or_else(damaged)?;
    let mut decoder = Decoder::new(body);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for _ in 0..decoder.count(2)? {
        let before = keys.last().map(Vec::as_slice).unwrap_or_default();
        let mut key = before.get(..decoder.length()?).ok_or_else(damaged)?.to_vec();
        key.extend_from_slice(decoder.bytes()?);
        keys.push(key);
    }
    decoder.finish()?;
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_list_comes_back_and_damage_is_noticed(mut keys: Vec<Vec<u8>>, at: usize, bit in 0u8..8) {
            keys.sort();
            let mut bytes = encode(&keys);
            prop_assert_eq!(decode(&bytes)?, keys);
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            prop_assert!(decode(&bytes).is_err());
            prop_assert!(decode(&bytes[..at]).is_err());
        }
    }
}
