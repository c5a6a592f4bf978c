//! Creating, dropping, renaming and truncating trees inside transactions.
//!
//! Each is a few messages to the catalog (tree 0) and, for the rows themselves, one range-delete. The name's row is
//! locked exclusively until the transaction ends, and dropping or truncating locks the whole tree, so writers that
//! take locks are waited for. (Writers whose locks are *covered* are the business of who covers them.)
//!
//! Tree ids are drawn from a counter that only grows: one that was drawn in vain is not used again while the
//! process lives, and after a crash only if nothing of it reached the log.

use std::sync::atomic::Ordering;

use super::batch::WriteBatch;
use super::catalog::{self, CATALOG, Catalog, CatalogChanges, Change, Row};
use super::core::{TxnCore, TxnState};
use super::engine::Engine;
use super::options::{TreeOptions, Wait};
use super::tree_handle::{Tree, TreeInfo, no_tree};
use super::write::tree_bounds;
use crate::base::key::{inner, prefix_end};
use crate::base::{Error, ErrorKind, Result, TreeId};
use crate::format::{Uncommitted, View};
use crate::lock::Mode;
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
            batch.delete(catalog, &catalog::name_key(old))?;
            batch.put(catalog, &catalog::name_key(new), &row.encode())?;
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

    fn name_of(&self, state: &TxnState, tree: &Tree) -> Result<String> {
        self.name_in(&self.latest_view(state), tree)
    }

    fn name_in(&self, view: &View<'_>, tree: &Tree) -> Result<String> {
        let key = inner(CATALOG, &catalog::id_key(tree.id()));
        let value = self.engine.read(view, &key, false)?.ok_or_else(|| no_tree(tree.name()))?;
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
        let value = self.engine.read(view, &key, false)?;
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

    /// The committed trees, by name, but for those whose rows cannot be read; and what is in the way.
    pub(crate) fn trees(&self) -> Result<(Vec<TreeInfo>, Vec<Error>)> {
        let mut trees = Vec::new();
        let damage = self.for_each_row(|name, row| {
            trees.push(TreeInfo { id: row.id, name, codec: row.codec, metadata_bytes: row.metadata.len() });
        })?;
        Ok((trees, damage))
    }

    /// The name of a committed tree by its row by id, if that can be read.
    pub(crate) fn tree_name(&self, id: TreeId) -> Option<String> {
        let key = inner(CATALOG, &catalog::id_key(id));
        let name = self.tree.get(&self.tree.version_guard(), &self.latest(), &key).ok()??;
        String::from_utf8(name.into_vec()).ok()
    }

    /// Visits the committed rows by name, past the damage that it gives.
    fn for_each_row(&self, mut visit: impl FnMut(String, Row)) -> Result<Vec<Error>> {
        self.for_each_under(&catalog::name_prefix(), &mut |key, value| {
            visit(catalog::name_of_key(key)?, Row::decode(value)?);
            Ok(())
        })
    }

    /// Visits the committed rows by id, with the name that each has, past the damage that it gives.
    pub(crate) fn for_each_id(&self, visit: &mut dyn FnMut(TreeId, &[u8])) -> Result<Vec<Error>> {
        self.for_each_under(&catalog::id_prefix(), &mut |key, value| {
            let id = catalog::id_of_key(key).ok_or_else(|| Error::corruption("catalog key is malformed, tree=0"))?;
            visit(id, value);
            Ok(())
        })
    }

    /// Visits the committed rows of the catalog whose keys begin with `prefix`. Where something cannot be read, the visit goes on
    /// behind it; each such damage is given in the end.
    fn for_each_under(&self, prefix: &[u8], visit: VisitRow<'_>) -> Result<Vec<Error>> {
        self.check_open()?;
        let snapshot = self.snapshots.acquire();
        let view = self.owned_view(snapshot.number(), None, Uncommitted::Hidden);
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
            at.clear();
            at.extend_from_slice(cursor.key());
            at.push(0);
            more = cursor.next()?;
        }
        Ok(())
    }

    /// Tells the writers of runs which trees have a codec of their own; those whose rows cannot be read get the default. Background work
    /// begins with this.
    pub(crate) fn load_codecs(&self) -> Result<()> {
        let damage = self.for_each_row(|_, row| self.set_codec(row.id, row.codec))?;
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
                self.set_codec(tree, codec);
            }
        }
    }

    /// The same when the changes are not known one by one: forgets, and looks which trees are gone.
    pub(crate) fn reload_catalog(&self) -> Result<()> {
        let mut gone = Vec::new();
        for tree in self.catalog.forget().into_iter().filter(|tree| *tree != CATALOG) {
            match self.read_latest(CATALOG, &catalog::id_key(tree)) {
                Ok(Some(_)) => {}
                Ok(None) => gone.push(tree),
                Err(error) if error.is_unreadable() => self.events.damage(&error),
                Err(error) => return Err(error),
            }
        }
        self.catalog.undo(&gone);
        self.load_codecs()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use crate::base::{ErrorKind, Result};
    use crate::db::database::Database;
    use crate::db::options::{Options, TreeOptions};
    use crate::io::MemoryStorage;

    #[test]
    fn no_number_of_a_tree_is_given_twice() -> Result<()> {
        let storage = Arc::new(MemoryStorage::new());
        let db = Database::open("/db", Options::new().create_if_missing(true).storage(Some(storage)))?;
        db.engine().next_tree.store(u32::MAX - 1, Ordering::Relaxed);
        assert_eq!(db.create_tree("last", &TreeOptions::default())?.id().0, u32::MAX - 1);
        for name in ["one too many", "another"] {
            let refused = db.create_tree(name, &TreeOptions::default());
            assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::InvalidArgument));
        }
        Ok(())
    }
}
