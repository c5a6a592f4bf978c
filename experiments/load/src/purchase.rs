//! The rows of iiBench's table `purchases_index`, as a function of a seed and a row number.
//!
//! The primary key is the table's own auto-increment, so that a row is given without it; the three secondary keys are
//! uniformly random, which is what makes the table hard to insert into. Prices are whole cents, uniform below 500.00.

use crate::random::Random;

const CASH_REGISTERS: u64 = 1_000;
const CUSTOMERS: u64 = 100_000;
const PRODUCTS: u64 = 10_000;
const PRICES_CENTS: u64 = 50_000;
/// The clock of the table advances by one second in that many rows.
const ROWS_PER_SECOND: u64 = 20_000;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .";
/// The secondary keys by name.
pub const SECONDARY_KEYS: [&str; 3] = ["price_customer", "register_price_customer", "price_date_customer"];

/// Bytes of a row's columns as MariaDB stores them: BIGINT, DATETIME, three INTs, FLOAT, text with its length.
const ROW_BYTES: u64 = 8 + 5 + 3 * 4 + 4 + 11;
/// The same of its entries in the secondary keys, each with the primary key.
const SECONDARY_BYTES: u64 = (4 + 4 + 8) + (4 + 4 + 4 + 8) + (4 + 5 + 4 + 8);
/// Bytes that a row asks to be stored over its four indexes.
pub const LOGICAL_BYTES: u64 = ROW_BYTES + SECONDARY_BYTES;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purchase {
    /// Seconds since 2026-01-01.
    pub second: u64,
    pub cash_register_id: u32,
    pub customer_id: u32,
    pub product_id: u32,
    pub price_cents: u32,
    pub data: [u8; 10],
}

impl Purchase {
    /// Row `number` of the table that `seed` names.
    pub fn generate(seed: u64, number: u64) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
        let letters = random.bits();
        let mut data = [0; 10];
        for (at, letter) in data.iter_mut().enumerate() {
            *letter = LETTERS[(letters >> (6 * at)) as usize & 63];
        }
        Purchase {
            second: number / ROWS_PER_SECOND,
            cash_register_id: random.below(CASH_REGISTERS) as u32,
            customer_id: random.below(CUSTOMERS) as u32,
            product_id: random.below(PRODUCTS) as u32,
            price_cents: random.below(PRICES_CENTS) as u32,
            data,
        }
    }

    /// The price as SQL.
    pub fn price(&self) -> String {
        format!("{}.{:02}", self.price_cents / 100, self.price_cents % 100)
    }

    /// The date and time as SQL.
    pub fn date(&self) -> String {
        let mut out = Vec::new();
        print_second(self.second, &mut out);
        String::from_utf8(out).expect("digits and signs")
    }

    /// `(…)` of a VALUES list.
    fn print(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"('");
        print_second(self.second, out);
        out.extend_from_slice(b"',");
        for number in [self.cash_register_id, self.customer_id, self.product_id] {
            print_number(number, out);
            out.push(b',');
        }
        print_number(self.price_cents / 100, out);
        let cents = (self.price_cents % 100) as u8;
        out.extend_from_slice(&[b'.', b'0' + cents / 10, b'0' + cents % 10, b',', b'\'']);
        out.extend_from_slice(&self.data);
        out.extend_from_slice(b"')");
    }
}

/// The table, in whatever engine.
pub fn create_table(name: &str, engine: &str) -> String {
    format!(
        "CREATE TABLE {name} (transactionid BIGINT NOT NULL AUTO_INCREMENT, dateandtime DATETIME NOT NULL, \
         cashregisterid INT NOT NULL, customerid INT NOT NULL, productid INT NOT NULL, price FLOAT NOT NULL, \
         data VARCHAR(10) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL, PRIMARY KEY (transactionid), \
         KEY price_customer (price, customerid), KEY register_price_customer (cashregisterid, price, customerid), \
         KEY price_date_customer (price, dateandtime, customerid)) ENGINE={engine}"
    )
}

/// The statement that inserts `rows` rows from number `first`, into `out`.
pub fn print_insert(table: &str, seed: u64, first: u64, rows: u64, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(b"INSERT INTO ");
    out.extend_from_slice(table.as_bytes());
    out.extend_from_slice(b" (dateandtime,cashregisterid,customerid,productid,price,data) VALUES ");
    for number in first..first + rows {
        if number > first {
            out.push(b',');
        }
        Purchase::generate(seed, number).print(out);
    }
}

fn print_number(number: u32, out: &mut Vec<u8>) {
    let mut digits = [0; 10];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Seconds since 2026-01-01 as a date and time; months have 28 days, so that no calendar is needed.
fn print_second(second: u64, out: &mut Vec<u8>) {
    let days = second / 86_400;
    let parts =
        [26 + days / 336, days / 28 % 12 + 1, days % 28 + 1, second / 3_600 % 24, second / 60 % 60, second % 60];
    out.extend_from_slice(b"20");
    for (part, before) in parts.into_iter().zip(["", "-", "-", " ", ":", ":"]) {
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(&[b'0' + (part / 10 % 10) as u8, b'0' + (part % 10) as u8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_function_of_seed_and_number() {
        assert_eq!(Purchase::generate(7, 9), Purchase::generate(7, 9));
        assert_ne!(Purchase::generate(7, 9), Purchase::generate(8, 9));
        assert_ne!(Purchase::generate(7, 9), Purchase::generate(7, 10));
    }

    #[test]
    fn a_statement_gives_every_column_but_the_key() {
        let mut out = Vec::new();
        print_insert("t", 1, 5, 2, &mut out);
        let text = String::from_utf8(out).unwrap();
        let (head, values) = text.split_once(" VALUES ").unwrap();
        assert_eq!(head, "INSERT INTO t (dateandtime,cashregisterid,customerid,productid,price,data)");
        let first = Purchase::generate(1, 5);
        let expected = format!(
            "('2026-01-01 00:00:00',{},{},{},{},'{}')",
            first.cash_register_id,
            first.customer_id,
            first.product_id,
            first.price(),
            String::from_utf8(first.data.to_vec()).unwrap()
        );
        assert_eq!(values.split_once(",('").unwrap().0, expected);
    }

    #[test]
    fn dates_advance_and_stay_valid() {
        let printed = |second| {
            let mut out = Vec::new();
            print_second(second, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(printed(0), "2026-01-01 00:00:00");
        assert_eq!(printed(86_400 + 3_661), "2026-01-02 01:01:01");
        assert_eq!(printed(28 * 86_400), "2026-02-01 00:00:00");
        assert_eq!(printed(336 * 86_400), "2027-01-01 00:00:00");
    }
}
