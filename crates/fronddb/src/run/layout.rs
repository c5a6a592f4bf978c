//! Which layout makes the blocks of a tree smallest: planes for keys and rows made of integers, rows for text.
//!
//! It is tried: now and then a block is encoded and compressed both ways, and the winner is used for the
//! next blocks of the tree. The more often a layout wins in a row, the rarer the trials, so that they cost
//! about a percent. Keys and payloads are decided separately, payloads only by blocks that have some.

use crate::base::compress::{Codec, Compressor};
use crate::base::{Result, TreeId};
use crate::format::block::{EntryBlockBuilder, Layout, PLANES_MIN};
use std::collections::HashMap;

/// Blocks after the first trial until the next one.
const INTERVAL_MIN: u32 = 16;
const INTERVAL_MAX: u32 = 512;
/// Trees remembered; past that, all are forgotten and tried again.
const TREES_MAX: usize = if cfg!(test) { 256 } else { 1 << 16 };
/// Blocks of fewer messages tell nothing unless they have this many bytes: long rows make a full block of few messages.
const MESSAGES_MIN: usize = 64;
const BYTES_MIN: usize = 4 << 10;

#[derive(Debug, Clone, Copy)]
struct Choice {
    layout: Layout,
    /// Payloads were tried too.
    with_payloads: bool,
    /// Blocks until the next trial.
    left: u32,
    interval: u32,
}

/// The layout by tree.
#[derive(Debug, Default)]
pub(super) struct Layouts(HashMap<TreeId, Choice>);

impl Layouts {
    fn known(&self, tree: TreeId) -> Layout {
        self.0.get(&tree).map_or_else(Layout::default, |choice| choice.layout)
    }

    /// The layout for the next block of `tree`, which has payloads or not; `None`: try.
    fn next(&mut self, tree: TreeId, with_payloads: bool) -> Option<Layout> {
        let choice = self.0.get_mut(&tree).filter(|choice| choice.with_payloads || !with_payloads)?;
        choice.left = choice.left.checked_sub(1)?;
        Some(choice.layout)
    }

    fn decided(&mut self, tree: TreeId, layout: Layout, with_payloads: bool) {
        if self.0.len() >= TREES_MAX && !self.0.contains_key(&tree) {
            self.0.clear();
        }
        let before = self.0.get(&tree);
        let with_payloads = with_payloads || before.is_some_and(|choice| choice.with_payloads);
        let interval = match before {
            Some(choice) if choice.layout == layout => (choice.interval * 2).min(INTERVAL_MAX),
            _ => INTERVAL_MIN,
        };
        self.0.insert(tree, Choice { layout, with_payloads, left: interval, interval });
    }
}

/// The layout for the messages in `builder`, which are of `tree`.
pub(super) fn choose(
    layouts: &crate::base::sync::Mutex<Layouts>,
    tree: TreeId,
    codec: Codec,
    builder: &mut EntryBlockBuilder,
    compressor: &mut Compressor,
) -> Result<Layout> {
    let with_payloads = builder.payload_bytes() > 0;
    let known = {
        let mut layouts = layouts.lock();
        let tells = builder.count() >= MESSAGES_MIN || builder.count() >= PLANES_MIN && builder.size() >= BYTES_MIN;
        let next = if tells { layouts.next(tree, with_payloads) } else { Some(layouts.known(tree)) };
        if let Some(layout) = next {
            return Ok(layout);
        }
        layouts.known(tree)
    };
    let (mut raw, mut stored) = (Vec::new(), Vec::new());
    let mut size = |planes: bool, encode: &mut dyn FnMut(bool, &mut Vec<u8>)| -> Result<usize> {
        raw.clear();
        stored.clear();
        encode(planes, &mut raw);
        compressor.compress(codec, &raw, &mut stored)?;
        Ok(stored.len())
    };
    let mut keys = |planes: bool, out: &mut Vec<u8>| builder.encode_keys(planes, out);
    // Planes also save time: rows must be smaller by a percent.
    let key_planes = size(true, &mut keys)? * 99 <= size(false, &mut keys)? * 100;
    let mut payloads = |planes: bool, out: &mut Vec<u8>| builder.encode_payloads(planes, out);
    // Turning long payloads back takes longer than reading rows: planes must be smaller by a twentieth.
    let payload_planes = match with_payloads {
        true => size(true, &mut payloads)? * 20 <= size(false, &mut payloads)? * 19,
        false => known.payload_planes,
    };
    let layout = Layout { key_planes, payload_planes };
    layouts.lock().decided(tree, layout, with_payloads);
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;
    use crate::base::sync::Mutex;
    use crate::format::block::samples::{Sample, iibench};
    use crate::format::{Kind, Stamp};

    #[test]
    fn what_is_known_is_forgotten_for_another_tree_alone() {
        let mut layouts = Layouts::default();
        let rows = Layout { key_planes: false, payload_planes: false };
        for tree in 0..TREES_MAX as u32 {
            layouts.decided(TreeId(tree), rows, true);
        }
        layouts.decided(TreeId(0), rows, true);
        assert!((0..TREES_MAX as u32).all(|tree| layouts.known(TreeId(tree)) == rows));
        layouts.decided(TreeId(u32::MAX), rows, true);
        assert_eq!(layouts.0.len(), 1);
    }

    fn chosen(samples: &[Sample]) -> Layout {
        let mut builder = EntryBlockBuilder::new(false);
        samples.iter().for_each(|sample| {
            builder.add(&sample.message());
        });
        choose(&Mutex::default(), TreeId(5), Codec::default(), &mut builder, &mut Compressor::new())
            .expect("compresses")
    }

    #[test]
    fn integers_go_into_planes_and_text_into_rows() {
        for tree in iibench(2000) {
            assert_eq!(chosen(&tree[..300]), Layout { key_planes: true, payload_planes: true });
        }
        let mut random = Random(5);
        let noise: Vec<Sample> =
            iibench(300)[0].iter().map(|sample| Sample { payload: random.bytes(200), ..sample.clone() }).collect();
        assert_eq!(chosen(&noise), Layout { key_planes: true, payload_planes: false });
        let words = ["orange ", "apple ", "the ", "quick ", "fox ", "jumped ", "over ", "a ", "lazy ", "dog "];
        let mut sentence = |words_count: u64| -> Vec<u8> {
            (0..words_count).flat_map(|_| words[random.below(10) as usize].bytes()).collect()
        };
        let mut texts: Vec<Sample> = (0..300)
            .map(|_| Sample {
                key: [&[0, 0, 0, 9], &sentence(6)[..]].concat(),
                seq: 1,
                stamp: Stamp::Settled,
                kind: Kind::Put,
                blob: false,
                payload: sentence(12),
            })
            .collect();
        texts.sort_by(|a, b| a.key.cmp(&b.key));
        texts.dedup_by(|a, b| a.key == b.key);
        assert_eq!(chosen(&texts), Layout { key_planes: false, payload_planes: false });
    }

    #[test]
    fn a_block_of_few_long_rows_is_tried_too() {
        let mut random = Random(7);
        let names = ["customer", "street", "city", "comment", "price", "quantity"];
        let mut document = || -> Vec<u8> {
            let fields = names.map(|name| format!("\"{name}\": \"{:x}\", ", random.below(1 << 24)));
            fields.iter().flat_map(|field| field.bytes()).cycle().take(500).collect()
        };
        let documents: Vec<Sample> =
            iibench(30)[0].iter().map(|sample| Sample { payload: document(), ..sample.clone() }).collect();
        assert!(!chosen(&documents).payload_planes, "text is smaller in rows");
    }

    #[test]
    fn a_block_without_payloads_decides_nothing_about_them() {
        let layouts = Mutex::default();
        let mut compressor = Compressor::new();
        let rows = iibench(300);
        let mut choose_for = |samples: &[Sample]| {
            let mut builder = EntryBlockBuilder::new(false);
            samples.iter().for_each(|sample| {
                builder.add(&sample.message());
            });
            choose(&layouts, TreeId(5), Codec::default(), &mut builder, &mut compressor).expect("compresses")
        };
        let deleted = |sample: &Sample| Sample { kind: Kind::Delete, payload: Vec::new(), ..sample.clone() };
        let deletes: Vec<Sample> = rows[0].iter().map(deleted).collect();
        choose_for(&deletes);
        assert!(choose_for(&rows[0]).payload_planes, "rows of integers are smaller in planes");
        choose_for(&deletes);
        assert!(choose_for(&rows[0]).payload_planes);
    }

    #[test]
    fn trials_become_rare_while_the_answer_stays() {
        let mut layouts = Layouts::default();
        let mut trials = 0;
        for _ in 0..10_000 {
            if layouts.next(TreeId(1), true).is_none() {
                trials += 1;
                layouts.decided(TreeId(1), Layout::default(), true);
            }
        }
        assert!(trials < 30, "trials={trials}");
    }
}
