//! Lists of what is inside: trees, transactions, locks. A list owns all that its items point to.

use std::any::Any;
use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;

use engine::{Error, Result, TreeInfo};

use crate::border::{Out, Status, Text, c_string, enter, frond_slice, give_text, guard, need};
use crate::database::frond_db;
use crate::types::{c_structs, codec_numbers, isolation_number, lock_mode_number};

/// The handle.
pub struct frond_list {
    _items: Box<dyn Any>,
    _owner: Owner,
}

/// Memory that items point to. What it holds does not move when it grows or is moved itself.
#[derive(Default)]
pub(crate) struct Owner {
    texts: Vec<CString>,
    bytes: Vec<Box<[u8]>>,
    numbers: Vec<Box<[u64]>>,
}

impl Owner {
    pub(crate) fn new() -> Owner {
        Owner::default()
    }

    pub(crate) fn text(&mut self, text: &str) -> *const c_char {
        let text = c_string(text.to_owned());
        let address = text.as_ptr();
        self.texts.push(text);
        address
    }

    pub(crate) fn slice(&mut self, bytes: &[u8]) -> frond_slice {
        let bytes: Box<[u8]> = bytes.into();
        let slice = frond_slice::lend(&bytes);
        self.bytes.push(bytes);
        slice
    }

    fn numbers(&mut self, numbers: impl Iterator<Item = u64>) -> (*const u64, usize) {
        let numbers: Box<[u64]> = numbers.collect();
        let answer = (numbers.as_ptr(), numbers.len());
        self.numbers.push(numbers);
        answer
    }

    /// Hands out one thing, with what it lends of itself once it is in its place.
    pub(crate) fn give_one<T: 'static, U>(
        thing: T,
        lend: impl FnOnce(&T) -> U,
        list: &mut MaybeUninit<Option<Box<frond_list>>>,
        out: &mut MaybeUninit<U>,
    ) {
        let thing = Box::new(thing);
        out.write(lend(&thing));
        list.write(Some(Box::new(frond_list { _items: thing, _owner: Owner::new() })));
    }

    /// Hands the items out, with everything that they point to.
    pub(crate) fn give<T: 'static>(
        self,
        items: Vec<T>,
        list: Out<'_, Option<Box<frond_list>>>,
        out_items: Out<'_, *const T>,
        out_count: Out<'_, usize>,
    ) -> Result<()> {
        let (list, out_items, out_count) = (need(list, "list")?, need(out_items, "items")?, need(out_count, "count")?);
        out_items.write(items.as_ptr());
        out_count.write(items.len());
        list.write(Some(Box::new(frond_list { _items: Box::new(items), _owner: self })));
        Ok(())
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_list_free(list: Option<Box<frond_list>>) {
    guard("frond_list_free", || drop(list));
}

c_structs! {
    frond_tree_info {
        name: *const c_char,
        id: u32,
        codec: u32,
        codec_level: i32,
        reserved: u32,
        metadata_bytes: u64,
        user_bytes: u64,
        bytes_written: u64,
    }
    frond_txn_info { id: u64, txn: u64, isolation: u32, prepared: u32, age_ms: u64, messages: u64, }
    frond_lock_info {
        txn: u64,
        tree: u32,
        mode: u32,
        start: frond_slice,
        end: frond_slice,
        waits_for: *const u64,
        waits_for_count: usize,
        waited_ms: u64,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_trees(
    db: Option<&frond_db>,
    list: Out<'_, Option<Box<frond_list>>>,
    items: Out<'_, *const frond_tree_info>,
    count: Out<'_, usize>,
) -> Status {
    enter("frond_db_trees", || give_trees(need(db, "db")?.inner.readable_trees()?, list, items, count))
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_trees_under(
    db: Option<&frond_db>,
    prefix: Text<'_>,
    list: Out<'_, Option<Box<frond_list>>>,
    items: Out<'_, *const frond_tree_info>,
    count: Out<'_, usize>,
) -> Status {
    enter("frond_db_trees_under", || {
        give_trees(need(db, "db")?.inner.readable_trees_under(prefix.get("prefix")?)?, list, items, count)
    })
}

/// Hands out the trees, and tells of the first damage that is in the way of others.
fn give_trees(
    (trees, damage): (Vec<TreeInfo>, Vec<Error>),
    list: Out<'_, Option<Box<frond_list>>>,
    items: Out<'_, *const frond_tree_info>,
    count: Out<'_, usize>,
) -> Result<()> {
    let mut owner = Owner::new();
    let mut infos = Vec::new();
    for tree in trees {
        let (codec, codec_level) = codec_numbers(Some(tree.codec));
        infos.push(frond_tree_info {
            name: owner.text(&tree.name),
            id: tree.id.0,
            codec,
            codec_level,
            reserved: 0,
            metadata_bytes: tree.metadata_bytes as u64,
            user_bytes: tree.traffic.user_bytes,
            bytes_written: tree.traffic.bytes_written,
        });
    }
    owner.give(infos, list, items, count)?;
    damage.into_iter().next().map_or(Ok(()), Err)
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_transactions(
    db: Option<&frond_db>,
    list: Out<'_, Option<Box<frond_list>>>,
    items: Out<'_, *const frond_txn_info>,
    count: Out<'_, usize>,
) -> Status {
    enter("frond_db_transactions", || {
        let transactions = need(db, "db")?.inner.transactions()?;
        let infos = transactions.iter().map(|info| frond_txn_info {
            id: info.id,
            txn: info.txn.map_or(0, |txn| txn.0),
            isolation: isolation_number(info.isolation),
            prepared: u32::from(info.prepared),
            age_ms: info.age_ms,
            messages: info.messages,
        });
        Owner::new().give(infos.collect(), list, items, count)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_locks(
    db: Option<&frond_db>,
    list: Out<'_, Option<Box<frond_list>>>,
    items: Out<'_, *const frond_lock_info>,
    count: Out<'_, usize>,
) -> Status {
    enter("frond_db_locks", || {
        let mut owner = Owner::new();
        let mut infos = Vec::new();
        for lock in need(db, "db")?.inner.locks()? {
            let (waits_for, waits_for_count) = owner.numbers(lock.waits_for.iter().map(|txn| txn.0));
            infos.push(frond_lock_info {
                txn: lock.txn.0,
                tree: lock.tree.0,
                mode: lock_mode_number(lock.mode),
                start: owner.slice(&lock.start),
                end: lock.end.map_or(frond_slice::NONE, |end| owner.slice(&end)),
                waits_for,
                waits_for_count,
                waited_ms: lock.waited_micros / 1000,
            });
        }
        owner.give(infos, list, items, count)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn frond_db_tree_shape(db: Option<&frond_db>, text: Out<'_, *mut c_char>) -> Status {
    enter("frond_db_tree_shape", || {
        let (db, text) = (need(db, "db")?, need(text, "text")?);
        give_text(db.inner.tree_shape()?, text);
        Ok(())
    })
}
