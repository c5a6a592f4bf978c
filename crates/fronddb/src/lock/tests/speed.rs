//! Timing, by hand: `cargo test --release -p fronddb lock::tests::speed -- --ignored --nocapture --test-threads=1`
//!
//! Work is timed in batches and the median batch counts, so that other work on the machine disturbs little.

use std::time::Instant;

use super::*;

/// The median over batches of the nanoseconds that each of a batch's `per_batch` pieces of work took.
fn nanos_each(batches: u64, per_batch: u64, mut work: impl FnMut(u64)) -> f64 {
    let mut times: Vec<u128> = (0..batches)
        .map(|batch| {
            let start = Instant::now();
            (batch * per_batch..(batch + 1) * per_batch).for_each(&mut work);
            start.elapsed().as_nanos()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2] as f64 / per_batch as f64
}

fn lock(locker: &Locker, n: u64) {
    assert!(locker.lock(TREE, &n.to_be_bytes(), Exclusive, Wait::Forever).is_ok());
}

#[test]
#[ignore = "timing"]
fn speed_of_transactions() {
    for per_txn in [0u64, 1, 10, 200] {
        for (name, stride) in [("in sequence", 1u64), ("scattered", 0x9e37_79b9_7f4a_7c15)] {
            let table = table_of(1 << 30).0;
            let each = nanos_each(400, 2000 / per_txn.max(1), |txn| {
                let locker = table.locker(TxnId(txn + 1));
                (0..per_txn).for_each(|n| lock(&locker, (txn * per_txn + n).wrapping_mul(stride)));
                locker.release_all();
            });
            println!(
                "transaction of {per_txn} locks, {name}: {each:.0} ns, {:.0} ns a lock",
                each / per_txn.max(1) as f64
            );
        }
    }
}

#[test]
#[ignore = "timing"]
fn speed_of_a_large_owner() {
    for (name, stride) in [("in sequence", 1u64), ("scattered", 0x9e37_79b9_7f4a_7c15)] {
        let table = table_of(1 << 30).0;
        let locker = table.locker(TxnId(1));
        let each = nanos_each(1000, 1000, |n| lock(&locker, n.wrapping_mul(stride)));
        let bytes = table.bytes() as u64 / 1_000_000;
        let start = Instant::now();
        locker.release_all();
        let release = start.elapsed();
        let sweep = nanos_each(500, 1, |_| _ = table.sweep_step(1000)) / 1000.0;
        println!(
            "1,000,000 locks, {name}: {each:.0} ns, {bytes} bytes each; release {release:?}; sweep {sweep:.0} ns each"
        );
    }
}

#[test]
#[ignore = "timing"]
fn speed_of_everything_else() {
    let table = table();
    let locker = table.locker(TxnId(1));
    lock(&locker, 7);
    println!("held already: {:.0} ns", nanos_each(1000, 1000, |_| lock(&locker, 7)));
    let by_id = |_| drop(table.lock(TxnId(1), TREE, &7u64.to_be_bytes(), Exclusive, Wait::Forever));
    println!("held already, by id: {:.0} ns", nanos_each(1000, 1000, by_id));
    let again = nanos_each(1000, 1000, |n| {
        lock(&locker, n + 10);
        locker.unlock(TREE, &(n + 10).to_be_bytes());
    });
    println!("lock and unlock: {again:.0} ns");
    let range = nanos_each(1000, 100, |n| {
        let locker = table.locker(TxnId(n + 10));
        let (low, high) = (n.to_be_bytes(), (n + 1).to_be_bytes());
        assert!(locker.lock_range(TreeId(9), &low, &high, Exclusive, Wait::Forever).is_ok());
        locker.release_all();
    });
    println!("transaction of one range: {range:.0} ns");
}

#[test]
#[ignore = "timing"]
fn speed_beyond_the_bound() {
    for (name, stride) in [("in sequence", 1u64), ("scattered", 0x9e37_79b9_7f4a_7c15)] {
        let (table, _, _) = table_of(8 << 20);
        let locker = table.locker(TxnId(1));
        let (mut all, mut beyond) = (Vec::new(), Duration::ZERO);
        for n in 0..1_000_000u64 {
            let start = Instant::now();
            lock(&locker, n.wrapping_mul(stride));
            all.push(start.elapsed());
            beyond += *all.last().unwrap_or(&Duration::ZERO);
        }
        all.sort_unstable();
        println!(
            "beyond the bound, {name}: mean {:?}, median {:?}, 99.9 % {:?}, longest {:?}; bytes {}, ranges {}",
            beyond / 1_000_000,
            all[500_000],
            all[999_000],
            all[999_999],
            table.bytes(),
            table.stats().ranges
        );
    }
}

#[test]
#[ignore = "timing"]
fn speed_of_a_hot_row() {
    for hold in [false, true] {
        let table = table();
        let count = 10_000;
        let start = Instant::now();
        thread::scope(|scope| {
            for thread in 0..8u64 {
                let table = &table;
                scope.spawn(move || {
                    for n in 0..count {
                        let locker = table.locker(TxnId(1 + thread + n * 8));
                        lock(&locker, 0);
                        if hold {
                            thread::yield_now();
                        }
                        locker.release_all();
                    }
                });
            }
        });
        let each = start.elapsed() / (8 * count as u32);
        println!("hot row, 8 threads, yielding={hold}: {each:?} a transaction, {} waits", table.stats().waits);
    }
}
