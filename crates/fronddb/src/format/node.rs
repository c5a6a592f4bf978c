//! The stored form of an internal node of the Bε-tree.
//!
//! It is the payload of a sealed block of kind `Node`, written whole at a publication and never changed.
//!
//! | field | encoding |
//! |---|---|
//! | height | u8, 1 for the lowest internal nodes |
//! | slots | varint count, then each: |
//! | · lower | bytes: lowest inner key of the slot; empty for the first slot of the leftmost node |
//! | · buffer | varint count, then run descriptions, newest first |
//! | · target | u8: 0 leaf, 1 node, 2 node below which there are large values |
//! | · leaf | u8 0 or 1, then that many run descriptions: its base |
//! | · node | block address, then totals: rows, stored bytes, pending messages, pending bytes, blobs (varints), urgency (f32), of target 2 bytes of blobs (varint) |

use super::run_meta::RunMeta;
use crate::base::codec::{Decoder, put_bytes, put_varint};
use crate::base::{BlockPtr, Error, Result};

/// What lies below a slot, added up, so that estimates need not descend.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Totals {
    /// Rows in leaf bases ([`super::run_meta::rows_of`]).
    pub base_rows: u64,
    /// Stored bytes of leaf bases.
    pub base_bytes: u64,
    /// Puts and inserts in buffers.
    pub pending_puts: u64,
    /// Deletes in buffers.
    pub pending_deletes: u64,
    /// Stored bytes in buffers.
    pub pending_bytes: u64,
    /// Messages with blobs, anywhere below.
    pub blobs: u64,
    /// Bytes of the data file that these take.
    pub blob_bytes: u64,
    /// The highest urgency of a slot below: 1 asks for a flush.
    pub urgency: f32,
}

impl Totals {
    /// Adds `other`; the urgency becomes the higher one.
    pub fn add(&mut self, other: &Totals) {
        self.base_rows += other.base_rows;
        self.base_bytes += other.base_bytes;
        self.pending_puts += other.pending_puts;
        self.pending_deletes += other.pending_deletes;
        self.pending_bytes += other.pending_bytes;
        self.blobs += other.blobs;
        self.blob_bytes += other.blob_bytes;
        self.urgency = self.urgency.max(other.urgency);
    }
}

/// An internal node as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeImage {
    /// 1 for the lowest internal nodes.
    pub height: u8,
    /// Ascending by `lower`; never empty.
    pub slots: Vec<SlotImage>,
}

/// One child of a node, with its buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotImage {
    /// Lowest inner key of the slot.
    pub lower: Vec<u8>,
    /// Runs of pending messages, newest first.
    pub buffer: Vec<RunMeta>,
    /// The child.
    pub target: TargetImage,
}

/// A child as stored.
#[derive(Debug, Clone, PartialEq)]
pub enum TargetImage {
    /// A leaf and its base, if it has one.
    Leaf(Option<Box<RunMeta>>),
    /// A node stored elsewhere.
    Node(BlockPtr, Totals),
}

impl NodeImage {
    /// Appends the stored form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.height);
        put_varint(out, self.slots.len() as u64);
        for slot in &self.slots {
            put_bytes(out, &slot.lower);
            put_varint(out, slot.buffer.len() as u64);
            for run in &slot.buffer {
                run.encode(out);
            }
            match &slot.target {
                TargetImage::Leaf(base) => {
                    out.push(0);
                    out.push(u8::from(base.is_some()));
                    if let Some(base) = base {
                        base.encode(out);
                    }
                }
                TargetImage::Node(ptr, totals) => {
                    out.push(if totals.blob_bytes > 0 { 2 } else { 1 });
                    ptr.encode(out);
                    for number in [
                        totals.base_rows,
                        totals.base_bytes,
                        totals.pending_puts,
                        totals.pending_deletes,
                        totals.pending_bytes,
                        totals.blobs,
                    ] {
                        put_varint(out, number);
                    }
                    out.extend_from_slice(&totals.urgency.to_le_bytes());
                    if totals.blob_bytes > 0 {
                        put_varint(out, totals.blob_bytes);
                    }
                }
            }
        }
    }

    /// Reads what [`NodeImage::encode`] wrote, checking order and counts.
    ///
    /// # Errors
    /// `Corruption` when it is malformed.
    pub fn decode(bytes: &[u8]) -> Result<NodeImage> {
        let mut decoder = Decoder::new(bytes);
        let height = decoder.u8()?;
        let count = decoder.count(4)?;
        let mut slots: Vec<SlotImage> = Vec::with_capacity(count);
        for _ in 0..count {
            let lower = decoder.bytes()?.to_vec();
            if slots.last().is_some_and(|last| last.lower >= lower) {
                return Err(Error::corruption(format!("node pivots out of order, offset={}", decoder.offset())));
            }
            let runs = decoder.count(8)?;
            let buffer = (0..runs).map(|_| RunMeta::decode(&mut decoder)).collect::<Result<Vec<_>>>()?;
            let target = match decoder.u8()? {
                0 => match decoder.u8()? {
                    0 => TargetImage::Leaf(None),
                    1 => TargetImage::Leaf(Some(Box::new(RunMeta::decode(&mut decoder)?))),
                    other => return Err(Error::corruption(format!("leaf with too many bases, count={other}"))),
                },
                1 => TargetImage::Node(BlockPtr::decode(&mut decoder)?, decode_totals(&mut decoder)?),
                2 => {
                    let (ptr, totals) = (BlockPtr::decode(&mut decoder)?, decode_totals(&mut decoder)?);
                    TargetImage::Node(ptr, Totals { blob_bytes: decoder.varint()?, ..totals })
                }
                other => return Err(Error::corruption(format!("unknown child kind, number={other}"))),
            };
            slots.push(SlotImage { lower, buffer, target });
        }
        decoder.finish()?;
        if height == 0 || slots.is_empty() {
            return Err(Error::corruption(format!("impossible node, height={height} slots={}", slots.len())));
        }
        Ok(NodeImage { height, slots })
    }
}

fn decode_totals(decoder: &mut Decoder<'_>) -> Result<Totals> {
    Ok(Totals {
        base_rows: decoder.varint()?,
        base_bytes: decoder.varint()?,
        pending_puts: decoder.varint()?,
        pending_deletes: decoder.varint()?,
        pending_bytes: decoder.varint()?,
        blobs: decoder.varint()?,
        blob_bytes: 0,
        urgency: f32::from_bits(decoder.u32()?),
    })
}
