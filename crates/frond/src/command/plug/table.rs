//! The iiBench table as four trees of a database.

use frond_bench::generate::{INDEXES, Purchase};
use fronddb::{Database, ErrorKind, Tree, TreeOptions, WriteBatch};

use crate::failure::{During, Outcome};

/// The primary index and the three secondary ones.
pub(crate) struct Table {
    /// In the order of [`INDEXES`].
    pub trees: [Tree; 4],
}

impl Table {
    /// Opens it.
    pub(crate) fn open(db: &Database) -> Outcome<Table> {
        Table::with(|name| db.open_tree(name))
    }

    /// Opens it, made if need be.
    pub(crate) fn open_or_create(db: &Database) -> Outcome<Table> {
        Table::with(|name| match db.open_tree(name) {
            Err(error) if error.kind() == ErrorKind::NotFound => db.create_tree(name, &TreeOptions::default()),
            other => other,
        })
    }

    fn with(open: impl Fn(&str) -> fronddb::Result<Tree>) -> Outcome<Table> {
        let open = |index: usize| open(INDEXES[index]).during(format_args!("open tree {:?}", INDEXES[index]));
        Ok(Table { trees: [open(0)?, open(1)?, open(2)?, open(3)?] })
    }

    /// Adds a row with its index entries to a batch. The lock on the primary key, which must be new, covers the entries.
    pub(crate) fn insert(&self, row: &Purchase, batch: &mut WriteBatch) -> fronddb::Result<()> {
        let [primary, price, register, date] = &self.trees;
        batch.set_covered(false);
        batch.insert(primary, &row.primary_key(), &row.value())?;
        batch.set_covered(true);
        batch.put(price, &row.price_customer_key(), &[])?;
        batch.put(register, &row.register_price_customer_key(), &[])?;
        batch.put(date, &row.price_date_customer_key(), &[])
    }
}

/// The key that a row has in an index, by the index's place in [`INDEXES`].
pub(crate) fn key(index: usize, row: &Purchase) -> Vec<u8> {
    match index {
        0 => row.primary_key().to_vec(),
        1 => row.price_customer_key().to_vec(),
        2 => row.register_price_customer_key().to_vec(),
        _ => row.price_date_customer_key().to_vec(),
    }
}
