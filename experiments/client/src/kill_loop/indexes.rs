//! K5: CHECK TABLE, and every index of a table against its primary key.
//!
//! Through each index: the count of rows and a checksum of what the index holds of them (index-only), and for tables that are
//! not too large all rows, looked up from the index.

use frond_load::wire::{Connection, Failure, Row, text};

/// Tables with more rows are compared by sums only.
const ROWS_COMPARED_MAX: i64 = 3000;

pub(crate) fn verify(connection: &mut Connection, table: &str) -> Result<(), String> {
    let failed = |error: Failure| error.to_string();
    for row in connection.rows(&format!("CHECK TABLE {table} EXTENDED")).map_err(failed)? {
        let (kind, words) = (row.get(2).map(text).unwrap_or_default(), row.get(3).map(text).unwrap_or_default());
        if kind != "status" || words != "OK" {
            return Err(format!("CHECK TABLE says {kind}: {words}"));
        }
    }
    let mut indexes: Vec<(String, Vec<String>)> = Vec::new();
    for row in connection.rows(&format!("SHOW INDEX FROM {table}")).map_err(failed)? {
        let (index, column) = (row.get(2).map(text).unwrap_or_default(), row.get(4).map(text).unwrap_or_default());
        let is_prefix = row.get(7).is_some_and(Option::is_some);
        match indexes.last_mut() {
            Some((last, columns)) if *last == index => columns.extend((!is_prefix).then_some(column)),
            _ => indexes.push((index, if is_prefix { Vec::new() } else { vec![column] })),
        }
    }
    let key =
        indexes.iter().find(|(name, _)| name == "PRIMARY").map(|(_, columns)| columns.clone()).unwrap_or_default();
    let rows = connection.number(&format!("SELECT COUNT(*) FROM {table} FORCE INDEX (PRIMARY)")).map_err(failed)?;
    let all = sorted(connection, table, "PRIMARY", rows)?;
    for (index, columns) in indexes.iter().filter(|(name, _)| name != "PRIMARY") {
        let held: Vec<&str> = columns.iter().chain(&key).map(String::as_str).collect();
        let sums = |connection: &mut Connection, through: &str| {
            let sum = format!(
                "SELECT COUNT(*), COALESCE(SUM(CRC32(CONCAT_WS('|', {}))), 0) FROM {table} FORCE INDEX ({through})",
                held.join(", ")
            );
            connection.rows(&sum).map_err(failed)
        };
        let (through_primary, through_index) = (sums(connection, "PRIMARY")?, sums(connection, index)?);
        if through_primary != through_index {
            let words = |rows: &[Row]| rows.concat().iter().map(text).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "index {index} disagrees: count and sum {} against {}",
                words(&through_index),
                words(&through_primary)
            ));
        }
        if sorted(connection, table, index, rows)? != all {
            return Err(format!("rows looked up from index {index} are not those of the table"));
        }
    }
    Ok(())
}

/// All rows by way of an index, in an order of our own.
fn sorted(connection: &mut Connection, table: &str, index: &str, rows: i64) -> Result<Vec<Row>, String> {
    if rows > ROWS_COMPARED_MAX {
        return Ok(Vec::new());
    }
    let query = format!("SELECT * FROM {table} FORCE INDEX ({index}) FORCE INDEX FOR ORDER BY ({index})");
    let mut rows = connection.rows(&query).map_err(|error| error.to_string())?;
    rows.sort_unstable();
    Ok(rows)
}
