//! Every workload on the model: the checks inside the workloads are the tests.

use super::*;
use crate::cli::CompareCommand;
use crate::suite::parse_workload;

/// Runs a workload given as on the command line.
fn run_on_model(line: &str) -> Result<Outcome> {
    let workload = parse_workload(line)?;
    let name = format!("frond-bench-{}-{}", line.replace(' ', ""), std::process::id());
    let directory = std::env::temp_dir().join(name);
    let common = Common { memory: Some(1), keep: true, ..Common::new(&directory) };
    common.remove()?;
    let spec = Spec { engine: EngineName::Model, common, workload };
    let outcome = spec.engine.dispatch(&spec);
    spec.common.remove()?;
    outcome
}

/// Settings for a directory of this test alone, and the directory's path.
fn place(test: &str) -> (Common, PathBuf) {
    let directory = std::env::temp_dir().join(format!("frond-bench-{test}-{}", std::process::id()));
    (Common::new(&directory), directory)
}

#[test]
fn a_directory_with_somebodys_files_is_refused_and_stays() -> Result<()> {
    let (common, directory) = place("foreign");
    std::fs::create_dir_all(directory.join("letters")).at_path(&directory)?;
    std::fs::write(directory.join("letters/first"), "dear").at_path(&directory)?;
    let workload = parse_workload("commit --threads 1 --seconds 0.01")?;
    for line in ["commit", "rollback", "recovery"] {
        let spec = Spec { engine: EngineName::Model, common: common.clone(), workload: parse_workload(line)? };
        let refused = run(&spec).expect_err("the files are not the benchmark's").to_string();
        assert!(refused.contains(&directory.display().to_string()) && refused.contains("--directory"), "{refused}");
    }
    let compared = CompareCommand {
        engines: vec![EngineName::Model],
        common: common.clone(),
        repeat: 1,
        record: None,
        title: None,
        json: None,
        workload,
    };
    assert!(compared.execute().is_err());
    assert_eq!(std::fs::read(directory.join("letters/first")).at_path(&directory)?, b"dear");
    assert_eq!(std::fs::read_dir(&directory).at_path(&directory)?.count(), 1, "nothing was added either");
    std::fs::remove_dir_all(&directory).at_path(&directory)
}

#[test]
fn a_database_of_an_earlier_run_is_replaced_also_after_half_a_removal() -> Result<()> {
    let (common, directory) = place("earlier");
    let workload = parse_workload("commit --threads 1 --seconds 0.01")?;
    let keep = Spec { engine: EngineName::Frond, common: Common { keep: true, ..common.clone() }, workload };
    run(&keep)?;
    assert!(directory.join("data.frond").exists());
    std::fs::remove_file(directory.join("data.frond")).at_path(&directory)?;
    run(&keep)?;
    run(&Spec { common, ..keep })?;
    assert!(!directory.exists());
    Ok(())
}

#[test]
fn what_is_damaged_after_a_run_is_named() -> Result<()> {
    let (common, directory) = place("damaged");
    let workload = parse_workload("iibench --rows 3000 --batch 70 --compact")?;
    run(&Spec { engine: EngineName::Frond, common: Common { keep: true, ..common.clone() }, workload })?;
    check(&directory)?;
    let path = directory.join("data.frond");
    let mut data = std::fs::read(&path).at_path(&path)?;
    // Behind the superblocks.
    data.iter_mut().skip(64 << 10).for_each(|byte| *byte ^= 1);
    std::fs::write(&path, data).at_path(&path)?;
    let named = check(&directory).expect_err("nothing is as it was").to_string();
    assert!(named.contains("data.frond"), "{named}");
    common.remove()
}

#[test]
fn a_link_to_a_directory_is_followed_and_stays() -> Result<()> {
    let (common, link) = place("link");
    let target = link.with_extension("target");
    std::fs::create_dir_all(&target).at_path(&target)?;
    std::os::unix::fs::symlink(&target, &link).at_path(&link)?;
    let workload = parse_workload("commit --threads 1 --seconds 0.01")?;
    let spec = Spec { engine: EngineName::Frond, common: Common { keep: true, ..common.clone() }, workload };
    run(&spec)?;
    assert!(target.join("data.frond").exists());
    run(&Spec { common, ..spec })?;
    assert_eq!(std::fs::read_dir(&target).at_path(&target)?.count(), 0);
    std::fs::remove_file(&link).at_path(&link)?;
    std::fs::remove_dir(&target).at_path(&target)
}

fn phase<'a>(outcome: &'a Outcome, name: &str) -> &'a Phase {
    outcome.phases.iter().find(|phase| phase.name == name).expect("the phase was run")
}

#[test]
fn iibench_loads_every_row_and_verifies_all_indexes() -> Result<()> {
    let outcome = run_on_model("iibench --rows 3000 --batch 70 --threads 3 --unique --verify --compact")?;
    assert_eq!(phase(&outcome, "load").operations, 3_000);
    Ok(())
}

#[test]
fn a_rate_limit_is_not_exceeded() -> Result<()> {
    let outcome = run_on_model("iibench --rows 300 --batch 10 --rate 1000")?;
    let rate = phase(&outcome, "load").rate;
    assert!(rate < 1_100.0, "rate={rate}");
    Ok(())
}

#[test]
fn ycsb_runs_all_mixes() -> Result<()> {
    let outcome = run_on_model("ycsb --rows 300 --seconds 0.05 --value-bytes 20")?;
    assert_eq!(outcome.phases.len(), 7);
    assert!(outcome.phases.iter().all(|phase| phase.operations > 0));
    Ok(())
}

#[test]
fn single_row_commits_run_on_many_threads() -> Result<()> {
    let outcome = run_on_model("commit --threads 1,4 --seconds 0.05")?;
    assert!(phase(&outcome, "4 threads").operations > 0);
    Ok(())
}

#[test]
fn point_reads_find_what_is_there_and_nothing_else() -> Result<()> {
    for ratio in ["0.1", "1"] {
        let outcome = run_on_model(&format!("reads --ratio {ratio} --seconds 0.05 --threads 2"))?;
        assert!(phase(&outcome, "get absent").operations > 0);
    }
    Ok(())
}

#[test]
fn scans_visit_every_row_both_ways() -> Result<()> {
    let outcome = run_on_model("scans --ratio 0.2 --seconds 0.02 --passes 3")?;
    assert_eq!(phase(&outcome, "backward, updated").operations, phase(&outcome, "load").operations);
    Ok(())
}

#[test]
fn rolled_back_rows_are_gone() -> Result<()> {
    let outcome = run_on_model("rollback --rows 50,3000 --before 500")?;
    assert!(outcome.facts.iter().any(|fact| fact.name == "rollback of 3 k rows"));
    Ok(())
}

#[test]
fn a_queue_is_followed_from_head_to_tail() -> Result<()> {
    let outcome = run_on_model("queue --rows 500 --depth 40 --batch 20")?;
    assert_eq!(phase(&outcome, "queue").operations, 500);
    Ok(())
}

#[test]
fn a_queue_ends_where_it_is_when_its_time_is_over() -> Result<()> {
    let outcome = run_on_model("queue --rows 100000000 --depth 40 --batch 20 --seconds-max 0.05")?;
    let through = phase(&outcome, "queue").operations;
    assert!(through > 0 && through < 100_000_000, "through={through}");
    assert!(outcome.facts.iter().any(|fact| fact.name == "first live row of one"));
    Ok(())
}

#[test]
fn a_setting_reaches_the_engine_it_is_for() {
    let common = Common {
        tuning: vec![
            ("frond.a".to_owned(), "1".to_owned()),
            ("model.b".to_owned(), "2".to_owned()),
            ("c".to_owned(), "3".to_owned()),
        ],
        ..Common::new(Path::new("."))
    };
    let workload = parse_workload("commit").expect("a workload");
    let settings = Spec::new(EngineName::Model, &common, &workload).common.tuning;
    assert_eq!(settings, [("b".to_owned(), "2".to_owned()), ("c".to_owned(), "3".to_owned())]);
}
