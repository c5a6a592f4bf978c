//! Whether iiBench's table holds what one client's inserts were acknowledged for, after a crash above all.
//!
//! The client's transactions are one statement of a fixed number of rows each, with consecutive row numbers. Then
//!
//! - V1 no acknowledged row is lost: the table has at least the acknowledged rows beside those that were there before;
//! - V2 no transaction is torn: what is beyond them is nothing, or the one whole transaction that was under way;
//! - V3 the new rows are those that were sent: sums over every column equal those of the generated rows;
//! - V4 the secondary keys lead to them: a sample of the acknowledged rows, the last ones among them, is found by each;
//! - V5 where all is asked for, each index has as many entries as the table has rows: no old row is gone, nothing of a torn
//!   transaction is left. That reads the whole table and its indexes.

use crate::purchase::{Purchase, SECONDARY_KEYS};
use crate::random::Random;
use crate::wire::{Connection, Failure};

/// What the table must hold.
#[derive(Clone, Debug)]
pub struct Expected<'a> {
    pub table: &'a str,
    pub seed: u64,
    /// Rows that were in the table before, by number from 0; only counted.
    pub first: u64,
    /// The table's greatest primary key before the first row; 0 if it was empty.
    pub key_before: i64,
    pub acknowledged: u64,
    pub rows_per_transaction: u64,
    /// Rows looked up by each secondary key.
    pub sample: u64,
    /// Whether all entries of every index are counted, those of the rows before too.
    pub counts_all: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Rows in the table beyond those that were there before.
    pub rows: u64,
    /// What is wrong, one sentence each; empty is good.
    pub faults: Vec<String>,
}

/// The new rows: their number, and a sum over each column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    rows: u64,
    columns: [u64; 6],
}

/// Asks the table.
pub fn verify(connection: &mut Connection, expected: &Expected) -> Result<Verdict, Failure> {
    let sums = sums(connection, expected)?;
    let mut entries = Vec::new();
    for index in ["PRIMARY"].into_iter().chain(SECONDARY_KEYS).filter(|_| expected.counts_all) {
        let count = format!("SELECT COUNT(*) FROM {} FORCE INDEX ({index})", expected.table);
        entries.push((index, connection.number(&count)? as u64));
    }
    let mut verdict = Verdict { rows: sums.rows, faults: judge(expected, &sums, &entries) };
    let acknowledged = expected.acknowledged;
    let mut random = Random::new(expected.seed);
    for at in 0..expected.sample.min(acknowledged) {
        let back = if at < expected.sample / 2 { at } else { random.below(acknowledged) };
        let row = Purchase::generate(expected.seed, expected.first + acknowledged - 1 - back);
        for key in SECONDARY_KEYS {
            if connection.number(&lookup(expected.table, key, &row))? < 1 {
                verdict.faults.push(format!("an acknowledged row is not found by key={key} row={row:?}"));
            }
        }
    }
    Ok(verdict)
}

fn sums(connection: &mut Connection, expected: &Expected) -> Result<Sums, Failure> {
    let columns = [
        "cashregisterid",
        "customerid",
        "productid",
        "ROUND(price * 100)",
        "CRC32(data)",
        "CRC32(CAST(dateandtime AS CHAR))",
    ];
    let sums = columns.map(|column| format!("COALESCE(SUM({column}), 0)")).join(", ");
    let found = connection.rows(&format!(
        "SELECT COUNT(*), {sums} FROM {} FORCE INDEX (PRIMARY) WHERE transactionid > {}",
        expected.table, expected.key_before
    ))?;
    let mut numbers = found.iter().flatten().map(|value| whole_number(&crate::wire::text(value)).unwrap_or(u64::MAX));
    let mut next = || numbers.next().unwrap_or(u64::MAX);
    Ok(Sums { rows: next(), columns: std::array::from_fn(|_| next()) })
}

/// What is wrong with the new rows, and with the entries of each index.
fn judge(expected: &Expected, found: &Sums, entries: &[(&str, u64)]) -> Vec<String> {
    let (rows, acknowledged) = (found.rows, expected.acknowledged);
    let mut faults = Vec::new();
    if rows < acknowledged {
        faults.push(format!("acknowledged rows are lost: acknowledged={acknowledged} found={rows}"));
    } else if rows != acknowledged && rows != acknowledged + expected.rows_per_transaction {
        faults.push(format!("a transaction is torn: acknowledged={acknowledged} found={rows}"));
    } else if *found != expected_sums(expected, rows) {
        faults.push(format!("rows are not those that were sent: rows={rows}"));
    }
    let all = expected.first + rows;
    for (index, entries) in entries.iter().filter(|(_, entries)| *entries != all) {
        faults.push(format!("an index has not an entry for each row: index={index} entries={entries} rows={all}"));
    }
    faults
}

/// A sum as SQL writes it: sums of whole numbers exactly, which a float is not beyond 2^53, and sums of floats as they come.
fn whole_number(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| text.parse::<f64>().ok().map(|number| number as u64))
}

fn expected_sums(expected: &Expected, rows: u64) -> Sums {
    let mut sums = Sums { rows, ..Sums::default() };
    for number in expected.first..expected.first + rows {
        let row = Purchase::generate(expected.seed, number);
        let (data, date) = (crc32(&row.data), crc32(row.date().as_bytes()));
        let parts = [row.cash_register_id, row.customer_id, row.product_id, row.price_cents, data, date];
        for (sum, part) in sums.columns.iter_mut().zip(parts) {
            *sum += u64::from(part);
        }
    }
    sums
}

fn lookup(table: &str, key: &str, row: &Purchase) -> String {
    let price = f64::from(row.price_cents) / 100.0;
    let mut condition = format!(
        "price BETWEEN {:.3} AND {:.3} AND customerid = {} AND data = '{}'",
        price - 0.002,
        price + 0.002,
        row.customer_id,
        String::from_utf8_lossy(&row.data)
    );
    match key {
        "register_price_customer" => condition.push_str(&format!(" AND cashregisterid = {}", row.cash_register_id)),
        "price_date_customer" => condition.push_str(&format!(" AND dateandtime = '{}'", row.date())),
        _ => {}
    }
    format!("SELECT COUNT(*) FROM {table} FORCE INDEX ({key}) WHERE {condition}")
}

/// The CRC-32 of SQL's function of that name.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_exactly() {
        assert_eq!(whole_number("11639656670639157"), Some(11_639_656_670_639_157), "odd, and above 2^53");
        assert_eq!(whole_number("135529977882"), Some(135_529_977_882));
        assert_eq!(whole_number("1.35529977882e11"), Some(135_529_977_882));
        assert_eq!(whole_number("42.0"), Some(42));
        assert_eq!(whole_number("none"), None);
    }

    const ROWS: u64 = 40;

    fn expected() -> Expected<'static> {
        Expected {
            table: "t",
            seed: 7,
            first: 1_000,
            key_before: 1_000,
            acknowledged: 30,
            rows_per_transaction: 10,
            sample: 0,
            counts_all: true,
        }
    }

    /// The faults of a table that is right but for a change of its new rows, or of an index's entries.
    fn faults(change: impl Fn(&mut Sums, &mut [(&str, u64)])) -> Vec<String> {
        let mut found = expected_sums(&expected(), ROWS);
        let mut entries = ["PRIMARY", "a", "b"].map(|index| (index, 1_000 + ROWS));
        change(&mut found, &mut entries);
        judge(&expected(), &found, &entries)
    }

    fn is_told(faults: &[String], what: &str) -> bool {
        faults.len() == 1 && faults[0].contains(what)
    }

    #[test]
    fn a_whole_table_has_no_fault() {
        assert_eq!(faults(|_, _| {}), Vec::<String>::new());
        let acknowledged = |sums: &mut Sums, entries: &mut [(&str, u64)]| {
            *sums = expected_sums(&expected(), 30);
            entries.iter_mut().for_each(|entry| entry.1 = 1_030);
        };
        assert_eq!(faults(acknowledged), Vec::<String>::new());
    }

    #[test]
    fn an_old_row_that_is_gone_is_missed_by_every_index() {
        let faults = faults(|_, entries| entries.iter_mut().for_each(|entry| entry.1 -= 1));
        assert!(faults.len() == 3 && faults[0].contains("index=PRIMARY entries=1039 rows=1040"), "{faults:?}");
    }

    #[test]
    fn what_is_left_in_one_secondary_index_is_seen() {
        assert!(is_told(&faults(|_, entries| entries[2].1 += 1), "index=b entries=1041"));
    }

    #[test]
    fn a_change_of_any_column_is_seen() {
        for column in 0..6 {
            assert!(is_told(&faults(|sums, _| sums.columns[column] += 1), "not those that were sent"), "{column}");
        }
    }

    #[test]
    fn lost_rows_and_torn_transactions_are_told_apart() {
        let with = |rows| {
            faults(|sums, entries| {
                sums.rows = rows;
                entries.iter_mut().for_each(|entry| entry.1 = 1_000 + rows);
            })
        };
        assert!(is_told(&with(29), "lost"));
        assert!(is_told(&with(35), "torn"));
    }

    #[test]
    fn the_checksum_is_that_of_sql() {
        assert_eq!(crc32(b"MariaDB"), 4_227_209_140);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
