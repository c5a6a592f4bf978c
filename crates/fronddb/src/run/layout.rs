//! Which layout makes the blocks of a tree smallest: planes for keys and rows made of integers, rows for text.
//!
//! It is tried: now and then a block is encoded and compressed both ways, and the winner is used for the
//! next blocks of the tree. The more often a layout wins in a row, the rarer the trials, so that they cost
//! about a percent. Keys and payloads are decided separately.

use crate::base::compress::{Codec, Compressor};
use crate::base::{Result, TreeId};
use crate::format::block::{EntryBlockBuilder, Layout};
use std::collections::HashMap;

/// Blocks after the first trial until the next one.
const INTERVAL_MIN: u32 = 16;
const INTERVAL_MAX: u32 = 512;
/// Trees remembered; past that, all are forgotten and tried again.
const TREES_MAX: usize = 4096;
/// Blocks of fewer messages tell nothing.
const MESSAGES_MIN: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Choice {
    layout: Layout,
    /// Blocks until the next trial.
    left: u32,
    interval: u32,
}

/// The layout by tree.
#[derive(Debug, Default)]
pub(super) struct Layouts(HashMap<TreeId, Choice>);

impl Layouts {
    /// The layout for the next block of `tree`; `None`: try.
    fn next(&mut self, tree: TreeId) -> Option<Layout> {
        let choice = self.0.get_mut(&tree)?;
        choice.left = choice.left.checked_sub(1)?;
        Some(choice.layout)
    }

    fn decided(&mut self, tree: TreeId, layout: Layout) {
        if self.0.len() >= TREES_MAX {
            self.0.clear();
        }
        let interval = match self.0.get(&tree) {
            Some(choice) if choice.layout == layout => (choice.interval * 2).min(INTERVAL_MAX),
            _ => INTERVAL_MIN,
        };
        self.0.insert(tree, Choice { layout, left: interval, interval });
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
    if builder.count() < MESSAGES_MIN {
        return Ok(layouts.lock().0.get(&tree).map_or_else(Layout::default, |choice| choice.layout));
    }
    if let Some(layout) = layouts.lock().next(tree) {
        return Ok(layout);
    }
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
    let payload_planes = size(true, &mut payloads)? * 20 <= size(false, &mut payloads)? * 19;
    let layout = Layout { key_planes, payload_planes };
    layouts.lock().decided(tree, layout);
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Random;
    use crate::base::sync::Mutex;
    use crate::format::block::samples::{Sample, iibench};
    use crate::format::{Kind, Stamp};

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
            let payload_planes = !tree[0].payload.is_empty();
            assert_eq!(chosen(&tree[..300]), Layout { key_planes: true, payload_planes });
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
    fn trials_become_rare_while_the_answer_stays() {
        let mut layouts = Layouts::default();
        let mut trials = 0;
        for _ in 0..10_000 {
            if layouts.next(TreeId(1)).is_none() {
                trials += 1;
                layouts.decided(TreeId(1), Layout::default());
            }
        }
        assert!(trials < 30, "trials={trials}");
    }
}
