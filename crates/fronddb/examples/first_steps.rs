//! The first steps of the README, in a directory of their own: `cargo run -p fronddb --example first_steps`.

use fronddb::{CursorOptions, Database, Options, TreeOptions, TxnOptions};

fn main() -> fronddb::Result<()> {
    let directory = std::env::temp_dir().join(format!("frond-first-steps-{}", std::process::id()));
    let db = Database::open(&directory, Options::new().create_if_missing(true).error_if_exists(true))?;
    let fruit = db.create_tree("fruit", &TreeOptions::default())?;

    // A transaction: durable once `commit` returns, undone if it is dropped before.
    let txn = db.begin(TxnOptions::default())?;
    txn.put(&fruit, b"apple", b"red")?;
    txn.put(&fruit, b"avocado", b"green")?;
    txn.put(&fruit, b"banana", b"yellow")?;
    txn.commit()?;

    let txn = db.begin(TxnOptions::default())?;
    txn.put(&fruit, b"apple", b"eaten")?;
    txn.rollback()?;

    // Reads see a snapshot and take no locks.
    let txn = db.begin(TxnOptions::default())?;
    let mut cursor = txn.cursor(&fruit, CursorOptions::prefix("a"))?;
    while cursor.next()? {
        println!("{} {}", cursor.key().escape_ascii(), cursor.value().escape_ascii());
    }
    drop((cursor, txn));
    db.close()?;
    // An example leaves nothing behind.
    let _ = std::fs::remove_dir_all(directory);
    Ok(())
}
