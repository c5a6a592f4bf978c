//! Scans that are called cached read nothing from storage. The only test of this program, because reads are counted for the
//! whole process.

use frond_bench::Result;
use frond_bench::suite::parse_workload;
use frond_bench::workload::{Common, EngineName, Spec, run};

#[test]
fn the_first_scan_of_a_table_that_fits_finds_it_cached() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("frond-bench-scans-{}", std::process::id()));
    let common = Common { memory: Some(16), ..Common::new(&directory) };
    let workload = parse_workload("scans --ratio 0.1 --passes 1 --seconds 0.05")?;
    let outcome = run(&Spec { engine: EngineName::Frond, common, workload })?;
    let forward = outcome.phases.iter().find(|phase| phase.name == "forward, loaded").expect("the phase was run");
    let bytes = forward.read_bytes_per_operation;
    assert!(bytes < 1.0, "bytes per row: {bytes}");
    Ok(())
}
