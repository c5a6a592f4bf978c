//! Timing, by hand: `cargo test --release -p fronddb lock::tests::speed -- --ignored --nocapture --test-threads=1`

use std::time::Instant;

use super::*;

fn nanos_each(count: u64, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / count as f64
}

#[test]
#[ignore = "timing"]
fn speed_of_uncontended_points() {
    for (name, per_txn, txns) in
        [("10 locks", 10u64, 200_000u64), ("200 locks", 200, 10_000), ("100,000 locks", 100_000, 10)]
    {
        for stride in [1u64, 0x9e37_79b9_7f4a_7c15] {
            let table = table_of(1 << 30).0;
            let (mut lock, mut release, mut sweep) = (0.0, 0.0, 0.0);
            for txn in 1..=txns {
                let locker = table.locker(TxnId(txn));
                lock += nanos_each(1, || {
                    for n in 0..per_txn {
                        let key = (txn * per_txn + n).wrapping_mul(stride).to_be_bytes();
                        let _ = locker.lock(TREE, &key, Exclusive, Wait::Forever);
                    }
                });
                release += nanos_each(1, || locker.release_all());
                sweep += nanos_each(1, || while table.sweep_step(1024) {});
            }
            let locks = (per_txn * txns) as f64;
            println!(
                "{name}, stride {stride:#x}: lock {:.0} ns, release {:.0} ns a lock, {:.1} us a call, sweep {:.0} ns a lock",
                lock / locks,
                release / locks,
                release / txns as f64 / 1000.0,
                sweep / locks
            );
        }
    }
}

#[test]
#[ignore = "timing"]
fn speed_of_everything_else() {
    let table = table();
    let locker = table.locker(TxnId(1));
    let count = 1_000_000;
    let _ = locker.lock(TREE, b"k", Exclusive, Wait::Forever);
    println!(
        "held already: {:.0} ns",
        nanos_each(count, || for _ in 0..count {
            let _ = locker.lock(TREE, b"k", Exclusive, Wait::Forever);
        })
    );
    println!(
        "by id: {:.0} ns",
        nanos_each(count, || for _ in 0..count {
            let _ = table.lock(TxnId(1), TREE, b"k", Exclusive, Wait::Forever);
        })
    );
    println!(
        "lock and unlock: {:.0} ns",
        nanos_each(count, || for n in 0..count {
            let _ = locker.lock(TREE, &n.to_be_bytes(), Exclusive, Wait::Forever);
            locker.unlock(TREE, &n.to_be_bytes());
        })
    );
    println!(
        "handle and end without locks: {:.0} ns",
        nanos_each(count, || for n in 0..count {
            table.locker(TxnId(n + 10)).release_all();
        })
    );
    let count = 100_000;
    println!(
        "range, held by a transaction of one: {:.0} ns",
        nanos_each(count, || for n in 0..count {
            let locker = table.locker(TxnId(n + 10));
            let _ = locker.lock_range(TreeId(9), &n.to_be_bytes(), &(n + 1).to_be_bytes(), Exclusive, Wait::Forever);
            locker.release_all();
        })
    );
}

#[test]
#[ignore = "timing"]
fn speed_beyond_the_bound() {
    let (table, _, _) = table_of(8 << 20);
    let count = 2_000_000u64;
    for (name, stride) in [("in sequence", 1u64), ("scattered", 0x9e37_79b9_7f4a_7c15)] {
        let locker = table.locker(TxnId(1));
        let mut slowest = Duration::ZERO;
        let each = nanos_each(count, || {
            for n in 0..count {
                let start = Instant::now();
                let _ = locker.lock(TREE, &n.wrapping_mul(stride).to_be_bytes(), Exclusive, Wait::Forever);
                slowest = slowest.max(start.elapsed());
            }
        });
        println!("{name}: {each:.0} ns, slowest {slowest:?}, bytes {}, ranges {}", table.bytes(), table.stats().ranges);
        locker.release_all();
        while table.sweep_step(1024) {}
    }
}

#[test]
#[ignore = "timing"]
fn speed_of_a_hot_row() {
    let table = table();
    let count = 20_000;
    let each = nanos_each(count * 8, || {
        thread::scope(|scope| {
            for thread in 0..8u64 {
                let table = &table;
                scope.spawn(move || {
                    for n in 0..count {
                        let locker = table.locker(TxnId(1 + thread + n * 8));
                        let _ = locker.lock(TREE, b"hot", Exclusive, Wait::Forever);
                        locker.release_all();
                    }
                });
            }
        })
    });
    println!("hot row, 8 threads: {each:.0} ns a transaction, {} waits", table.stats().waits);
}
