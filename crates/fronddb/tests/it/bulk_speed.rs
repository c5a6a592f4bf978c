//! What a large bulk load costs, as leaves at once and through level 0: a measurement, not a test.

use std::time::Instant;

use fronddb::{BulkOptions, Database, Options, TreeOptions};

use crate::support::{Random, begin};
use crate::threads::Scratch;

/// Processor time of this process so far, in seconds.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

#[test]
#[ignore = "measures: cargo test --release -p fronddb --test it bulk_speed -- --ignored --nocapture"]
fn a_large_load_as_leaves_and_through_level_0() {
    let rows: u64 = std::env::var("BULK_ROWS").ok().and_then(|rows| rows.parse().ok()).unwrap_or(5_000_000);
    println!("{:24} {:>9} {:>9} {:>12} {:>12}", "", "s", "rows/s", "CPU us/row", "bytes/row");
    for (is_sorted, is_bare) in [(true, true), (true, false), (false, true), (false, false)] {
        let scratch = Scratch::new();
        let db = Database::open(&scratch.0, Options::new().create_if_missing(true).memory_bytes(256 << 20)).unwrap();
        let tree = db.create_tree("t", &TreeOptions::default()).unwrap();
        if !is_bare {
            // A tree in which a dead row lies is loaded through level 0.
            db.put(&tree, b"k", b"v").unwrap();
            db.delete(&tree, b"k").unwrap();
        }
        let mut random = Random::new(7);
        let (started, processor) = (Instant::now(), processor_s());
        let txn = begin(&db);
        let mut bulk = txn.bulk(&tree, &BulkOptions::default()).unwrap();
        let mut value = [b'x'; 60];
        for row in 0..rows {
            let key = if is_sorted { row } else { row.wrapping_mul(0x9e37_79b9_7f4a_7c15) };
            value[..24].fill_with(|| b'a' + random.below(26) as u8);
            bulk.add(&key.to_be_bytes(), &value).unwrap();
        }
        bulk.finish(&mut |_| true).unwrap();
        txn.commit().unwrap();
        let loaded = started.elapsed().as_secs_f64();
        db.wait_idle().unwrap();
        db.checkpoint().unwrap();
        let name = format!(
            "{}, {}",
            if is_sorted { "sorted" } else { "unsorted" },
            if is_bare { "leaves" } else { "level 0" }
        );
        let micros = (processor_s() - processor) * 1e6 / rows as f64;
        let bytes = db.statistics().unwrap().bytes_written() as f64 / rows as f64;
        println!("{name:24} {loaded:>9.1} {:>9.0} {micros:>12.2} {bytes:>12.1}", rows as f64 / loaded);
    }
}
