//! Whether iiBench's table holds what one client's inserts were acknowledged for, after a crash above all.
//!
//! The client's transactions are one statement of a fixed number of rows each, with consecutive row numbers. Then
//!
//! - V1 no acknowledged row is lost: the table has at least the acknowledged rows;
//! - V2 no transaction is torn: what is beyond them is nothing, or the one whole transaction that was under way;
//! - V3 the rows are those that were sent: sums over every column equal those of the generated rows;
//! - V4 the secondary keys lead to them: a sample of the acknowledged rows, the last ones among them, is found by each.

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
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Rows in the table beyond those that were there before.
    pub rows: u64,
    /// What is wrong, one sentence each; empty is good.
    pub faults: Vec<String>,
}

/// Asks the table.
pub fn verify(connection: &mut Connection, expected: &Expected) -> Result<Verdict, Failure> {
    let table = expected.table;
    let since = format!("transactionid > {}", expected.key_before);
    let sums = connection.rows(&format!(
        "SELECT COUNT(*), COALESCE(SUM(cashregisterid), 0), COALESCE(SUM(customerid), 0), COALESCE(SUM(productid), 0), \
         COALESCE(SUM(ROUND(price * 100)), 0), COALESCE(SUM(CRC32(data)), 0) FROM {table} FORCE INDEX (PRIMARY) WHERE {since}"
    ))?;
    let found: Vec<u64> = sums
        .first()
        .into_iter()
        .flatten()
        .map(|value| whole_number(&crate::wire::text(value)).unwrap_or(u64::MAX))
        .collect();
    let rows = found.first().copied().unwrap_or(0);
    let mut verdict = Verdict { rows, faults: Vec::new() };
    let acknowledged = expected.acknowledged;
    if rows < acknowledged {
        verdict.faults.push(format!("acknowledged rows are lost: acknowledged={acknowledged} found={rows}"));
    } else if rows != acknowledged && rows != acknowledged + expected.rows_per_transaction {
        verdict.faults.push(format!("a transaction is torn: acknowledged={acknowledged} found={rows}"));
    }
    if verdict.faults.is_empty() && found[1..] != expected_sums(expected, rows) {
        verdict.faults.push(format!("rows are not those that were sent: rows={rows}"));
    }
    let mut random = Random::new(expected.seed);
    for at in 0..expected.sample.min(acknowledged) {
        let back = if at < expected.sample / 2 { at } else { random.below(acknowledged) };
        let row = Purchase::generate(expected.seed, expected.first + acknowledged - 1 - back);
        for key in SECONDARY_KEYS {
            if connection.number(&lookup(table, key, &row))? < 1 {
                verdict.faults.push(format!("an acknowledged row is not found by key={key} row={row:?}"));
            }
        }
    }
    Ok(verdict)
}

/// A sum as SQL writes it: sums of whole numbers exactly, which a float is not beyond 2^53, and sums of floats as they come.
fn whole_number(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| text.parse::<f64>().ok().map(|number| number as u64))
}

fn expected_sums(expected: &Expected, rows: u64) -> [u64; 5] {
    let mut sums = [0; 5];
    for number in expected.first..expected.first + rows {
        let row = Purchase::generate(expected.seed, number);
        let parts = [row.cash_register_id, row.customer_id, row.product_id, row.price_cents, crc32(&row.data)];
        for (sum, part) in sums.iter_mut().zip(parts) {
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
    if key == "register_price_customer" {
        condition.push_str(&format!(" AND cashregisterid = {}", row.cash_register_id));
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

    #[test]
    fn the_checksum_is_that_of_sql() {
        assert_eq!(crc32(b"MariaDB"), 4_227_209_140);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
