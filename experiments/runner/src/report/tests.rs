//! What a report says of wins, losses, wrong results and missing parts.

use super::*;
use crate::limits::InForce;
use crate::measure::Work;
use crate::plan::{Experiment, parts};

fn report(change: impl Fn(&mut Finding)) -> Report {
    let sizing = Scale::Smoke.sizing();
    let parts = parts(&sizing, &[Experiment::E1, Experiment::E2], &[Engine::Frond, Engine::Innodb, Engine::Rocksdb]);
    let findings = parts
        .iter()
        .map(|part| {
            let mut finding = Finding::new(part);
            let rate = if part.engine == Engine::Frond { 500.0 } else { 100.0 };
            let mut work = Work { units: rate * 4.0, seconds: 4.0, by_second: vec![rate; 4], ..Work::default() };
            (work.bytes_written, work.client_cpu_seconds, work.server_cpu_seconds) = (4_000, 0.2, 2.0);
            (work.latency_ms.p999, work.latency_ms.distribution) = (9.0, vec![(1.0, 0.5), (9.0, 1.0)]);
            finding.works.insert("insert".into(), work);
            finding.set("ready_seconds", 0.4);
            finding.set("clean_ready_seconds", 0.2);
            change(&mut finding);
            finding
        })
        .collect();
    let limits = InForce { io: true, memory: true };
    Report {
        scale: Scale::Smoke,
        sizing,
        identity: Identity::new(Scale::Smoke, &sizing, "abc".into(), "d".into(), "10.11".into(), limits),
        machine: Machine {
            cores: 2.0,
            processor: "cpu".into(),
            memory_bytes: 1,
            kernel: "6".into(),
            distribution: "d".into(),
            file_system: "ext4".into(),
            sync_us: 1.0,
            reads_per_second: 1.0,
            bytes_per_second: 1.0,
        },
        missing: Vec::new(),
        parts,
        left_out: 0,
        findings,
    }
}

fn written(report: &Report) -> (Written, String) {
    let folder = tempfile::tempdir().unwrap();
    let written = report.write(folder.path()).unwrap();
    let html = fs::read_to_string(&written.path).unwrap();
    let raw: serde_json::Value = serde_json::from_slice(&fs::read(folder.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(raw["findings"].as_array().unwrap().len(), report.findings.len());
    (written, html)
}

#[test]
fn a_whole_report_compares_and_judges() {
    let (written, html) = written(&report(|_| {}));
    assert!(written.whole && written.path.ends_with(WHOLE), "{}", written.sentence);
    assert!(html.contains("5.00 × better") && html.contains("<svg") && !html.contains("INCOMPLETE"));
    assert!(
        html.contains("≥ 2 × MyRocks") && html.contains("reached") && html.contains("--innodb-flush-method=O_DIRECT")
    );
    assert!(!html.contains("<script") && !html.contains("src="), "self-contained");
}

#[test]
fn a_part_that_failed_makes_it_incomplete_in_name_and_text() {
    let (written, html) = written(&report(|finding| {
        if finding.engine == Engine::Innodb {
            finding.failed = Some("out of <luck>".into());
        }
    }));
    assert!(!written.whole && written.path.ends_with(INCOMPLETE));
    assert!(html.contains("INCOMPLETE: 3 of 10 parts") && html.contains("out of &lt;luck&gt;"));
}

#[test]
fn a_report_of_less_than_everything_does_not_look_whole() {
    let complete = |report: &Report| {
        let folder = tempfile::tempdir().unwrap();
        let written = report.write(folder.path()).unwrap();
        assert!(written.whole, "what was asked for is there");
        let raw = fs::read(folder.path().join("report.json")).unwrap();
        let raw: serde_json::Value = serde_json::from_slice(&raw).unwrap();
        (raw["complete"].as_bool().unwrap(), fs::read_to_string(written.path).unwrap(), written.sentence)
    };
    let whole = report(|_| {});
    let (is_complete, html, _) = complete(&whole);
    assert!(is_complete && !html.contains("NOT THE WHOLE"));
    let (is_complete, html, sentence) = complete(&Report { left_out: 7, ..whole });
    assert!(!is_complete && sentence.contains("7 of 17 parts"));
    assert!(html.find("NOT THE WHOLE: 7 of 17 parts").unwrap() < html.find("How to read it").unwrap());
}

#[test]
fn every_mean_has_its_costs_beside_it_and_every_plot_a_title() {
    let (_, html) = written(&report(|_| {}));
    for beside in ["worst second", "p99.9", "written per row", "server CPU per row", "client&#39;s share of all CPU"] {
        assert!(html.contains(&format!("  {beside}</td>")), "{beside}");
    }
    for plot in
        ["Bytes written per row of iiBench&#39;s table", "Recovery time against insert rate", "answered within a time"]
    {
        assert!(html.contains(plot), "{plot}");
    }
    assert!(!html.contains("<title></title>") && !html.contains("BLACKHOLE"));
}

#[test]
fn a_wrong_result_stands_on_top_and_fails_the_run() {
    let (written, html) = written(&report(|finding| {
        if finding.engine == Engine::Frond && finding.variant == "limited" {
            finding.faults.push("acknowledged rows are lost".into());
        }
    }));
    assert!(!written.whole);
    let fault = html.find("acknowledged rows are lost").unwrap();
    assert!(fault < html.find("How to read it").unwrap());
}

#[test]
fn a_run_without_limits_says_so() {
    let mut report = report(|_| {});
    let (_, html) = written(&report);
    assert!(html.contains("a control group allows the server") && html.contains("bounded to"));
    report.identity.limits = InForce { io: false, memory: false };
    let (_, html) = written(&report);
    assert!(html.contains("these runs had no limit") && html.contains("not bounded"));
}

#[test]
fn a_goal_that_is_missed_is_told() {
    let slow = report(|finding| {
        if finding.engine == Engine::Frond {
            finding.set("ready_seconds", 0.9);
        }
    });
    let (_, html) = written(&slow);
    assert!(html.contains("<td class='loss'>not reached</td>") && html.contains("× worse"));
}

#[test]
fn consistency_after_the_kill_is_a_goal_of_every_run() {
    let judged = |seen: &[f64]| {
        let findings: Vec<Finding> = (0..)
            .zip(seen)
            .map(|(repeat, &consistent)| {
                let (engine, variant) = (Engine::Frond, "memory");
                let part = Part { experiment: Experiment::E5, engine, variant, repeat, dataset: None, seconds: 1.0 };
                let mut finding = Finding::new(&part);
                finding.set("consistent", consistent);
                finding
            })
            .collect();
        let goals = goals::goals(&Values(&findings), &Scale::Smoke.sizing());
        goals.into_iter().find(|goal| goal.what.contains("consistency conditions")).and_then(|goal| goal.reached)
    };
    assert_eq!(judged(&[1.0, 1.0, 1.0]), Some(true));
    assert_eq!(judged(&[1.0, 0.0, 1.0]), Some(false));
    assert_eq!(judged(&[]), None);
}

#[test]
fn dates_are_right() {
    assert_eq!(civil(0), (1970, 1, 1));
    assert_eq!(civil(20_777), (2026, 11, 20));
    assert_eq!(civil(11_016), (2000, 2, 29));
}
