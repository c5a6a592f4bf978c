//! The tool as a user runs it: the real program on a temporary directory.

mod support;

use std::fs::Permissions;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use support::{Place, Said};

impl Place {
    /// A database with a tree of a few rows.
    fn fruit(&self) {
        self.good("create demo fruit empty");
        for (key, value) in [("apple", "red"), ("apricot", "orange"), ("banana", "yellow"), ("cherry", "red")] {
            self.good(&format!("put demo fruit {key} {value}"));
        }
    }
}

#[test]
fn help_leads_from_the_first_step_on() {
    let place = Place::new();
    let help = place.good("--help");
    for part in ["frond create demo fruit", "frond plug", "Exit codes"] {
        assert!(help.contains(part), "{help}");
    }
    for command in [
        "create", "put", "get", "delete", "scan", "trees", "stat", "dump", "load", "check", "salvage", "log", "bench",
        "plug",
    ] {
        let help = place.good(&format!("help {command}"));
        assert!(help.contains("Examples:"), "{command} has no examples");
        assert!(help.contains(&format!("frond {command} ")), "{help}");
    }
    assert!(!help.contains("plug-load"), "the loader is nobody's business");
    assert_eq!(place.good("version"), format!("frond {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_is_code_2_and_changes_nothing() {
    let place = Place::new();
    for line in [
        "",
        "frobnicate",
        "get",
        "get demo",
        "scan demo fruit --limit x",
        "create demo --codec gzip",
        "plug --rate 0",
        "plug --rate 5 --seconds 1e20 --results plug",
    ] {
        let said = place.run(line);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "frond {line}: {}", said.err);
    }
    place.run("get demo fruit a\\q").failed(2, &["unknown escape", "key"]);
    place.run("put demo fruit --encoding hex abc 00").failed(2, &["odd number"]);
    place.run("dump demo --format csv").failed(2, &["CSV holds one tree"]);
    assert_eq!(std::fs::read_dir(place.dir.path()).expect("list").count(), 0);
}

#[test]
fn what_is_put_is_got_scanned_and_deleted() {
    let place = Place::new();
    place.fruit();
    assert_eq!(place.good("get demo fruit apple"), "red\n");
    assert_eq!(place.good("get demo fruit apple --raw"), "red");
    place.run("get demo fruit pear").failed(1, &["no such key", "key=pear"]);
    assert_eq!(place.good("scan demo fruit --prefix ap"), "apple\tred\napricot\torange\n");
    assert_eq!(place.good("scan demo fruit --from apricot --to cherry --keys-only"), "apricot\nbanana\n");
    assert_eq!(place.good("scan demo fruit --after apricot --through cherry -k"), "banana\ncherry\n");
    assert_eq!(place.good("scan demo fruit --reverse -n 2 -k"), "cherry\nbanana\n");
    assert_eq!(place.good("scan demo fruit --count"), "4\n");
    assert_eq!(place.good("scan demo empty"), "");
    place.run("put demo fruit --insert apple green").failed(14, &["key exists"]);
    place.good("delete demo fruit apple");
    place.run("delete demo fruit apple").failed(1, &["no such key"]);
    // As a script has it whose variables are not set.
    for range in [["--from", "b", "--to", ""], ["--from", "", "--to", ""]] {
        let whole = [["delete", "demo", "fruit"].as_slice(), &range].concat();
        place.run_with(&whole).failed(2, &["--to is empty"]);
    }
    place.run_with(&["delete", "demo", "fruit", "--from", ""]).failed(2, &["--from is empty"]);
    place.run("delete demo fruit --from c --to b").failed(2, &["no key lies in the range"]);
    assert_eq!(place.good("scan demo fruit --count"), "3\n");
    place.good("delete demo fruit --from b --to c");
    assert_eq!(place.good("scan demo fruit -k"), "apricot\ncherry\n");
    place.good("delete demo fruit --drop");
    place.run("scan demo fruit").failed(16, &["tree \"fruit\"", "it has: empty"]);
}

#[test]
fn bytes_of_every_kind_go_in_and_out() {
    let place = Place::new();
    place.good("create demo bin");
    place.good("put demo bin --encoding hex 00ff 0a0d5c");
    assert_eq!(place.good("get demo bin --encoding hex 00ff"), "0a0d5c\n");
    assert_eq!(place.good("scan demo bin"), "\\x00\\xff\t\\n\\r\\\\\n");
    let everything: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let said = place.run_on("put demo bin all -", &everything);
    assert_eq!(said.code, 0, "{}", said.err);
    let got = place.command(["get", "demo", "bin", "all", "--raw"]).output().expect("run");
    assert_eq!(got.stdout, everything);
    // A value past the size at which values leave the tree.
    let large = vec![7; 300_000];
    assert_eq!(place.run_on("put demo bin large -", &large).code, 0);
    assert_eq!(place.command(["get", "demo", "bin", "large", "--raw"]).output().expect("run").stdout, large);
}

#[test]
fn a_dump_loads_into_the_same_database() {
    let place = Place::new();
    place.fruit();
    place.good("create demo other --codec lz4");
    place.good("put demo other --encoding hex 00090a5cff ff00");
    let dump = place.good("dump demo");
    assert!(dump.starts_with("frond-dump 1\n") && dump.ends_with("end rows=5\n"), "{dump}");
    let loaded = place.run_on("load copy --create", dump.as_bytes());
    assert_eq!(loaded.code, 0, "{}", loaded.err);
    loaded.complained(&["5 rows loaded"]);
    assert_eq!(place.good("dump copy"), dump);
    assert!(place.good("trees copy").contains("lz4"));
    assert_eq!(place.good("trees copy --names"), "empty\nfruit\nother\n");
    let trees: serde_json::Value = serde_json::from_str(&place.good("trees copy --json")).expect("JSON");
    assert_eq!(trees.as_array().map(Vec::len), Some(3));
    // One tree, to a file that appears whole.
    place.good("dump demo fruit --output fruit.lines");
    place.good("load second --create fruit.lines");
    assert_eq!(place.good("scan second fruit --count"), "4\n");
}

#[test]
fn csv_goes_out_and_comes_in() {
    let place = Place::new();
    place.fruit();
    let csv = place.good("dump demo fruit --format csv");
    assert!(csv.starts_with("key,value\napple,red\n"), "{csv}");
    assert_eq!(place.run_on("load demo --tree copy --create", csv.as_bytes()).code, 0);
    assert_eq!(place.good("scan demo copy"), place.good("scan demo fruit"));
    let said = place.run_on("load demo --tree copy --no-header --if-exists keep", b"apple,green\nfig,\"a,\"\"b\"\n");
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(place.good("get demo copy apple"), "red\n");
    assert_eq!(place.good("get demo copy fig"), "a,\"b\n");
    let said = place.run_on("load demo --tree copy --if-exists fail", b"key,value\nzebra,1\napple,1\n");
    said.failed(14, &["key exists", "rows loaded before it: 0"]);
    place.run("get demo copy zebra").failed(1, &["no such key"]);
}

#[test]
fn bad_input_names_its_line_and_what_was_loaded() {
    let place = Place::new();
    place.good("create demo t");
    place.run_on("load demo --tree t", b"key,value\na,1\nb\n").failed(3, &["standard input, line 3", "two columns"]);
    place.run_on("load demo --tree t", b"key,value\na,\\q\n").failed(3, &["line 2", "unknown escape"]);
    place.run_on("load demo", b"key,value\n").failed(2, &["name the tree"]);
    let cut = b"key,value\na,1\nb,\"2";
    place.run_on("load demo --tree t", cut).failed(3, &["line 3", "ends inside quotes", "rows loaded before it: 0"]);
    place.run_on("load demo --tree t", b"frond-dump 1\nend rows=0\n").failed(2, &["leave --tree out"]);
    place.run_on("load new --create", b"frond-dump 9\n").failed(3, &["not a dump that this version reads"]);
    place.run("trees new").failed(16, &["no database there"]);
    place.run_on("load demo --tree t nothing", b"").failed(4, &["read nothing", "No such file"]);
    let cut = b"frond-dump 1\ntree\tt\tnone\t\na\t1\nb\t2";
    place.run_on("load demo", cut).failed(3, &["line 4", "cut short", "rows loaded before it: 0"]);
    let short = b"frond-dump 1\ntree\tt\tnone\t\na\t1\nend rows=2\n";
    place.run_on("load demo", short).failed(3, &["rows are missing", "1 of 2"]);
    place.run_on("load demo", b"frond-dump 2\n").failed(3, &["line 1", "frond-dump 1"]);
    place.run_on("load demo", b"frond-dump 1\na\tb\n").failed(3, &["line 2", "before the first `tree`"]);
    place.run_on("load nowhere --tree t", b"key,value\n").failed(16, &["nowhere", "frond create"]);
    // Small batches: what came before the bad line is there.
    let mut rows = String::from("key,value\n");
    (0..100).for_each(|row| rows.push_str(&format!("k{row:03},{}\n", "v".repeat(100))));
    rows.push_str("bad\n");
    let said = place.run_on("load demo --tree t --batch 1K", rows.as_bytes());
    assert_eq!(said.code, 3, "{}", said.err);
    let loaded: u64 = said.err.trim().rsplit(' ').next().and_then(|word| word.parse().ok()).expect("a count");
    assert!((50..100).contains(&loaded), "{}", said.err);
    // `a` came with the dump of one row above.
    assert_eq!(place.good("scan demo t --count").trim().parse(), Ok(loaded + 1));
}

#[test]
fn a_missing_database_is_not_made_by_looking_at_it() {
    let place = Place::new();
    for line in [
        "get demo t k",
        "scan demo t",
        "stat demo",
        "trees demo",
        "dump demo",
        "put demo t k v",
        "check demo",
        "log demo",
        "salvage demo new",
    ] {
        place.run(line).failed(16, &["demo"]);
        assert!(!place.path("demo").exists(), "frond {line}");
    }
    assert!(!place.path("new").exists());
}

#[test]
fn a_database_in_use_is_refused() {
    let place = Place::new();
    place.fruit();
    let held =
        fronddb::Database::open(place.path("demo"), fronddb::Options::new().memory_bytes(16 << 20)).expect("open");
    for line in ["get demo fruit apple", "put demo fruit apple x", "check demo", "salvage demo new"] {
        place.run(line).failed(18, &["already open", "wait until"]);
    }
    held.close().expect("close");
    assert_eq!(place.good("get demo fruit apple"), "red\n");
}

#[test]
fn an_output_that_fails_leaves_nothing_behind() {
    let place = Place::new();
    place.fruit();
    let said = place.run("dump demo --output missing/fruit.lines");
    said.failed(4, &["missing", "No such file"]);
    place.run("dump demo fruit nuts --output some.lines").failed(16, &["nuts"]);
    let names: Vec<_> =
        std::fs::read_dir(place.dir.path()).expect("list").map(|entry| entry.expect("entry").file_name()).collect();
    assert_eq!(names, ["demo"]);
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let place = Place::new();
    place.good("create demo t");
    let mut rows = String::from("key,value\n");
    (0..20_000).for_each(|row| rows.push_str(&format!("key-{row:06},some value that fills the pipe\n")));
    assert_eq!(place.run_on("load demo --tree t", rows.as_bytes()).code, 0);
    let mut child =
        place.command(["scan", "demo", "t"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("run");
    drop(child.stdout.take());
    let said = Said::from(child.wait_with_output().expect("wait"));
    assert_eq!((said.code, said.err.as_str()), (141, ""));
}

#[test]
fn stat_and_log_show_what_happened() {
    let place = Place::new();
    place.fruit();
    let stat = place.good("stat demo");
    assert!(stat.contains("data file") && stat.contains("generation"), "{stat}");
    let json: serde_json::Value = serde_json::from_str(&place.good("stat demo --json")).expect("JSON");
    assert_eq!(json["trees"], 2);
    assert!(json["recovery"]["records"].is_u64() && json["statistics"]["file_bytes"].is_u64(), "{json}");
    // The log keeps what came after the last opening, and what it replayed until that is in the tree.
    assert_eq!(place.run_on("load demo --tree fruit", b"key,value\nkiwi,green\nlime,green\n").code, 0);
    let log = place.good("log demo");
    let put = log.lines().find(|line| line.contains("key=kiwi")).expect("the put of kiwi");
    assert!(put.contains(" put ") && put.contains("value=green"), "{put}");
    assert!(log.lines().any(|line| line.contains("commit number=")), "{log}");
    let id = trees_id(&place, "fruit");
    let of_fruit = place.good(&format!("log demo --tree {id}"));
    assert!(of_fruit.lines().all(|line| line.contains(&format!(" tree={id} "))), "{of_fruit}");
    let loaded = of_fruit.lines().filter(|line| line.contains("key=kiwi") || line.contains("key=lime"));
    assert_eq!(loaded.count(), 2, "{of_fruit}");
    assert_eq!(place.good("log demo --limit 2").lines().count(), 2);
}

fn trees_id(place: &Place, name: &str) -> u64 {
    let trees: serde_json::Value = serde_json::from_str(&place.good("trees demo --json")).expect("JSON");
    let trees = trees.as_array().expect("a list");
    trees.iter().find(|tree| tree["name"] == name).and_then(|tree| tree["id"].as_u64()).expect("the tree")
}

/// A database whose rows lie in the data file, not only in the log.
fn stored(place: &Place) {
    place.good("create demo left right ");
    let mut rows = String::from("key,value\n");
    (0..30_000).for_each(|row| rows.push_str(&format!("key-{row:06},{}\n", noise(row))));
    for tree in ["left", "right"] {
        assert_eq!(place.run_on(&format!("load demo --tree {tree}"), rows.as_bytes()).code, 0);
    }
    let db = fronddb::Database::open(place.path("demo"), fronddb::Options::new().memory_bytes(16 << 20)).expect("open");
    db.checkpoint().expect("checkpoint");
    db.wait_idle().expect("idle");
    db.checkpoint().expect("checkpoint");
    db.close().expect("close");
}

/// The value of a row.
fn noise(row: u64) -> String {
    let noise = (row + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("{noise:016x}{:016x}", noise.rotate_left(23).wrapping_mul(noise | 1))
}

/// Flips a bit in a block of some user's tree.
fn damage(database: &Path) {
    damage_where(database, |tree| tree > 0);
}

/// Flips a bit in a block of a tree of this kind: pages hold all kinds of things, so it is tried out.
fn damage_where(database: &Path, is_wanted: fn(u32) -> bool) {
    let data = database.join("data.frond");
    let mut bytes = std::fs::read(&data).expect("read");
    for at in (64 << 10..bytes.len() - 4096).step_by(4096).map(|page| page + 1234) {
        if bytes[at..at + 64].iter().all(|byte| *byte == 0) {
            continue;
        }
        bytes[at] ^= 0x10;
        std::fs::write(&data, &bytes).expect("write");
        let report = fronddb::check(database, &fronddb::CheckOptions::default(), &mut |_| {}).expect("check");
        let of_kind = |finding: &fronddb::Finding| finding.tree.is_some_and(|tree| is_wanted(tree.0));
        if report.findings.iter().any(|finding| finding.message.contains("damaged block"))
            && report.findings.iter().all(of_kind)
        {
            return;
        }
        bytes[at] ^= 0x10;
    }
    panic!("no block of a tree found");
}

#[test]
fn a_sound_database_checks_clean_and_salvages_whole() {
    let place = Place::new();
    stored(&place);
    let report = place.good("check demo");
    assert!(report.starts_with("sound"), "{report}");
    let json: serde_json::Value = serde_json::from_str(&place.good("check demo --json")).expect("JSON");
    assert_eq!(json["clean"], true);
    let report = place.good("salvage demo rescued");
    assert!(report.contains("rescued 60,000 rows of 2 trees"), "{report}");
    assert_eq!(place.good("dump rescued"), place.good("dump demo"));
    place.run("salvage demo rescued").failed(2, &["exists"]);
}

#[test]
fn damage_is_named_and_the_rest_salvaged() {
    let place = Place::new();
    stored(&place);
    damage(&place.path("demo"));
    let said = place.run("check demo");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(said.out.contains("file=data.frond offset="), "{}", said.out);
    said.complained(&["is damaged", "findings=", "frond salvage"]);
    let name = if said.out.contains(" name=left: ") { "left" } else { "right" };
    assert!(said.out.contains(&format!(" name={name}: ")), "{}", said.out);
    assert!(said.err.contains(&format!("trees={name};")), "{}", said.err);
    let json: serde_json::Value = serde_json::from_str(&place.run("check demo --json").out).expect("JSON");
    assert_eq!(json["findings"][0]["tree_name"], name);
    // The rest stays in use.
    let scans = ["left", "right"].map(|tree| place.run(&format!("scan demo {tree} --count")));
    assert!(scans.iter().any(|said| said.code == 0 && said.out == "30000\n"), "{}{}", scans[0].err, scans[1].err);
    let refused = scans.iter().find(|said| said.code != 0).expect("damage is never served");
    refused.failed(21, &["data.frond", "offset=", "frond check"]);
    let said = place.run("salvage demo rescued");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    said.complained(&["not all of demo was readable"]);
    assert!(said.out.contains(&format!(" name={name}: ")), "{}", said.out);
    let rescued: u64 = ["left", "right"]
        .map(|tree| place.good(&format!("scan rescued {tree} --count")).trim().parse::<u64>().expect("a count"))
        .iter()
        .sum();
    assert!((55_000..60_000).contains(&rescued), "rescued={rescued}\n{}", said.out);
    assert!(place.good("check rescued").starts_with("sound"));
}

#[test]
fn trees_are_listed_past_damage_of_the_catalog_and_the_exit_code_tells() {
    let place = Place::new();
    let db =
        fronddb::Database::open(place.path("demo"), fronddb::Options::new().create_if_missing(true)).expect("open");
    let txn = db.begin(fronddb::TxnOptions::default()).expect("begin");
    for number in 0..200u32 {
        let noise = (0..1024u32).map(|at| ((at + number * 1024).wrapping_mul(0x9E37_79B9) >> 24) as u8).collect();
        let options = fronddb::TreeOptions { metadata: noise, ..fronddb::TreeOptions::default() };
        txn.create_tree(&format!("t{number:03}"), &options).expect("create");
    }
    txn.commit().expect("commit");
    db.compact(None, b"", b"", &mut |_| std::ops::ControlFlow::Continue(())).expect("compact");
    db.close().expect("close");
    damage_where(&place.path("demo"), |tree| tree == 0);
    let said = place.run("trees demo --names");
    assert_eq!(said.code, 21, "{}{}", said.out, said.err);
    assert!((100..200).contains(&said.out.lines().count()), "{}", said.out);
    said.complained(&["read the catalog of demo", "offset=", "frond check"]);
    let json: serde_json::Value = serde_json::from_str(&place.run("trees demo --json").out).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(said.out.lines().count()));
    let stat = place.run("stat demo");
    assert!(stat.code == 0 && stat.err.contains("some trees are not counted"), "{}", stat.err);
}

#[test]
fn a_log_directory_of_its_own_is_named_at_each_call() {
    let place = Place::new();
    place.good("create demo fruit --log-dir fast/log");
    place.good("put demo fruit apple red --log-dir fast/log");
    assert_eq!(place.good("get demo fruit apple --log-dir fast/log"), "red\n");
    let segments = |dir: &str| {
        let names = std::fs::read_dir(place.path(dir)).map(|entries| entries.map(|entry| entry.expect("entry").path()));
        names.map_or(0, |names| names.filter(|name| name.extension().is_some_and(|end| end == "log")).count())
    };
    assert!(segments("fast/log") > 0 && segments("demo/log") == 0);
    assert!(place.good("check demo --log-dir fast/log").starts_with("sound"));
    assert!(place.good("log demo --log-dir fast/log").contains("key=apple"));
    assert!(place.good("salvage demo rescued --log-dir fast/log").contains("rescued 1 row"));
    // The log of another database, a directory without one, and none at all.
    place.good("create other fruit --log-dir other/log");
    std::fs::create_dir(place.path("bare")).expect("directory");
    for (named, says) in [
        (" --log-dir other/log", "belongs to another database"),
        (" --log-dir bare", "the log is missing"),
        ("", "the log is missing"),
    ] {
        place.run(&format!("get demo fruit apple{named}")).failed(21, &[says]);
        place.run(&format!("put demo fruit pear green{named}")).failed(21, &[says]);
        let said = place.run(&format!("check demo{named}"));
        assert!(said.code == 1 && said.out.contains(says), "{}{}", said.out, said.err);
    }
    assert_eq!((segments("bare"), segments("demo/log")), (0, 0));
    assert_eq!(place.good("scan demo fruit --log-dir fast/log"), "apple\tred\n");
    assert_eq!(place.good("scan other fruit --log-dir other/log"), "");
}

#[test]
fn the_pulled_plug_loses_nothing() {
    let place = Place::new();
    let said = place.run("plug --rows 30K --memory 32M --rate max,4000 --seconds 0.5 --results plug");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert_eq!(said.out.matches("all there").count(), 2, "{}", said.out);
    assert!(said.out.contains('✖'), "{}", said.out);
    for name in ["plug.svg", "plug.json", "plug.txt"] {
        assert!(place.path("plug").join(name).is_file(), "{name}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path("plug").join("plug.json")).expect("read")).expect("JSON");
    assert_eq!((&json["good"], &json["check_findings"]), (&true.into(), &0.into()));
    assert_eq!(std::fs::read_dir(place.path("plug")).expect("list").count(), 3, "the database is gone");
}

#[test]
fn an_output_that_is_no_regular_file_is_written_and_stays_what_it_is() {
    let place = Place::new();
    place.fruit();
    let dump = place.good("dump demo");
    let made = Command::new("mkfifo").arg(place.path("pipe")).status().expect("run mkfifo");
    assert!(made.success());
    let reader = std::thread::spawn({
        let pipe = place.path("pipe");
        move || std::fs::read_to_string(pipe).expect("read the pipe")
    });
    place.good("dump demo --output pipe");
    let is_pipe = std::fs::metadata(place.path("pipe")).expect("stat").file_type().is_fifo();
    assert!(is_pipe, "the pipe has become a file");
    assert_eq!(reader.join().expect("reader"), dump);
    for name in ["/dev/stdout", "/dev/fd/1"] {
        assert_eq!(place.good(&format!("dump demo --output {name}")), dump);
    }
    place.run("dump demo --output demo").failed(4, &["demo", "directory"]);
    // By a link to a file, and by one to where none is yet.
    std::fs::create_dir(place.path("dumps")).expect("directory");
    std::fs::write(place.path("dumps/old"), "old").expect("write");
    std::fs::set_permissions(place.path("dumps/old"), Permissions::from_mode(0o600)).expect("mode");
    for name in ["old", "new"] {
        let link = place.path(&format!("link-{name}"));
        std::os::unix::fs::symlink(format!("dumps/{name}"), &link).expect("link");
        place.good(&format!("dump demo --output link-{name}"));
        assert!(link.is_symlink(), "{name}");
        assert_eq!(std::fs::read_to_string(place.path("dumps").join(name)).expect("read"), dump);
    }
    let mode = std::fs::metadata(place.path("dumps/old")).expect("stat").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "what was private is not");
    assert_eq!(std::fs::read_dir(place.path("dumps")).expect("list").count(), 2);
}

#[test]
fn a_dump_with_something_behind_its_end_is_refused() {
    let place = Place::new();
    place.fruit();
    let dump = place.good("dump demo");
    let lines = dump.lines().count();
    for rest in [dump.as_str(), "\n", "x"] {
        let said = place.run_on("load copy --create", format!("{dump}{rest}").as_bytes());
        let line = format!("line {}", lines + 1);
        said.failed(3, &["standard input", &line, "ended on the line before", "rows loaded before it: 0"]);
        assert_eq!(place.good("scan copy fruit --count"), "0\n");
    }
    assert_eq!(place.run_on("load copy --create", dump.as_bytes()).code, 0);
}

#[test]
fn a_dump_with_other_line_ends_is_refused() {
    let place = Place::new();
    place.fruit();
    let dump = place.good("dump demo").replace('\n', "\r\n");
    place.run_on("load copy --create", dump.as_bytes()).failed(3, &["line 2", "\\r", "CRLF"]);
    let row = b"frond-dump 1\ntree\tt\tnone\t\na\tb\r\nend rows=1\n";
    place.run_on("load copy --create", row).failed(3, &["line 3", "CRLF", "rows loaded before it: 0"]);
}

#[test]
fn a_dump_says_that_it_leaves_prepared_transactions_out() {
    let place = Place::new();
    place.fruit();
    let dump = place.run("dump demo");
    assert_eq!((dump.code, dump.err.as_str()), (0, ""));
    let options = || fronddb::Options::new().memory_bytes(16 << 20);
    let db = fronddb::Database::open(place.path("demo"), options()).expect("open");
    let fruit = db.open_tree("fruit").expect("tree");
    let txn = db.begin(fronddb::TxnOptions::default()).expect("begin");
    txn.put(&fruit, b"date", b"brown").expect("put");
    txn.prepare(b"xid").expect("prepare");
    db.close().expect("close");
    let said = place.run("dump demo");
    assert_eq!((said.code, said.out), (0, dump.out));
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(said.err.contains("prepared transactions") && said.err.contains("count=1"), "{}", said.err);
    let db = fronddb::Database::open(place.path("demo"), options()).expect("open");
    db.commit_prepared(b"xid").expect("commit");
    db.close().expect("close");
    assert!(place.good("dump demo").contains("date\tbrown\n"));
}

#[test]
fn who_may_only_read_may_look() {
    const NOBODY: u32 = 65_534;
    let place = Place::new();
    stored(&place);
    // Where it was built others may not even look.
    let tool = place.path("frond");
    std::fs::copy(env!("CARGO_BIN_EXE_frond"), &tool).expect("copy");
    let modes = |mode| {
        let names = ["demo", "demo/log", "."].map(|name| place.path(name));
        names.iter().for_each(|name| std::fs::set_permissions(name, Permissions::from_mode(mode)).expect("mode"));
    };
    for file in ["LOCK", "data.frond"] {
        let path = place.path("demo").join(file);
        std::fs::set_permissions(path, Permissions::from_mode(0o444)).expect("mode");
    }
    for entry in std::fs::read_dir(place.path("demo/log")).expect("list") {
        std::fs::set_permissions(entry.expect("entry").path(), Permissions::from_mode(0o444)).expect("mode");
    }
    modes(0o555);
    // Root may write in spite of all modes.
    let is_root = std::fs::metadata(place.dir.path()).expect("stat").uid() == 0;
    let look = |line: &str| {
        let mut command = Command::new(&tool);
        command.args(line.split_whitespace()).current_dir(place.dir.path()).stdin(Stdio::null());
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        Said::from(command.output().expect("run frond"))
    };
    for line in ["check demo", "dump demo", "scan demo left --count", "stat demo", "log demo", "check demo --json"] {
        let said = look(line);
        assert_eq!(said.code, 0, "frond {line}: {}", said.err);
    }
    // Whoever writes is refused, also while somebody only looks; and without the file to lock nobody looks.
    let said = look("put demo left a b");
    assert_ne!(said.code, 0, "{}", said.out);
    let held =
        fronddb::Database::open(place.path("demo"), fronddb::Options::new().memory_bytes(16 << 20).read_only(true))
            .expect("open");
    look("check demo").failed(18, &["already open"]);
    held.close().expect("close");
    modes(0o755);
    std::fs::remove_file(place.path("demo/LOCK")).expect("remove");
    modes(0o555);
    look("check demo").failed(20, &["LOCK"]);
    modes(0o755);
}
