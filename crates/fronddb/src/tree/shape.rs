//! The shape of the tree as text: for people who look inside, and for tests that say which shape they expect.
//!
//! One line for level 0, then each node with its slots, each slot with its runs (newest first) and what it leads to:
//!
//! ```text
//! level 0: active 2, sealed 40
//! root, height 1
//!   slot from the start
//!     run 7: 3 messages 2/a..2/c, put 2, delete 1
//!     leaf 5: 120 messages 2/a..2/k, put 120
//!   slot 2/k
//!     leaf, empty
//! ```
//!
//! Keys are written as `tree/key`. The form is no interface: it may change with the tree.

use std::fmt::Write as _;

use super::node::{Node, Slot, Target};
use super::{BeTree, TreeEnv};
use crate::base::{Result, key};
use crate::format::RunMeta;

/// Names of the kinds of messages, by kind number.
const KINDS: [&str; 6] = ["", "put", "insert-if-absent", "delete", "single-delete", "update"];

impl BeTree {
    /// The present shape.
    ///
    /// # Errors
    /// Those of loading nodes.
    pub fn shape(&self) -> Result<String> {
        let version = self.version();
        let mut out = format!("level 0: active {}", version.active.messages());
        for sealed in &version.sealed {
            write_to(&mut out, format_args!(", sealed {}", sealed.messages()));
        }
        out.push('\n');
        write_node(&self.env, &mut out, "root", &version.root, 0)?;
        Ok(out)
    }
}

fn write_to(out: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = out.write_fmt(what);
}

fn write_node(env: &TreeEnv, out: &mut String, name: &str, node: &Node, depth: usize) -> Result<()> {
    write_to(out, format_args!("{:depth$}{name}, height {}\n", "", node.height()));
    node.slots().iter().try_for_each(|slot| write_slot(env, out, slot, depth + 2))
}

fn write_slot(env: &TreeEnv, out: &mut String, slot: &Slot, depth: usize) -> Result<()> {
    let lower = if slot.lower().is_empty() { "from the start".to_owned() } else { shown(slot.lower()) };
    write_to(out, format_args!("{:depth$}slot {lower}\n", ""));
    let depth = depth + 2;
    for run in slot.buffer() {
        write_to(out, format_args!("{:depth$}run {}\n", "", content(run.meta())));
    }
    match slot.target() {
        Target::Leaf(None) => write_to(out, format_args!("{:depth$}leaf, empty\n", "")),
        Target::Leaf(Some(base)) => write_to(out, format_args!("{:depth$}leaf {}\n", "", content(base.meta()))),
        Target::Node(child) => write_node(env, out, "node", child.load(env)?, depth)?,
    }
    Ok(())
}

fn content(meta: &RunMeta) -> String {
    let mut out = format!("{}: {} messages", meta.id, meta.messages);
    if meta.messages > 0 {
        write_to(&mut out, format_args!(" {}..{}", shown(&meta.first_key), shown(&meta.last_key)));
    }
    let counts = KINDS.iter().zip(meta.kinds).chain([(&"range-delete", meta.range_deletes)]);
    for (name, count) in counts.filter(|(_, count)| *count > 0) {
        write_to(&mut out, format_args!(", {name} {count}"));
    }
    if meta.blobs > 0 {
        write_to(&mut out, format_args!(", blobs {} of {} bytes", meta.blobs, meta.blob_bytes));
    }
    if !meta.unresolved.is_empty() {
        write_to(&mut out, format_args!(", undecided {}", meta.unresolved.len()));
    }
    out
}

fn shown(inner: &[u8]) -> String {
    match key::split(inner) {
        Some((tree, key)) => format!("{}/{}", tree.0, key.escape_ascii()),
        None => inner.escape_ascii().to_string(),
    }
}
