//! Every row through every index.
//!
//! Rows are a function of seed and number, so nothing has to be remembered: the primary index must hold exactly the
//! rows 1 to N with N whole transactions and all that were acknowledged; each secondary index must hold exactly one entry per row,
//! under the key that the row's values make. Keys of an index ascend strictly and name their row, so counting the
//! right ones proves both directions.

use frond_bench::generate::{INDEXES, Purchase};
use fronddb::{Cursor, CursorOptions, Database, TxnOptions};

use super::TRANSACTION_ROWS;
use super::table::{Table, key};
use crate::encoding::shown;
use crate::failure::{During, Outcome};
use crate::progress::Progress;

/// Problems told in words; more are only counted.
const TOLD_MAX: usize = 10;

/// What was found.
pub(crate) struct Verdict {
    /// Rows in the primary index.
    pub rows: u64,
    /// What is wrong; empty if nothing is.
    pub problems: Vec<String>,
}

/// Reads the whole table through its four indexes.
pub(crate) fn verify(db: &Database, seed: u64, acknowledged: u64) -> Outcome<Verdict> {
    let table = Table::open(db)?;
    let txn = db
        .begin(TxnOptions { read_only: true, consistent_snapshot: true, ..TxnOptions::default() })
        .during("verify")?;
    let mut verdict = Verdict { rows: 0, problems: Vec::new() };
    let mut rows = 0;
    let progress = Progress::rows("verify", acknowledged * INDEXES.len() as u64);
    for (index, tree) in table.trees.iter().enumerate() {
        let options = CursorOptions { fill_cache: false, ..CursorOptions::default() };
        let mut cursor = txn.cursor(tree, options).during(format_args!("verify {}", INDEXES[index]))?;
        let found = scan(&mut cursor, index, seed, rows, &progress, &mut verdict)?;
        if index == 0 {
            rows = found;
        } else if found != rows {
            verdict.problem(format!("{}: entries={found} rows={rows}", INDEXES[index]));
        }
    }
    verdict.rows = rows;
    if rows < acknowledged {
        verdict.problem(format!("acknowledged rows are lost: found={rows} acknowledged={acknowledged}"));
    }
    if rows % TRANSACTION_ROWS != 0 {
        verdict.problem(format!("a transaction is half there: rows={rows}"));
    }
    if rows > acknowledged + TRANSACTION_ROWS {
        verdict.problem(format!("more than one transaction was in flight: found={rows} acknowledged={acknowledged}"));
    }
    Ok(verdict)
}

/// Compares each entry with what it should be; the number of entries that are right.
fn scan(
    cursor: &mut Cursor,
    index: usize,
    seed: u64,
    rows: u64,
    progress: &Progress,
    verdict: &mut Verdict,
) -> Outcome<u64> {
    const SHOW_EVERY: u64 = 1 << 14;
    let name = INDEXES[index];
    let mut found = 0;
    while cursor.next().during(format_args!("verify {name}"))? {
        // Every key ends in the row's number.
        let id = cursor.key().last_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let row = Purchase::generate(seed, id);
        let value = row.value();
        let expected = if index == 0 { value.as_slice() } else { &[] };
        let in_place = if index == 0 { id == found + 1 } else { (1..=rows).contains(&id) };
        if cursor.key() == key(index, &row) && cursor.value() == expected && in_place {
            found += 1;
        } else {
            verdict.problem(format!("{name}: wrong entry key={} row={id}", shown(cursor.key())));
            if index == 0 {
                // The gap was told; go on behind it.
                found = id;
            }
        }
        if found.is_multiple_of(SHOW_EVERY) {
            progress.set(index as u64 * rows + found);
        }
    }
    Ok(found)
}

impl Verdict {
    fn problem(&mut self, problem: String) {
        if self.problems.len() < TOLD_MAX {
            self.problems.push(problem);
        }
    }
}
