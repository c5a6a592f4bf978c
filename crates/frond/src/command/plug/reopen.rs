//! Opening after the end of a process, and the time until the first query answers.

use std::time::{Duration, Instant};

use fronddb::{Database, RecoveryReport};

use super::Run;
use super::table::{Table, key};
use crate::failure::{During, Failure, Outcome};

/// An open database, and how long it took to answer.
pub(crate) struct Reopened {
    /// Open.
    pub db: Database,
    /// From the call that opens to the answer of the first query.
    pub first_query: Duration,
    /// What opening did.
    pub recovery: RecoveryReport,
}

/// Opens, and asks for row `id` (0: none was ever acknowledged) by a secondary index and the primary key.
pub(crate) fn reopen(run: &Run, id: u64, what: &str) -> Outcome<Reopened> {
    let row = run.row(id.max(1));
    let start = Instant::now();
    let db = Database::open(&run.database, run.options()).during(what)?;
    let mut answered = true;
    if id > 0 {
        let table = Table::open(&db)?;
        let entry = db.get(&table.trees[1], &key(1, &row)).during(what)?;
        let value = db.get(&table.trees[0], &key(0, &row)).during(what)?;
        answered = entry.is_some() && value.is_some_and(|value| value[..] == row.value());
    }
    let first_query = start.elapsed();
    if !answered {
        return Err(Failure::negative(format!("{what}: the last acknowledged row is not there, row={id}")));
    }
    let recovery = db.recovery_report().during(what)?;
    Ok(Reopened { db, first_query, recovery })
}
