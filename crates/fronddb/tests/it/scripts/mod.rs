//! Golden scripts: commands and their expected output in one text file, one per behaviour and one per anomaly
//! that an isolation level allows or forbids. They lie in `tests/scripts`; `session` says what commands there are.
//!
//! `UPDATE=1 cargo test -p fronddb --test it scripts` writes the output anew; read the difference before it is kept.
//! The scripts run on the simulated disk, with tiny nodes and background work by hand, so that their output is the
//! same everywhere.

mod session;

use std::fs;
use std::path::PathBuf;

use session::Session;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

fn run(name: &str) {
    let path = directory().join(name).with_extension("frond");
    let expected = fs::read_to_string(&path).unwrap();
    let output =
        goldenscript::generate(&mut Session::new(), &expected).unwrap_or_else(|error| panic!("{name}: {error}"));
    if output == expected {
        return;
    }
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        return fs::write(&path, output).unwrap();
    }
    let lines = expected.lines().map(Some).chain(std::iter::repeat(None));
    let (number, (was, is)) = lines
        .zip(output.lines().map(Some).chain(std::iter::repeat(None)))
        .enumerate()
        .find(|(_, (was, is))| was != is)
        .expect("they differ");
    let (was, is) = (was.unwrap_or("(the end)"), is.unwrap_or("(the end)"));
    panic!("{name}.frond:{}: expected: {was}\n           got: {is}\nUPDATE=1 writes the output anew", number + 1);
}

macro_rules! scripts {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })*

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

scripts! {
    crashes
    ddl
    estimates
    first_updater_wins
    inserts
    isolation_dirty_read
    isolation_dirty_write
    isolation_fuzzy_locking_read
    isolation_g1a_aborted_read
    isolation_g1b_intermediate_read
    isolation_g1c_circular_flow
    isolation_lost_update
    isolation_non_repeatable_read
    isolation_observed_transaction_vanishes
    isolation_phantom
    isolation_phantom_locking
    isolation_read_skew
    isolation_write_skew
    isolation_write_skew_predicate
    locking_reads
    log_records
    prepared
    range_deletes
    savepoints
    single_deletes
    statement_rollback
    tree_shape
    updates
}

#[test]
fn every_script_is_run() {
    let files = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files.map(|file| file.trim_end_matches(".frond").to_owned()).collect();
    names.sort();
    let mut listed = NAMES.to_vec();
    listed.sort_unstable();
    assert_eq!(names, listed);
}
