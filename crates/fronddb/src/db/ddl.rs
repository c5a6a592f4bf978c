//! Creating, dropping, renaming and truncating trees inside transactions.
//!
//! Each is a few messages to the catalog (tree 0) and, for the rows themselves, one range-delete. The name's row is
//! locked exclusively until the transaction ends, and dropping or truncating locks the whole tree, so writers that
//! take locks are waited for. (Writers whose locks are *covered* are the business of who covers them.)
//!
//! A transaction knows what it has changed. Of one that an earlier opening prepared, it is read in the rows before it is committed
//! ([`Engine::prepared_changes`]).
//!
//! Tree ids are drawn from a counter that only grows: one that was drawn in vain is not used again while the
//! process lives, and after a crash only if nothing of it reached the log.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use super::batch::WriteBatch;
use super::catalog::{self, CATALOG, Catalog, CatalogChanges, Change, Row};
use super::core::{TxnCore, TxnState};
use super::engine::Engine;
use super::options::{TreeOptions, Wait};
use super::tree_handle::{Tree, TreeInfo, no_tree};
use super::write::tree_bounds;
use crate::base::key::{inner, prefix_end, successor};
use crate::base::{CommitNumber, Error, ErrorKind, Result, TreeId, TxnId};
use crate::format::{Uncommitted, View};
use crate::lock::Mode;
use crate::tree::Wanted;
use crate::tree::cursor::OwnedView;

/// A handle of the catalog itself, for batches.
fn catalog_tree(catalog: &Catalog) -> Tree {
    catalog.handle("", &Row { id: CATALOG, codec: crate::base::compress::Codec::None, metadata: Vec::new() })
}

/// Sees a key of the catalog and its value.
type VisitRow<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<()>;

impl TxnCore {
    pub(crate) fn open_tree(&self, name: &str) -> Result<Tree> {
        let state = self.active()?;
        match state.catalog.find(name) {
            Some(changed) => changed.ok_or_else(|| no_tree(name)),
            None => self.engine.open_tree(name),
        }
    }

    pub(crate) fn create_tree(&self, name: &str, options: &TreeOptions) -> Result<Tree> {
        catalog::check(name, options)?;
        let mut state = self.writing()?;
        self.lock_name(&mut state, name)?;
        if self.row(&state, name)?.is_some() {
            return Err(Error::new(ErrorKind::KeyExists, format!("tree exists, name={name}")));
        }
        let engine = &self.engine;
        let id = engine.next_tree.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| next.checked_add(1));
        let id = id
            .map(TreeId)
            .map_err(|_| Error::invalid("every number of a tree has been used; dump and load the database"))?;
        let codec = options.codec.unwrap_or(engine.options.default_codec);
        let row = Row { id, codec, metadata: options.metadata.clone() };
        let step = self.write_rows(state, |batch, catalog| {
            batch.put(catalog, &catalog::name_key(name), &row.encode())?;
            batch.put(catalog, &catalog::id_key(id), name.as_bytes())
        })?;
        let tree = engine.catalog.handle(name, &row);
        let mut state = self.active()?;
        state.catalog.push(step, Change::Created(id, codec));
        state.catalog.push(step, Change::Named(name.to_owned(), tree.clone()));
        engine.set_codec(id, codec);
        Ok(tree)
    }

    pub(crate) fn drop_tree(&self, name: &str) -> Result<()> {
        self.all_or_nothing(|| self.drop_tree_in_steps(name))
    }

    fn drop_tree_in_steps(&self, name: &str) -> Result<()> {
        let mut state = self.writing()?;
        self.lock_name(&mut state, name)?;
        let row = self.row(&state, name)?.ok_or_else(|| no_tree(name))?;
        let limit = self.lock_wait(Wait::Default);
        self.lock_span(&mut state, row.id, &[], &[], Mode::Exclusive, limit)?;
        let (start, end) = tree_bounds(row.id);
        self.write_range_delete(&mut state, &start, &end)?;
        let step = self.write_rows(state, |batch, catalog| {
            batch.delete(catalog, &catalog::name_key(name))?;
            batch.delete(catalog, &catalog::id_key(row.id))
        })?;
        let mut state = self.active()?;
        state.catalog.push(step, Change::Unnamed(name.to_owned()));
        state.catalog.push(step, Change::Dropped(row.id));
        Ok(())
    }

    pub(crate) fn rename_tree(&self, old: &str, new: &str) -> Result<()> {
        catalog::check(new, &TreeOptions::default())?;
        let mut state = self.writing()?;
        let (first, second) = if old <= new { (old, new) } else { (new, old) };
        self.lock_name(&mut state, first)?;
        self.lock_name(&mut state, second)?;
        let row = self.row(&state, old)?.ok_or_else(|| no_tree(old))?;
        if old == new {
            return Ok(());
        }
        if self.row(&state, new)?.is_some() {
            return Err(Error::new(ErrorKind::KeyExists, format!("tree exists, name={new}")));
        }
        let step = self.write_rows(state, |batch, catalog| {
            let renamed = row.encode();
            // Who renames several trees, each by itself, takes a failure back by renaming: also on a disk that has filled up meanwhile.
            if renamed.len() < self.engine.options.blob_bytes_min {
                batch.let_in_as_deletes();
            }
            batch.delete(catalog, &catalog::name_key(old))?;
            batch.put(catalog, &catalog::name_key(new), &renamed)?;
            batch.put(catalog, &catalog::id_key(row.id), new.as_bytes())
        })?;
        let tree = self.engine.catalog.handle(new, &row);
        let mut state = self.active()?;
        state.catalog.push(step, Change::Unnamed(old.to_owned()));
        state.catalog.push(step, Change::Named(new.to_owned(), tree));
        Ok(())
    }

    pub(crate) fn truncate_tree(&self, tree: &Tree) -> Result<()> {
        let mut state = self.writing()?;
        self.check_tree(&state, &tree.inner)?;
        let limit = self.lock_wait(Wait::Default);
        self.lock_span(&mut state, tree.id(), &[], &[], Mode::Exclusive, limit)?;
        tree.inner.check()?;
        let (start, end) = tree_bounds(tree.id());
        self.write_range_delete(&mut state, &start, &end)
    }

    pub(crate) fn set_tree_options(&self, tree: &Tree, options: &TreeOptions) -> Result<()> {
        let mut state = self.writing()?;
        self.check_tree(&state, &tree.inner)?;
        let name = self.lock_tree_name(&mut state, tree)?;
        catalog::check(&name, options)?;
        let mut row = self.row(&state, &name)?.ok_or_else(|| no_tree(&name))?;
        row.codec = options.codec.unwrap_or(self.engine.options.default_codec);
        row.metadata.clone_from(&options.metadata);
        let step =
            self.write_rows(state, |batch, catalog| batch.put(catalog, &catalog::name_key(&name), &row.encode()))?;
        self.active()?.catalog.push(step, Change::Codec(row.id, row.codec));
        Ok(())
    }

    pub(crate) fn tree_options(&self, tree: &Tree) -> Result<TreeOptions> {
        let state = self.active()?;
        self.check_tree(&state, &tree.inner)?;
        // Both rows as of one moment: in between the name may become another tree's.
        let snapshot = self.engine.snapshots.acquire();
        let view = View { snapshot: snapshot.number(), ..self.latest_view(&state) };
        let name = self.name_in(&view, tree)?;
        Ok(self.row_in(&view, &name)?.ok_or_else(|| no_tree(&name))?.options())
    }

    /// Locks the name that the tree has now, which may change while the lock is waited for.
    fn lock_tree_name(&self, state: &mut TxnState, tree: &Tree) -> Result<String> {
        loop {
            let name = self.name_of(state, tree)?;
            self.lock_name(state, &name)?;
            if self.name_of(state, tree)? == name {
                return Ok(name);
            }
        }
    }

    /// At a snapshot: others may rename the tree, whose row by id has no lock of its own.
    fn name_of(&self, state: &TxnState, tree: &Tree) -> Result<String> {
        let snapshot = self.engine.snapshots.acquire();
        self.name_in(&View { snapshot: snapshot.number(), ..self.latest_view(state) }, tree)
    }

    fn name_in(&self, view: &View<'_>, tree: &Tree) -> Result<String> {
        let key = inner(CATALOG, &catalog::id_key(tree.id()));
        let value = self.engine.read(view, &key, Wanted::Whole)?.ok_or_else(|| no_tree(tree.name()))?;
        String::from_utf8(value.into_vec()).map_err(|_| Error::corruption("catalog name is malformed, tree=0"))
    }

    fn lock_name(&self, state: &mut TxnState, name: &str) -> Result<()> {
        self.lock_point(state, CATALOG, &catalog::name_key(name), Mode::Exclusive, Wait::Default).map(|_| ())
    }

    /// The row of `name` as this transaction sees it.
    fn row(&self, state: &TxnState, name: &str) -> Result<Option<Row>> {
        self.row_in(&self.latest_view(state), name)
    }

    fn row_in(&self, view: &View<'_>, name: &str) -> Result<Option<Row>> {
        let key = inner(CATALOG, &catalog::name_key(name));
        let value = self.engine.read(view, &key, Wanted::Whole)?;
        value.map(|value| Row::decode(&value)).transpose()
    }

    /// Writes rows of the catalog, whose lock is held; returns the step that they are written in.
    fn write_rows(
        &self,
        state: crate::base::sync::MutexGuard<'_, TxnState>,
        fill: impl FnOnce(&mut WriteBatch, &Tree) -> Result<()>,
    ) -> Result<u32> {
        drop(state);
        let catalog = catalog_tree(&self.engine.catalog);
        let mut batch = WriteBatch::new();
        batch.set_covered(true);
        fill(&mut batch, &catalog)?;
        self.write(&batch)?;
        let state = self.active()?;
        Ok(state.written.unwrap_or(state.step))
    }
}

impl Engine {
    /// The handle of a committed tree.
    pub(crate) fn open_tree(&self, name: &str) -> Result<Tree> {
        self.check_open()?;
        if let Some(tree) = self.catalog.find(name) {
            return Ok(tree);
        }
        loop {
            let epoch = self.catalog.epoch();
            let value = self.read_latest(CATALOG, &catalog::name_key(name))?.ok_or_else(|| no_tree(name))?;
            let row = Row::decode(&value)?;
            // Known already, but where the row of another tree is damaged.
            self.set_codec(row.id, row.codec);
            let tree = self.catalog.handle(name, &row);
            // A drop that committed in between would not be known to the handle.
            if self.catalog.remember(epoch, &tree) {
                return Ok(tree);
            }
        }
    }

    /// The committed trees whose names begin with `prefix`, by name, but for those whose rows cannot be read; and what is in the way.
    pub(crate) fn trees(&self, prefix: &str) -> Result<(Vec<TreeInfo>, Vec<Error>)> {
        let mut trees = Vec::new();
        let damage = self.for_each_row(prefix, |name, row| {
            let traffic = self.tree.env().codecs.written(row.id);
            trees.push(TreeInfo { id: row.id, name, codec: row.codec, metadata_bytes: row.metadata.len(), traffic });
        })?;
        Ok((trees, damage))
    }

    /// The name of a committed tree by its row by id, if that can be read.
    pub(crate) fn tree_name(&self, id: TreeId) -> Option<String> {
        let key = inner(CATALOG, &catalog::id_key(id));
        let snapshot = self.snapshots.acquire();
        let view = View { snapshot: snapshot.number(), ..self.latest() };
        let name = self.tree.get(&self.tree.version_guard(), &view, &key).ok()??;
        String::from_utf8(name.into_vec()).ok()
    }

    /// Visits the committed rows of names that begin with `prefix`, past the damage that it gives.
    fn for_each_row(&self, prefix: &str, visit: impl FnMut(String, Row)) -> Result<Vec<Error>> {
        let snapshot = self.snapshots.acquire();
        self.for_each_row_of(snapshot.number(), None, prefix, visit)
    }

    /// The same as they were at a commit, with what a transaction has written since.
    fn for_each_row_of(
        &self,
        snapshot: CommitNumber,
        own: Option<TxnId>,
        prefix: &str,
        mut visit: impl FnMut(String, Row),
    ) -> Result<Vec<Error>> {
        let view = self.owned_view(snapshot, own, Uncommitted::Hidden);
        // The keys of such rows begin as the key of the prefix itself.
        self.for_each_under(&view, &catalog::name_key(prefix), &mut |key, value| {
            visit(catalog::name_of_key(key)?, Row::decode(value)?);
            Ok(())
        })
    }

    /// Visits the committed rows by id, with the name that each has, past the damage that it gives.
    pub(crate) fn for_each_id(&self, visit: &mut dyn FnMut(TreeId, &[u8])) -> Result<Vec<Error>> {
        let snapshot = self.snapshots.acquire();
        let view = self.owned_view(snapshot.number(), None, Uncommitted::Hidden);
        self.for_each_under(&view, &catalog::id_prefix(), &mut |key, value| {
            let id = catalog::id_of_key(key).ok_or_else(|| Error::corruption("catalog key is malformed, tree=0"))?;
            visit(id, value);
            Ok(())
        })
    }

    /// Visits the rows of the catalog that a view sees and whose keys begin with `prefix`. Where something cannot be read, the visit goes
    /// on behind it; each such damage is given in the end.
    fn for_each_under(&self, view: &OwnedView, prefix: &[u8], visit: VisitRow<'_>) -> Result<Vec<Error>> {
        self.check_open()?;
        let mut at = inner(CATALOG, prefix);
        let last = prefix_end(prefix).map(|end| inner(CATALOG, &end));
        let mut end = last.clone();
        let mut damage = Vec::new();
        // The last damage whose border was reached: one damage may be met at several borders in turn.
        let mut passed: Option<Error> = None;
        while last.as_ref().is_none_or(|last| at < *last) {
            let walked = self.walk_catalog(view.clone(), &mut at, end.clone(), &mut damage, visit);
            let Err(error) = walked else {
                let Some(behind) = end else { break };
                (at, end) = (behind, last.clone());
                continue;
            };
            if !error.is_unreadable() {
                return Err(error);
            }
            let border = self.tree.border_after(&at).into_iter().chain(last.clone()).min();
            if border != end {
                // What is damaged may lie behind the border.
                end = border;
                continue;
            }
            if passed.as_ref().is_none_or(|passed| passed.message() != error.message()) {
                damage.push(error.clone());
            }
            passed = Some(error);
            let Some(behind) = end else { break };
            (at, end) = (behind, last.clone());
        }
        Ok(damage)
    }

    /// Visits the rows of the catalog from `at` up to `end`, leaving `at` behind the last one that was visited.
    fn walk_catalog(
        &self,
        view: OwnedView,
        at: &mut Vec<u8>,
        end: Option<Vec<u8>>,
        damage: &mut Vec<Error>,
        visit: VisitRow<'_>,
    ) -> Result<()> {
        let mut cursor = self.tree_cursor(view, at.clone(), end, true, 0);
        let mut more = cursor.first()?;
        while more {
            let key = crate::base::key::split(cursor.key()).map_or(&[][..], |(_, key)| key);
            match visit(key, cursor.value()) {
                Err(error) if error.is_unreadable() => damage.push(error),
                visited => visited?,
            }
            *at = successor(cursor.key());
            more = cursor.next()?;
        }
        Ok(())
    }

    /// Tells the writers of runs which trees have a codec of their own; those whose rows cannot be read get the default. Background work
    /// begins with this.
    pub(crate) fn load_codecs(&self) -> Result<()> {
        let mut own = Vec::new();
        let damage = self.for_each_row("", |_, row| {
            if row.codec != self.options.default_codec {
                own.push((row.id, row.codec));
            }
        })?;
        self.tree.env().codecs.add(&own);
        damage.iter().for_each(|error| self.events.damage(error));
        Ok(())
    }

    /// Blocks of the tree that are written from now on have this codec.
    pub(crate) fn set_codec(&self, tree: TreeId, codec: crate::base::compress::Codec) {
        let table = &self.tree.env().codecs;
        if table.get(tree) != codec {
            table.set(tree, Some(codec).filter(|codec| *codec != self.options.default_codec));
        }
    }

    /// Makes known what a transaction that has just committed changed in the catalog.
    pub(crate) fn apply_catalog(&self, changes: &CatalogChanges) {
        if !changes.is_empty() {
            for (tree, codec) in self.catalog.commit(changes) {
                self.set_codec(tree, codec.unwrap_or(self.options.default_codec));
            }
        }
    }

    /// Forgets trees whose creation was undone.
    pub(crate) fn undo_catalog(&self, created: &[TreeId]) {
        self.catalog.undo(created);
        created.iter().for_each(|tree| self.set_codec(*tree, self.options.default_codec));
    }

    /// What a transaction that an earlier opening prepared changes in the catalog. To be asked before it is committed: a read that
    /// fails leaves it as it is. What is damaged keeps it from nothing, and changes nothing.
    pub(crate) fn prepared_changes(&self, txn: TxnId) -> Result<CatalogChanges> {
        let mut changes = CatalogChanges::default();
        // It holds the lock of each name that it has changed.
        if self.locks.export(txn).iter().all(|lock| lock.tree != CATALOG) {
            return Ok(changes);
        }
        changes.push(0, Change::AnyName);
        let snapshot = self.snapshots.acquire();
        let codecs = |own| {
            let mut codecs = HashMap::new();
            let damage = self.for_each_row_of(snapshot.number(), own, "", |_, row| {
                codecs.insert(row.id, row.codec);
            })?;
            damage.iter().for_each(|error| self.events.damage(error));
            Ok::<_, Error>(codecs)
        };
        let (before, after) = (codecs(None)?, codecs(Some(txn))?);
        for (id, codec) in &after {
            if before.get(id) != Some(codec) {
                changes.push(0, Change::Codec(*id, *codec));
            }
        }
        let view = View { snapshot: snapshot.number(), own: Some(txn), ..self.latest() };
        for id in before.keys().filter(|id| !after.contains_key(id)) {
            // Its row by name may only be hidden by damage.
            match self.read(&view, &inner(CATALOG, &catalog::id_key(*id)), Wanted::Whole) {
                Ok(Some(_)) => {}
                Ok(None) => changes.push(0, Change::Dropped(*id)),
                Err(error) if error.is_unreadable() => self.events.damage(&error),
                Err(error) => return Err(error),
            }
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use crate::base::compress::Codec;
    use crate::base::random::Random;
    use crate::base::{ErrorKind, Result};
    use crate::db::database::Database;
    use crate::db::options::{MEMORY_BYTES_MIN, Options, TreeOptions, TxnOptions};
    use crate::io::{CallClass, Fault, FaultPlan, FaultRule, FaultStorage, MemoryStorage, Storage};

    fn open(storage: Arc<dyn Storage>) -> Result<Database> {
        let options = Options::new().create_if_missing(true).storage(Some(storage));
        Database::open("/db", options.memory_bytes(MEMORY_BYTES_MIN).manual_background(true))
    }

    #[test]
    fn no_number_of_a_tree_is_given_twice() -> Result<()> {
        let db = open(Arc::new(MemoryStorage::new()))?;
        db.engine().next_tree.store(u32::MAX - 1, Ordering::Relaxed);
        assert_eq!(db.create_tree("last", &TreeOptions::default())?.id().0, u32::MAX - 1);
        for name in ["one too many", "another"] {
            let refused = db.create_tree(name, &TreeOptions::default());
            assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::InvalidArgument));
        }
        Ok(())
    }

    #[test]
    fn nothing_is_kept_of_the_codec_of_a_tree_that_is_gone() -> Result<()> {
        let (memory, own) = (MemoryStorage::new(), Some(Codec::Zstd { level: 7 }));
        let options = TreeOptions { codec: own, ..TreeOptions::default() };
        let db = open(Arc::new(memory.clone()))?;
        let count = |db: &Database| db.engine().tree.env().codecs.own_count();
        db.create_tree("stays", &options)?;
        for _ in 0..10 {
            db.create_tree("goes", &options)?;
            db.drop_tree("goes")?;
            let txn = db.begin(TxnOptions::default())?;
            txn.create_tree("both at once", &options)?;
            txn.drop_tree("both at once")?;
            txn.commit()?;
            let txn = db.begin(TxnOptions::default())?;
            txn.create_tree("never", &options)?;
            txn.rollback()?;
            assert_eq!(count(&db), 1);
        }
        let txn = db.begin(TxnOptions::default())?;
        txn.drop_tree("stays")?;
        txn.prepare(b"xid")?;
        db.close()?;
        let db = open(Arc::new(memory))?;
        db.step_background()?;
        assert_eq!(count(&db), 1);
        db.commit_prepared(b"xid")?;
        assert_eq!(count(&db), 0);
        Ok(())
    }

    #[test]
    fn the_codecs_of_many_trees_are_made_known_at_once() -> Result<()> {
        let (memory, own) = (MemoryStorage::new(), Some(Codec::Zstd { level: 7 }));
        let options = TreeOptions { codec: own, ..TreeOptions::default() };
        let db = open(Arc::new(memory.clone()))?;
        for number in 0..20 {
            db.create_tree(&format!("{number}"), &options)?;
        }
        db.close()?;
        let db = open(Arc::new(memory))?;
        db.step_background()?;
        let codecs = &db.engine().tree.env().codecs;
        assert_eq!((codecs.own_count(), codecs.copies()), (20, 1));
        assert_eq!(Some(codecs.get(db.open_tree("7")?.id())), own);
        Ok(())
    }

    /// There is no memory for a read, each one in turn: it has not been committed, or all that it has changed is known.
    #[test]
    fn a_recovered_change_of_trees_is_committed_and_known_or_stays_prepared() -> Result<()> {
        let (memory, mut random, changed) = (MemoryStorage::new(), Random(1), Codec::Zstd { level: 7 });
        let db = open(Arc::new(memory.clone()))?;
        for number in 0..40 {
            let options = TreeOptions { metadata: random.bytes(4 << 10), ..TreeOptions::default() };
            db.create_tree(&format!("t{number}"), &options)?;
        }
        let txn = db.begin(TxnOptions::default())?;
        txn.drop_tree("t7")?;
        txn.rename_tree("t8", "renamed")?;
        txn.set_tree_options(&db.open_tree("t9")?, &TreeOptions { codec: Some(changed), ..TreeOptions::default() })?;
        let made = txn.create_tree("made", &TreeOptions { codec: Some(changed), ..TreeOptions::default() })?.id();
        txn.prepare(b"xid")?;
        db.checkpoint()?;
        db.close()?;
        for nth in 1.. {
            let plan = FaultPlan::new();
            let db = open(Arc::new(FaultStorage::new(Arc::new(memory.snapshot()), plan.clone())))?;
            let [dropped, renamed, other] = [db.open_tree("t7")?, db.open_tree("t8")?, db.open_tree("t9")?];
            plan.add(FaultRule::from(CallClass::Read, nth, Fault::NoMemory).on("data.frond"));
            let committed = db.commit_prepared(b"xid");
            let has_failed = plan.fired() > 0;
            plan.clear();
            if has_failed {
                assert!(committed.is_err_and(|error| error.is_passing()), "nth={nth}");
                assert_eq!(db.prepared()?.len(), 1, "nth={nth}");
                assert_eq!(db.get(&dropped, b"key")?, None, "nth={nth}");
                db.commit_prepared(b"xid")?;
            } else {
                committed?;
            }
            let kind = |tree| db.get(tree, b"key").err().map(|error| error.kind());
            assert_eq!([&dropped, &renamed, &other].map(kind), [Some(ErrorKind::NotFound), None, None], "nth={nth}");
            assert!(["t7", "t8"].iter().all(|name| db.open_tree(name).is_err()), "nth={nth}");
            assert_eq!((db.open_tree("renamed")?.id(), db.prepared()?.len()), (renamed.id(), 0), "nth={nth}");
            let codecs = &db.engine().tree.env().codecs;
            assert_eq!([other.id(), made].map(|tree| codecs.get(tree)), [changed; 2], "nth={nth}");
            if !has_failed {
                assert!(nth > 5, "a catalog of several blocks is read, nth={nth}");
                break;
            }
        }
        Ok(())
    }
}
