//! One key space: an *inner key* is `tree id (u32, big endian) ‖ user key`, compared as
//! bytes. Everything below the database layer knows inner keys only.

use super::{Error, Result, TreeId};

/// Longest user key, in bytes.
pub const KEY_BYTES_MAX: usize = 32 << 10;
/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 256 << 20;
/// Length of the tree id in front of each inner key, in bytes.
pub const PREFIX_BYTES: usize = 4;

/// The inner key of `key` in `tree`.
pub fn inner(tree: TreeId, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(PREFIX_BYTES + key.len());
    write_inner(tree, key, &mut bytes);
    bytes
}

/// The inner key of `key` in `tree`, in the same memory where there is room.
pub fn into_inner(tree: TreeId, mut key: Vec<u8>) -> Vec<u8> {
    let bytes = key.len();
    key.resize(bytes + PREFIX_BYTES, 0);
    key.copy_within(..bytes, PREFIX_BYTES);
    key[..PREFIX_BYTES].copy_from_slice(&tree.0.to_be_bytes());
    key
}

/// Replaces the content of `out` by the inner key of `key` in `tree`.
pub fn write_inner(tree: TreeId, key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&tree.0.to_be_bytes());
    out.extend_from_slice(key);
}

/// Splits an inner key into tree and user key; `None` if it is too short to be one.
pub fn split(inner: &[u8]) -> Option<(TreeId, &[u8])> {
    let (prefix, key) = inner.split_first_chunk::<PREFIX_BYTES>()?;
    Some((TreeId(u32::from_be_bytes(*prefix)), key))
}

/// The tree of an inner key; tree 0 for what is too short to be one (such as the lowest pivot, the empty key).
pub fn tree_of(inner: &[u8]) -> TreeId {
    split(inner).map_or(TreeId(0), |(tree, _)| tree)
}

/// The last tree that has keys below the inner key `upper`; tree 0 when none has.
pub fn tree_below(upper: &[u8]) -> TreeId {
    let tree = tree_of(upper);
    if upper.len() > PREFIX_BYTES { tree } else { TreeId(tree.0.saturating_sub(1)) }
}

/// The lowest inner key of `tree`.
pub fn tree_start(tree: TreeId) -> Vec<u8> {
    tree.0.to_be_bytes().to_vec()
}

/// The lowest inner key above all of `tree`; empty (which means: no upper bound) for the last tree.
pub fn tree_end(tree: TreeId) -> Vec<u8> {
    tree.0.checked_add(1).map_or_else(Vec::new, |next| next.to_be_bytes().to_vec())
}

/// The lowest key above `key`.
pub fn successor(key: &[u8]) -> Vec<u8> {
    let mut after = Vec::with_capacity(key.len() + 1);
    after.extend_from_slice(key);
    after.push(0);
    after
}

/// The lowest key that is above every key beginning with `prefix`; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The keys in `[lower, upper)`; `None`: no upper bound.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyRange {
    /// The lowest key, if it is one.
    pub lower: Vec<u8>,
    /// Above all keys.
    pub upper: Option<Vec<u8>>,
}

/// Of two upper bounds (`None`: no bound).
#[inline]
pub fn lower_of<'a>(one: Option<&'a [u8]>, other: Option<&'a [u8]>) -> Option<&'a [u8]> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The first 16 bytes of a key as a number that sorts like them, for comparing keys without going to where they lie. Of keys
/// with equal heads the keys themselves decide.
#[inline]
pub fn head(key: &[u8]) -> u128 {
    match key.first_chunk::<16>() {
        Some(bytes) => u128::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 16];
            bytes[..key.len()].copy_from_slice(key);
            u128::from_be_bytes(bytes)
        }
    }
}

/// A short key `s` with `low < s <= high`, to separate two neighbours in an index.
///
/// Both are inner keys with `low < high`; the answer keeps at least the tree prefix.
pub fn separator(low: &[u8], high: &[u8]) -> Vec<u8> {
    let shared = low.iter().zip(high).take_while(|(a, b)| a == b).count();
    high[..(shared + 1).max(PREFIX_BYTES).min(high.len())].to_vec()
}

/// Checks a user key against [`KEY_BYTES_MAX`].
///
/// # Errors
/// `InvalidArgument` when it is too long.
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Error::invalid(format!("key too long, bytes={} bytes_max={KEY_BYTES_MAX}", key.len())));
    }
    Ok(())
}

/// Checks a value against [`VALUE_BYTES_MAX`].
///
/// # Errors
/// `InvalidArgument` when it is too long.
pub fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > VALUE_BYTES_MAX {
        return Err(Error::invalid(format!("value too long, bytes={} bytes_max={VALUE_BYTES_MAX}", value.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_keys_sort_by_tree_then_key() {
        assert!(inner(TreeId(1), b"z") < inner(TreeId(2), b"a"));
        assert!(inner(TreeId(255), b"") < inner(TreeId(256), b""));
        assert_eq!(split(&inner(TreeId(7), b"k")), Some((TreeId(7), b"k".as_slice())));
        assert_eq!(split(b"abc"), None);
        assert_eq!(tree_below(&inner(TreeId(7), b"k")), TreeId(7));
        assert_eq!(tree_below(&tree_start(TreeId(7))), TreeId(6));
        assert_eq!((tree_below(&tree_start(TreeId(0))), tree_below(b"")), (TreeId(0), TreeId(0)));
    }

    #[test]
    fn a_separator_lies_between_its_neighbours() {
        for (low, high) in [("aaaa1", "aaaa2"), ("aaaa", "aaaaa"), ("aaaaxyz", "aaab"), ("aaaa1999", "aaaa2")] {
            let middle = separator(low.as_bytes(), high.as_bytes());
            assert!(low.as_bytes() < middle.as_slice() && middle.as_slice() <= high.as_bytes(), "{low} {high}");
        }
    }

    #[test]
    fn the_end_of_a_prefix_skips_trailing_ff() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff"), None);
    }

    #[test]
    fn limits_are_checked_at_their_edge() {
        assert!(check_key(&vec![0; KEY_BYTES_MAX]).is_ok());
        assert!(check_key(&vec![0; KEY_BYTES_MAX + 1]).is_err());
    }
}
