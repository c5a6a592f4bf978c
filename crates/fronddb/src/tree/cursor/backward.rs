//! Going backward: the last row before the positions of the sources.
//!
//! The messages of a key come oldest first here. They are copied out and turned round if they are few, and looked up anew, newest
//! first, if they are many.

use super::chain::Death;
use super::leaf::{Direction, Stream};
use super::{Current, TreeCursor};
use crate::base::Result;
use crate::format::Message;
use crate::format::resolve::Found;
use crate::tree::source::VERSIONS_MAX;

impl TreeCursor {
    /// Finds the last visible row at or before the positions of the sources, and moves them before it.
    pub(super) fn find_backward(&mut self) -> Result<bool> {
        loop {
            self.current = Current::None;
            let Some(leaf) = &mut self.leaf else { return Ok(false) };
            let inside = leaf
                .order
                .last()
                .is_some_and(|place| leaf.streams[place.rank as usize].source.key() >= leaf.range.lower.as_slice());
            if !inside {
                let next = Some(leaf.range.lower.clone()).filter(|next| *next > self.range.lower);
                if !self.go_on_at(next)? {
                    return Ok(false);
                }
                continue;
            }
            if self.resolve_backward()? {
                self.end_chain(true);
                return Ok(true);
            }
            self.passing.key()?;
            if self.passing.is_over() {
                return Ok(self.give_up());
            }
            self.pass_dead()?;
        }
    }

    fn resolve_backward(&mut self) -> Result<bool> {
        let Some(leaf) = &mut self.leaf else { return Ok(false) };
        let Some(first) = leaf.order.last().copied() else { return Ok(false) };
        self.key.clear();
        self.key.extend_from_slice(leaf.streams[first.rank as usize].source.key());
        self.reader.clear();
        let view = self.view.view();
        if !leaf.ranges.is_empty() {
            self.reader.delete_below(leaf.ranges.newest(&self.key));
        }
        let (mut decided, mut passed) = (false, None);
        self.death = Death::new();
        let mut older = None;
        let mut look = |message: &Message<'_>| -> Result<bool> {
            match self.reader.message(&view, message) {
                Found::Undecided { by } => {
                    passed = passed.or(Some(message.seq));
                    self.death.undecided(&view, message);
                    self.undecided.note(by, &self.key);
                    return Ok(false);
                }
                Found::Absent => self.death.absent(&view, message),
                Found::Here if message.blob => {
                    let wanted = self.options.wanted.of_older(self.reader.is_plain());
                    let value =
                        self.large.load(&self.tree, &self.key, message.payload, wanted, self.options.fill_cache)?;
                    older = Some(value);
                }
                Found::Here => {
                    self.buffer.clear();
                    self.buffer.extend_from_slice(message.payload);
                    older = Some(std::mem::take(&mut self.buffer));
                }
            }
            Ok(true)
        };
        while let Some(place) = leaf.order.last().copied() {
            let Stream { source, passed, .. } = &mut leaf.streams[place.rank as usize];
            if source.key() != self.key {
                break;
            }
            *passed = passed.saturating_add(1);
            leaf.order.pop();
            if self.scratch.collect(source, &self.key, VERSIONS_MAX)? {
                for message in self.scratch.newest_first(&self.key) {
                    decided = decided || look(&message)?;
                }
            } else {
                // Those that matter are the newest.
                source.seek(&self.key)?;
                while !decided && source.valid() && source.key() == self.key {
                    decided = look(&source.message())?;
                    source.next()?;
                }
                source.seek_before(&self.key)?;
            }
            leaf.place(place.rank, Direction::Backward)?;
        }
        if let Some(first) = passed
            && let Some(is_row) = self.look_again(first)?
        {
            return Ok(is_row);
        }
        self.finish_value(older)
    }
}
