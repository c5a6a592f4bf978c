//! The resident memory follows the budget while that changes: what is given back is given back to the system. The only
//! test of this program, because all that runs in it is counted.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use frond_bench::generate::Random;
use frond_bench::measure::Resources;
use fronddb::{Codec, Database, Durability, Options, Result, Tree, TreeOptions, TxnOptions, WriteBatch};

const ROWS: u64 = 48 << 10;
const VALUE_BYTES: usize = 1 << 10;
const MIB: u64 = 1 << 20;
/// Until the memory must have followed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that goes when dropped.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// More rows than the largest budget holds.
fn load(db: &Database, random: &mut Random) -> Result<Tree> {
    let tree = db.create_tree("t", &TreeOptions::default())?;
    for first in (0..ROWS).step_by(100) {
        let mut batch = WriteBatch::new();
        for row in first..(first + 100).min(ROWS) {
            let value: Vec<u8> = (0..VALUE_BYTES / 8).flat_map(|_| random.below(u64::MAX).to_be_bytes()).collect();
            batch.put(&tree, &row.to_be_bytes(), &value)?;
        }
        db.write(&batch, TxnOptions { durability: Durability::None, ..TxnOptions::default() })?;
    }
    db.checkpoint()?;
    db.wait_idle()?;
    Ok(tree)
}

#[test]
fn resident_memory_follows_the_budget_while_it_changes() -> Result<()> {
    let base = Resources::now().memory_bytes;
    let scratch = Scratch(std::env::temp_dir().join(format!("frond-bench-memory-{}", std::process::id())));
    let budgets = [32, 12, 28, 8].map(|mib| mib * MIB);
    let options = Options::new().create_if_missing(true).memory_bytes(budgets[0] as usize).default_codec(Codec::None);
    let db = Database::open(&scratch.0, options)?;
    let mut random = Random::new(1);
    let tree = load(&db, &mut random)?;
    for budget in budgets {
        db.set_memory_bytes(budget as usize)?;
        let mut read = |count: u64| -> Result<()> {
            for _ in 0..count {
                assert!(db.get(&tree, &random.below(ROWS).to_be_bytes())?.is_some());
            }
            Ok(())
        };
        // So many blocks that the cache is full.
        read(ROWS / 8)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            read(2_000)?;
            let resident = Resources::now().memory_bytes.saturating_sub(base);
            let cache = db.statistics()?.memory_cache_bytes;
            // A small budget is for the rest first.
            let is_fed = budget < 16 * MIB || cache > budget / 2;
            if resident <= budget + budget / 20 && is_fed {
                break;
            }
            assert!(Instant::now() < deadline, "budget={budget} resident={resident} cache={cache}");
        }
    }
    db.close()
}
