//! The wait-for graph of the whole engine, under one mutex that only requests in conflict take.
//!
//! A waiting owner has an edge to each owner that must end, or stop waiting ahead of it, before its request can
//! be granted. An owner waits for at most one request at a time, so owners are the nodes. Whoever adds edges
//! looks for a cycle through itself at once; a cycle can only come into being by new edges, so each is found
//! when it closes. Only an owner that someone waits for can close one, which spares the search to almost all.
//!
//! Edges may be missing for a moment (their source was woken and will examine its request again, then search
//! again); they are never there without cause, for a cause that vanishes takes the edge with it.
//!
//! # Two kinds of edges
//!
//! An edge stands for a lock that is held, or for a place in the queue behind a request that waits: hard and soft edges, in
//! the words of PostgreSQL's detector. A soft edge names the request, so it becomes a hard one by itself when that is granted.
//! A cycle of hard edges is a deadlock and gets a victim. One with a soft edge is made by the queue alone: that edge is
//! dropped, and its source examines itself again and goes before the request, which waits for it (L6). Hence a victim is
//! only ever chosen for a real deadlock. Each soft edge leads to an earlier request, so every cycle has a hard one, and
//! dropping ends.

use std::cmp;
use std::sync::Arc;

use smallvec::SmallVec;

use super::key::LockKey;
use super::owner::Owner;
use super::{Mode, VictimPreference};
use crate::base::TxnId;
use crate::base::hash::NumberMap;
use crate::base::sync::atomic::Ordering;

/// A map by owner id.
pub(super) type IdMap<V> = NumberMap<TxnId, V>;

/// An edge: an owner that stands in the way of a request.
#[derive(Debug)]
pub(super) struct Blocker {
    pub(super) owner: Arc<Owner>,
    /// The number of its request if that one only came earlier; `None` when it holds a lock. See also [`Graph::is_soft`].
    pub(super) queued: Option<u64>,
}

/// The owners that stand in the way of a request, each once.
pub(super) type Blockers = SmallVec<[Blocker; 4]>;

/// A waiting request.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) owner: Arc<Owner>,
    pub(super) low: LockKey,
    /// `None` for a point.
    pub(super) high: Option<LockKey>,
    pub(super) mode: Mode,
    pub(super) seq: u64,
    pub(super) since_micros: u64,
    /// See [`super::wait::Request`].
    pub(super) is_implicit: bool,
    pub(super) blockers: Blockers,
    /// Examine the request again.
    pub(super) poked: bool,
    /// Chosen as the victim of a deadlock; says of which.
    pub(super) doomed: Option<String>,
}

impl Waiting {
    fn edge_to(&self, owner: &Owner) -> Option<&Blocker> {
        self.blockers.iter().find(|edge| std::ptr::eq(&*edge.owner, owner))
    }
}

/// The graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    waits: IdMap<Waiting>,
    /// Who has an edge to an owner of this id: there may be an heir of it beside (see `release`), and who waits for both is there twice.
    behind: IdMap<SmallVec<[TxnId; 4]>>,
    pub(super) last_deadlock: Option<String>,
    preference: Option<VictimPreference>,
}

impl Graph {
    pub(super) fn new(preference: Option<VictimPreference>) -> Graph {
        Graph { preference, ..Graph::default() }
    }

    pub(super) fn waits(&self) -> impl Iterator<Item = &Waiting> {
        self.waits.values()
    }

    /// Those that wait for somebody. A request that was just poked or doomed does not, and looks for itself at once.
    pub(super) fn blocked(&self) -> impl Iterator<Item = &Waiting> {
        self.waits().filter(|wait| !wait.blockers.is_empty())
    }

    pub(super) fn wait_of(&mut self, owner: &Owner) -> Option<&mut Waiting> {
        self.waits.get_mut(&owner.id)
    }

    /// True while the request `seq` of `owner` waits.
    pub(super) fn is_waiting(&self, owner: &Owner, seq: u64) -> bool {
        self.waits.get(&owner.id).is_some_and(|wait| wait.seq == seq)
    }

    /// Adds a waiting request, without edges as yet.
    pub(super) fn start(&mut self, wait: Waiting) {
        debug_assert!(!self.waits.contains_key(&wait.owner.id), "an owner waits for one request at a time");
        wait.owner.waiting.store(true, Ordering::SeqCst);
        self.waits.insert(wait.owner.id, wait);
    }

    /// Replaces the edges of a waiting owner. False when one of the blockers has ended meanwhile (the request
    /// must be examined again, for nobody would wake it).
    #[must_use]
    pub(super) fn set_blockers(&mut self, owner: &Owner, blockers: Blockers) -> bool {
        self.clear_blockers(owner.id);
        for blocker in &blockers {
            self.behind.entry(blocker.owner.id).or_default().push(owner.id);
            blocker.owner.followers.fetch_add(1, Ordering::SeqCst);
        }
        let all_live = blockers.iter().all(|blocker| !blocker.owner.has_ended());
        if let Some(wait) = self.waits.get_mut(&owner.id) {
            wait.blockers = blockers;
            wait.poked = false;
        }
        all_live
    }

    fn clear_blockers(&mut self, id: TxnId) {
        let Some(wait) = self.waits.get_mut(&id) else { return };
        for blocker in std::mem::take(&mut wait.blockers) {
            self.remove_edge(id, &blocker.owner);
        }
    }

    fn remove_edge(&mut self, from: TxnId, to: &Owner) {
        if let Some(behind) = self.behind.get_mut(&to.id)
            && let Some(at) = behind.iter().position(|id| *id == from)
        {
            behind.swap_remove(at);
            to.followers.fetch_sub(1, Ordering::SeqCst);
            if behind.is_empty() {
                self.behind.remove(&to.id);
            }
        }
    }

    /// Ends a wait that was granted. Those behind it keep their edges: now they wait for the lock.
    pub(super) fn grant(&mut self, owner: &Owner) {
        self.clear_blockers(owner.id);
        self.waits.remove(&owner.id);
        owner.waiting.store(false, Ordering::SeqCst);
    }

    /// Ends the wait for the request `seq`, which was given up: those in the queue behind it examine themselves again. Those
    /// who wait for locks that the owner holds wait on.
    pub(super) fn withdraw(&mut self, owner: &Owner, seq: u64) {
        self.grant(owner);
        self.poke_followers(owner, |_, edge| edge.queued == Some(seq));
    }

    /// `owner` has unlocked `key`: those who may have waited for that examine themselves again.
    pub(super) fn unlocked(&mut self, owner: &Owner, key: &LockKey) {
        self.poke_followers(owner, |wait, _| match &wait.high {
            Some(high) => wait.low <= *key && key < high,
            None => wait.low == *key,
        });
    }

    /// `owner` has undone some of what it has written: those who may have waited for that, and for no lock, examine themselves again.
    pub(super) fn undone(&mut self, owner: &Owner) {
        self.poke_followers(owner, |wait, _| wait.is_implicit);
    }

    /// Drops those of the edges to `owner` whose cause may be gone, and has their sources examined again. The other edges
    /// stay, or the owner's next request would not be let past those who wait for it.
    fn poke_followers(&mut self, owner: &Owner, is_doubtful: impl Fn(&Waiting, &Blocker) -> bool) {
        for id in self.behind.get(&owner.id).cloned().unwrap_or_default() {
            let Some(wait) = self.waits.get(&id) else { continue };
            if wait.edge_to(owner).is_some_and(|edge| is_doubtful(wait, edge)) {
                self.drop_edge(id, owner);
                self.poke(id);
            }
        }
    }

    /// `owner` has ended: wakes those that waited for nothing else, and `owner` itself if it waits.
    pub(super) fn end(&mut self, owner: &Owner) {
        for id in self.behind.get(&owner.id).cloned().unwrap_or_default() {
            let has_edge = self.waits.get(&id).is_some_and(|wait| wait.edge_to(owner).is_some());
            if has_edge && self.drop_edge(id, owner) {
                self.poke(id);
            }
        }
        owner.wake.notify_all();
    }

    /// Removes an edge that there is; true when it was the last one.
    fn drop_edge(&mut self, from: TxnId, to: &Owner) -> bool {
        self.remove_edge(from, to);
        let Some(wait) = self.waits.get_mut(&from) else { return false };
        wait.blockers.retain(|blocker| !std::ptr::eq(&*blocker.owner, to));
        wait.blockers.is_empty()
    }

    /// Has a waiting request examined again.
    pub(super) fn poke(&mut self, id: TxnId) {
        if let Some(wait) = self.waits.get_mut(&id) {
            wait.poked = true;
            wait.owner.wake.notify_all();
        }
    }

    /// Wakes everyone to look at the clock.
    pub(super) fn wake_all(&self) {
        self.waits.values().for_each(|wait| {
            wait.owner.wake.notify_all();
        });
    }

    /// True when `from` waits, directly or not, for `target`.
    pub(super) fn reaches(&self, from: &Owner, target: &Owner) -> bool {
        target.followers.load(Ordering::SeqCst) > 0 && self.path(from.id, target).is_some()
    }

    /// Who of two is the victim of a deadlock: `Less`, the first. As the caller prefers, else the one with fewer locks, else
    /// the younger.
    fn rather(&self, one: &Owner, other: &Owner) -> cmp::Ordering {
        let preferred = match &self.preference {
            Some(VictimPreference(prefer)) if one.label != 0 && other.label != 0 => prefer(one.label, other.label),
            _ => cmp::Ordering::Equal,
        };
        let weight = |owner: &Owner| (owner.weight.load(Ordering::Relaxed), cmp::Reverse(owner.id));
        preferred.then_with(|| weight(one).cmp(&weight(other)))
    }

    /// Finds every cycle that `owner` has closed. One with a soft edge loses that; of each other, which is a deadlock, a
    /// victim is doomed. True when that is `owner`.
    pub(super) fn resolve(&mut self, owner: &Arc<Owner>) -> bool {
        while owner.followers.load(Ordering::SeqCst) > 0 {
            let Some(cycle) = self.path(owner.id, owner) else { return false };
            // Each has an edge to the one before it, the first to the last.
            let edges = cycle.iter().zip(cycle.iter().cycle().skip(cycle.len() - 1));
            if let Some((from, to)) = edges.into_iter().find(|(from, to)| self.is_soft(from, to)) {
                self.drop_edge(from.id, to);
                self.poke(from.id);
                continue;
            }
            let victim = cycle.iter().min_by(|one, other| self.rather(one, other)).unwrap_or(owner).clone();
            let names: Vec<String> = cycle.iter().map(|one| one.id.to_string()).collect();
            let report = format!("victim={} cycle={}", victim.id, names.join("<-"));
            self.last_deadlock = Some(report.clone());
            self.clear_blockers(victim.id);
            if let Some(wait) = self.waits.get_mut(&victim.id) {
                wait.doomed = Some(report);
            }
            victim.wake.notify_all();
            if Arc::ptr_eq(&victim, owner) {
                return true;
            }
        }
        false
    }

    /// True when `from` waits for nothing of `to` but its place in a queue: for a request of its that is not granted.
    fn is_soft(&self, from: &Owner, to: &Owner) -> bool {
        let edge = self.waits.get(&from.id).and_then(|wait| wait.edge_to(to));
        let request = self.waits.get(&to.id).map(|wait| wait.seq);
        request.is_some() && edge.is_some_and(|edge| edge.queued == request)
    }

    /// The waiting owners on a way of at least one edge from `from` to `target`, the last one first; `from` and,
    /// if it is another, not `target` are among them.
    fn path(&self, from: TxnId, target: &Owner) -> Option<Vec<Arc<Owner>>> {
        let mut came_from: IdMap<TxnId> = IdMap::default();
        let mut stack: SmallVec<[TxnId; 16]> = SmallVec::new();
        stack.push(from);
        while let Some(at) = stack.pop() {
            let Some(wait) = self.waits.get(&at) else { continue };
            for blocker in wait.blockers.iter().map(|edge| &edge.owner).filter(|blocker| !blocker.has_ended()) {
                if std::ptr::eq(&**blocker, target) {
                    return Some(self.trace(at, from, &came_from));
                }
                if blocker.id != from && !came_from.contains_key(&blocker.id) {
                    came_from.insert(blocker.id, at);
                    stack.push(blocker.id);
                }
            }
        }
        None
    }

    fn trace(&self, mut at: TxnId, from: TxnId, came_from: &IdMap<TxnId>) -> Vec<Arc<Owner>> {
        let mut path = Vec::new();
        loop {
            path.extend(self.waits.get(&at).map(|wait| wait.owner.clone()));
            match came_from.get(&at) {
                Some(before) if at != from => at = *before,
                _ => return path,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::TreeId;

    fn waiting(graph: &mut Graph, owner: &Arc<Owner>, blockers: &[&Arc<Owner>]) -> bool {
        let key = LockKey::new(TreeId(1), b"k");
        let blockers = blockers.iter().map(|owner| Blocker { owner: Arc::clone(owner), queued: None }).collect();
        wait_behind(graph, owner, key, 0, blockers)
    }

    fn wait_behind(graph: &mut Graph, owner: &Arc<Owner>, key: LockKey, seq: u64, blockers: Blockers) -> bool {
        graph.start(Waiting {
            owner: owner.clone(),
            low: key,
            high: None,
            mode: Mode::Exclusive,
            seq,
            since_micros: 0,
            is_implicit: false,
            blockers: Blockers::new(),
            poked: false,
            doomed: None,
        });
        assert!(graph.set_blockers(owner, blockers));
        graph.resolve(owner)
    }

    fn owners<const N: usize>(weights: [u64; N]) -> [Arc<Owner>; N] {
        let mut id = 0;
        weights.map(|weight| {
            id += 1;
            let owner = Owner::new(TxnId(id), 0);
            owner.weight.store(weight, Ordering::Relaxed);
            owner
        })
    }

    #[test]
    fn the_owner_of_the_fewest_locks_is_the_victim() {
        let [a, b, c] = owners([5, 1, 9]);
        let mut graph = Graph::default();
        assert!(!waiting(&mut graph, &a, &[&b]));
        assert!(!waiting(&mut graph, &b, &[&c]));
        assert!(!waiting(&mut graph, &c, &[&a]));
        assert!(graph.wait_of(&b).is_some_and(|wait| wait.doomed.is_some()));
        assert!(graph.wait_of(&a).is_some_and(|wait| wait.doomed.is_none()));
        assert!(!graph.reaches(&c, &c), "the victim's edges are gone at once");
        let mut listed: Vec<_> = graph.blocked().map(|wait| wait.owner.id).collect();
        listed.sort_unstable();
        assert_eq!(listed, [a.id, c.id], "nor does it pass for one that waits for nobody");
    }

    #[test]
    fn of_equals_the_youngest_is_the_victim() {
        let [a, b] = owners([2, 2]);
        let mut graph = Graph::default();
        assert!(!waiting(&mut graph, &a, &[&b]));
        assert!(waiting(&mut graph, &b, &[&a]));
    }

    #[test]
    fn the_preference_of_the_caller_goes_before_the_number_of_locks() {
        let [a, b, c] = owners([5, 1, 9]);
        // Prefers the greater label, as if that one were to commit later; of `b`, without a label, it is not asked.
        let prefer = |one: u64, other: u64| other.cmp(&one);
        let mut graph = Graph::new(Some(VictimPreference::new(prefer)));
        let [a, c] = [(a, 7), (c, 8)].map(|(owner, label)| {
            let labelled = Owner::new(owner.id, label);
            labelled.weight.store(owner.weight.load(Ordering::Relaxed), Ordering::Relaxed);
            labelled
        });
        assert!(!waiting(&mut graph, &a, &[&c]));
        assert!(waiting(&mut graph, &c, &[&a]), "it holds more locks");
        graph.withdraw(&a, 0);
        graph.withdraw(&c, 0);
        assert!(!waiting(&mut graph, &b, &[&a]));
        assert!(!waiting(&mut graph, &a, &[&b]));
        assert!(graph.wait_of(&b).is_some_and(|wait| wait.doomed.is_some()));
    }

    #[test]
    fn one_request_can_close_two_cycles() {
        let [a, b, c] = owners([1, 1, 9]);
        let mut graph = Graph::default();
        assert!(!waiting(&mut graph, &a, &[&c]));
        assert!(!waiting(&mut graph, &b, &[&c]));
        assert!(!waiting(&mut graph, &c, &[&a, &b]));
        assert!(graph.wait_of(&a).is_some_and(|wait| wait.doomed.is_some()));
        assert!(graph.wait_of(&b).is_some_and(|wait| wait.doomed.is_some()));
    }

    #[test]
    fn a_cycle_that_the_queue_makes_has_no_victim_until_the_request_is_granted() {
        let [a, b] = owners([1, 1]);
        let key = || LockKey::new(TreeId(1), b"k");
        let edge = |owner: &Arc<Owner>, queued| Blocker { owner: owner.clone(), queued };
        let mut graph = Graph::default();
        wait_behind(&mut graph, &a, key(), 2, Blockers::from_iter([edge(&b, Some(1))]));
        assert!(!wait_behind(&mut graph, &b, key(), 1, Blockers::from_iter([edge(&a, None)])));
        assert!(graph.wait_of(&a).is_some_and(|wait| wait.poked && wait.doomed.is_none() && wait.blockers.is_empty()));
        assert!(graph.reaches(&b, &a), "so that it passes");
        // The same edge when the request is granted and another one waits.
        assert!(graph.set_blockers(&a, Blockers::from_iter([edge(&b, Some(1))])));
        graph.grant(&b);
        assert!(wait_behind(&mut graph, &b, key(), 3, Blockers::from_iter([edge(&a, None)])), "the younger one");
    }

    #[test]
    fn only_those_are_woken_whose_cause_may_be_gone() {
        let [a, b, c, d] = owners([1, 1, 1, 1]);
        let key = |name: &[u8]| LockKey::new(TreeId(1), name);
        let edge = |queued| Blockers::from_iter([Blocker { owner: a.clone(), queued }]);
        let mut graph = Graph::default();
        wait_behind(&mut graph, &b, key(b"k"), 2, edge(None));
        wait_behind(&mut graph, &c, key(b"k"), 3, edge(Some(1)));
        wait_behind(&mut graph, &d, key(b"m"), 4, edge(None));
        let woken = |graph: &mut Graph| {
            [&b, &c, &d].map(|owner| graph.wait_of(owner).is_some_and(|wait| std::mem::take(&mut wait.poked)))
        };
        graph.withdraw(&a, 1);
        assert_eq!(woken(&mut graph), [false, true, false]);
        graph.unlocked(&a, &key(b"m"));
        assert_eq!(woken(&mut graph), [false, false, true]);
        graph.unlocked(&a, &key(b"l"));
        assert_eq!(woken(&mut graph), [false, false, false]);
        assert_eq!(a.followers.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_waiter_is_woken_when_its_last_blocker_ends() {
        let [a, b, c] = owners([1, 1, 1]);
        let mut graph = Graph::default();
        waiting(&mut graph, &a, &[&b, &c]);
        graph.end(&b);
        assert!(graph.wait_of(&a).is_some_and(|wait| !wait.poked));
        graph.end(&c);
        assert!(graph.wait_of(&a).is_some_and(|wait| wait.poked));
        assert_eq!((b.followers.load(Ordering::SeqCst), c.followers.load(Ordering::SeqCst)), (0, 0));
        assert!(graph.behind.is_empty());
    }
}
