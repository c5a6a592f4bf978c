//! Where blocks begin, for readers that go on behind a damaged one.

use super::BeTree;
use super::node::{Node, Target};

impl BeTree {
    /// The lowest key above `key` where another block, leaf or unreadable node begins; `None`: nothing does. What cannot be read
    /// of `key` itself need not concern the keys from there on.
    pub fn border_after(&self, key: &[u8]) -> Option<Vec<u8>> {
        let version = self.version();
        let mut border: Option<Vec<u8>> = None;
        let mut lower_to = |other: Option<Vec<u8>>| border = border.take().into_iter().chain(other).min();
        let mut node: &Node = &version.root;
        loop {
            let index = node.find(key);
            let slot = &node.slots()[index];
            lower_to(node.upper(index, None).map(<[u8]>::to_vec));
            slot.runs().for_each(|run| lower_to(run.border_after(key)));
            match slot.target() {
                Target::Node(child) => match child.load(&self.env) {
                    Ok(child) => node = child,
                    Err(_) => return border,
                },
                Target::Leaf(_) => return border,
            }
        }
    }
}
