//! Trees: their handle, and what is done to them as a whole.

use std::ffi::{CString, c_char};

use engine::Tree;

use crate::border::{Bytes, Out, Status, Text, c_string, enter, guard, need};
use crate::database::frond_db;
use crate::transaction::frond_txn;
use crate::types::{codec_numbers, frond_tree_options};

/// The handle.
pub struct frond_tree {
    pub(crate) inner: Tree,
    name: CString,
}

impl frond_tree {
    fn handle(inner: Tree) -> Option<Box<frond_tree>> {
        let name = c_string(inner.name().to_owned());
        Some(Box::new(frond_tree { inner, name }))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_tree_create(
    txn: Option<&mut frond_txn>,
    name: Text<'_>,
    options: Option<&frond_tree_options<'_>>,
    tree: Out<'_, Option<Box<frond_tree>>>,
) -> Status {
    enter("frond_tree_create", || {
        let (txn, tree) = (need(txn, "txn")?, need(tree, "tree")?);
        let options = frond_tree_options::to_engine(options)?;
        tree.write(frond_tree::handle(txn.inner.create_tree(name.get("name")?, &options)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_tree_open(
    txn: Option<&mut frond_txn>,
    name: Text<'_>,
    tree: Out<'_, Option<Box<frond_tree>>>,
) -> Status {
    enter("frond_tree_open", || {
        let (txn, tree) = (need(txn, "txn")?, need(tree, "tree")?);
        tree.write(frond_tree::handle(txn.inner.open_tree(name.get("name")?)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_tree_close(tree: Option<Box<frond_tree>>) {
    guard("frond_tree_close", || drop(tree));
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_tree_drop(txn: Option<&mut frond_txn>, name: Text<'_>) -> Status {
    enter("frond_tree_drop", || need(txn, "txn")?.inner.drop_tree(name.get("name")?))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_tree_rename(txn: Option<&mut frond_txn>, old_name: Text<'_>, new_name: Text<'_>) -> Status {
    enter("frond_tree_rename", || {
        need(txn, "txn")?.inner.rename_tree(old_name.get("old_name")?, new_name.get("new_name")?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_tree_truncate(txn: Option<&mut frond_txn>, tree: Option<&frond_tree>) -> Status {
    enter("frond_tree_truncate", || need(txn, "txn")?.inner.truncate_tree(&need(tree, "tree")?.inner))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_tree_set_options(
    txn: Option<&mut frond_txn>,
    tree: Option<&frond_tree>,
    options: Option<&frond_tree_options<'_>>,
) -> Status {
    enter("frond_tree_set_options", || {
        let (txn, tree) = (need(txn, "txn")?, need(tree, "tree")?);
        let options = frond_tree_options::to_engine(Some(need(options, "options")?))?;
        txn.inner.set_tree_options(&tree.inner, &options)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_tree_get_options<'t>(
    txn: Option<&'t mut frond_txn>,
    tree: Option<&frond_tree>,
    options: Out<'_, frond_tree_options<'t>>,
) -> Status {
    enter("frond_tree_get_options", || {
        let (txn, tree, out) = (need(txn, "txn")?, need(tree, "tree")?, need(options, "options")?);
        let options = txn.inner.tree_options(&tree.inner)?;
        let (codec, codec_level) = codec_numbers(options.codec);
        txn.metadata = options.metadata;
        out.write(frond_tree_options { codec, codec_level, metadata: Bytes::of(&txn.metadata) });
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_tree_id(tree: Option<&frond_tree>) -> u32 {
    guard("frond_tree_id", || tree.map_or(0, |tree| tree.inner.id().0))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_tree_name(tree: Option<&frond_tree>) -> *const c_char {
    guard("frond_tree_name", || tree.map_or(c"".as_ptr(), |tree| tree.name.as_ptr()))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_create_tree(
    db: Option<&frond_db>,
    name: Text<'_>,
    options: Option<&frond_tree_options<'_>>,
    tree: Out<'_, Option<Box<frond_tree>>>,
) -> Status {
    enter("frond_db_create_tree", || {
        let (db, tree) = (need(db, "db")?, need(tree, "tree")?);
        let options = frond_tree_options::to_engine(options)?;
        tree.write(frond_tree::handle(db.inner.create_tree(name.get("name")?, &options)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_open_tree(
    db: Option<&frond_db>,
    name: Text<'_>,
    tree: Out<'_, Option<Box<frond_tree>>>,
) -> Status {
    enter("frond_db_open_tree", || {
        let (db, tree) = (need(db, "db")?, need(tree, "tree")?);
        tree.write(frond_tree::handle(db.inner.open_tree(name.get("name")?)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_drop_tree(db: Option<&frond_db>, name: Text<'_>) -> Status {
    enter("frond_db_drop_tree", || need(db, "db")?.inner.drop_tree(name.get("name")?))
}
