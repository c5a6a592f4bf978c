//! A row of iiBench's `purchases_index` (`experiments.md`, "The iiBench table") and its four index entries.
//!
//! Keys are big-endian, so that comparing bytes compares columns; secondary keys end in the primary key, as in every
//! engine that stores tables in indexes.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `purchases` | transactionid 8 | dateandtime 8, cashregisterid 4, customerid 4, productid 4, price 4, data 10 |
//! | `price_customer` | price 4, customerid 4, transactionid 8 | |
//! | `register_price_customer` | cashregisterid 4, price 4, customerid 4, transactionid 8 | |
//! | `price_date_customer` | price 4, dateandtime 8, customerid 4, transactionid 8 | |

use super::random::{Random, mix};

/// Names of the trees, primary first.
pub const INDEXES: [&str; 4] = ["purchases", "price_customer", "register_price_customer", "price_date_customer"];

/// Bytes of the stored row.
pub const VALUE_BYTES: usize = 34;

const CASH_REGISTERS: u64 = 1_000;
const CUSTOMERS: u64 = 100_000;
const PRODUCTS: u64 = 10_000;
const PRICES_CENTS: u64 = 50_000;
/// 2026-01-01 in seconds since 1970.
const FIRST_SECOND: u64 = 1_767_225_600;
const ROWS_PER_SECOND: u64 = 20_000;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .";

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purchase {
    /// Auto-increment primary key, from 1.
    pub transaction_id: u64,
    /// Seconds since 1970; advances with the primary key, as a clock does.
    pub date_and_time: u64,
    /// Uniform.
    pub cash_register_id: u32,
    /// Uniform.
    pub customer_id: u32,
    /// Uniform.
    pub product_id: u32,
    /// Cents, uniform.
    pub price: u32,
    /// Random text.
    pub data: [u8; 10],
}

impl Purchase {
    /// Row number `transaction_id` of the table that `seed` names.
    pub fn generate(seed: u64, transaction_id: u64) -> Purchase {
        let mut random = Random::new(mix(seed) ^ transaction_id);
        let mut data = [0; 10];
        let letters = random.bits();
        data.iter_mut().enumerate().for_each(|(at, letter)| *letter = LETTERS[(letters >> (6 * at)) as usize & 63]);
        Purchase {
            transaction_id,
            date_and_time: FIRST_SECOND + transaction_id / ROWS_PER_SECOND,
            cash_register_id: random.below(CASH_REGISTERS) as u32,
            customer_id: random.below(CUSTOMERS) as u32,
            product_id: random.below(PRODUCTS) as u32,
            price: random.below(PRICES_CENTS) as u32,
            data,
        }
    }

    /// Key in `purchases`.
    pub fn primary_key(&self) -> [u8; 8] {
        self.transaction_id.to_be_bytes()
    }

    /// Value in `purchases`.
    pub fn value(&self) -> [u8; VALUE_BYTES] {
        join([
            &self.date_and_time.to_be_bytes(),
            &self.cash_register_id.to_be_bytes(),
            &self.customer_id.to_be_bytes(),
            &self.product_id.to_be_bytes(),
            &self.price.to_be_bytes(),
            &self.data,
        ])
    }

    /// Key in `price_customer`.
    pub fn price_customer_key(&self) -> [u8; 16] {
        join([&self.price.to_be_bytes(), &self.customer_id.to_be_bytes(), &self.primary_key()])
    }

    /// Key in `register_price_customer`.
    pub fn register_price_customer_key(&self) -> [u8; 20] {
        join([
            &self.cash_register_id.to_be_bytes(),
            &self.price.to_be_bytes(),
            &self.customer_id.to_be_bytes(),
            &self.primary_key(),
        ])
    }

    /// Key in `price_date_customer`.
    pub fn price_date_customer_key(&self) -> [u8; 24] {
        join([
            &self.price.to_be_bytes(),
            &self.date_and_time.to_be_bytes(),
            &self.customer_id.to_be_bytes(),
            &self.primary_key(),
        ])
    }

    /// Bytes that a row asks to be stored over its four entries.
    pub const LOGICAL_BYTES: u64 = 8 + VALUE_BYTES as u64 + 16 + 20 + 24;
}

fn join<const BYTES: usize, const PARTS: usize>(parts: [&[u8]; PARTS]) -> [u8; BYTES] {
    let mut joined = [0; BYTES];
    let mut at = 0;
    for part in parts {
        joined[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    debug_assert_eq!(at, BYTES);
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Purchase> {
        (1..=2_000).map(|id| Purchase::generate(42, id)).collect()
    }

    #[test]
    fn a_row_is_a_function_of_seed_and_number() {
        assert_eq!(Purchase::generate(42, 9), Purchase::generate(42, 9));
        assert_ne!(Purchase::generate(42, 9).price_customer_key(), Purchase::generate(43, 9).price_customer_key());
    }

    #[test]
    fn keys_sort_as_their_columns_do() {
        let mut by_bytes = rows();
        let mut by_columns = rows();
        by_bytes.sort_by_key(Purchase::price_customer_key);
        by_columns.sort_by_key(|row| (row.price, row.customer_id, row.transaction_id));
        assert_eq!(by_bytes, by_columns);
        by_bytes.sort_by_key(Purchase::register_price_customer_key);
        by_columns.sort_by_key(|row| (row.cash_register_id, row.price, row.customer_id, row.transaction_id));
        assert_eq!(by_bytes, by_columns);
        by_bytes.sort_by_key(Purchase::price_date_customer_key);
        by_columns.sort_by_key(|row| (row.price, row.date_and_time, row.customer_id, row.transaction_id));
        assert_eq!(by_bytes, by_columns);
        by_bytes.sort_by_key(Purchase::primary_key);
        assert_eq!(by_bytes, rows());
    }
}
