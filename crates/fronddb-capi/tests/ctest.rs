//! Builds the C test program in `ctest/` against the static library, warnings as errors and with the address
//! sanitizer where there is one, and runs each of its groups; also against the shared library, and the header as C++.
//!
//! Uses `cc` and `c++`, or what `CC` and `CXX` name. Without a C++ compiler that one test says so and passes.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const WARNINGS: [&str; 6] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion"];
/// What the static library needs of the system, as `rustc --print native-static-libs` says.
const SYSTEM_LIBRARIES: &[&str] =
    if cfg!(target_os = "linux") { &["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"] } else { &["-lm"] };

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn compiler(variable: &str, default: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| default.to_owned())
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"))
}

fn expect_success(command: &mut Command) -> Output {
    let output = run(command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}{}", text(&output.stdout), text(&output.stderr));
    output
}

/// Where this profile's libraries are; builds them first, in case only the tests were asked for.
fn libraries() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let program = std::env::current_exe().expect("the path of this test");
        let directory = program.ancestors().nth(2).expect("target/PROFILE/deps/ctest").to_owned();
        let target = directory.parent().expect("target/PROFILE");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "fronddb-capi", "--target-dir"]).arg(target);
        if directory.file_name() == Some(OsStr::new("release")) {
            cargo.arg("--release");
        }
        expect_success(cargo.current_dir(package()));
        directory
    })
}

/// A directory for one test, empty, removed at the end.
struct Work(PathBuf);

impl Work {
    fn new(name: &str) -> Work {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ctest-{name}"));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("make a directory");
        Work(path)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

fn compile(program: &Path, options: &[&str], link: &[&OsStr]) -> Command {
    let mut sources: Vec<PathBuf> = std::fs::read_dir(package().join("ctest"))
        .expect("ctest/")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension() == Some(OsStr::new("c")))
        .collect();
    sources.sort();
    let mut command = Command::new(compiler("CC", "cc"));
    command.args(["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-g", "-O1"]).args(WARNINGS).args(options);
    command.arg("-I").arg(package().join("include")).args(sources).arg("-o").arg(program);
    command.args(link).args(SYSTEM_LIBRARIES);
    command
}

/// The program, linked with the static library; with sanitizers if the compiler has them.
fn static_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let library = libraries().join("libfronddb.a");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ctest-static");
        let probe = program.with_extension("probe.c");
        std::fs::write(&probe, "int main(void) { return 0; }\n").expect("write");
        let sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"];
        let mut try_them = Command::new(compiler("CC", "cc"));
        try_them.args(sanitizers).arg(&probe).arg("-o").arg(probe.with_extension("out"));
        let sanitized = run(&mut try_them).status.success();
        println!("sanitizers: {}", if sanitized { "address, undefined" } else { "none on this machine" });
        let options = if sanitized { &sanitizers[..] } else { &[] };
        expect_success(&mut compile(&program, options, &[library.as_os_str()]));
        program
    })
}

fn run_group(group: &str) {
    let work = Work::new(group);
    let output = expect_success(Command::new(static_program()).arg(&work.0).arg(group));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("ok {group}\n"));
}

macro_rules! groups {
    ($($name:ident: $group:literal;)*) => {
        $(#[test]
        fn $name() {
            run_group($group);
        })*
    };
}

groups! {
    wrong_arguments_are_statuses: "arguments";
    rows_are_written_and_read: "rows";
    cursors_move_and_fetch: "cursors";
    transactions_isolate_and_undo: "transactions";
    locks_wait_end_and_deadlock: "locks";
    many_threads_share_a_database: "threads";
    a_database_opens_again: "recovery";
    the_inside_can_be_watched: "inside";
    options_do_what_they_say: "options";
    bad_days_are_statuses: "bad_days";
}

#[test]
fn the_shared_library_exports_everything() {
    let directory = libraries();
    let work = Work::new("shared");
    let program = work.0.join("program");
    let path = directory.to_str().expect("UTF-8");
    // Programs look for the library by the name in it, which an installation provides.
    #[cfg(target_os = "linux")]
    std::os::unix::fs::symlink(directory.join("libfronddb.so"), work.0.join("libfronddb.so.0")).expect("link");
    let (search, remember) = (format!("-L{path}"), format!("-Wl,-rpath,{}", work.0.display()));
    expect_success(&mut compile(&program, &[], &[search.as_ref(), remember.as_ref(), "-lfronddb".as_ref()]));
    expect_success(Command::new(&program).arg(&work.0).arg("arguments"));
}

#[test]
#[cfg(target_os = "linux")]
fn the_shared_library_has_a_name_and_exports_nothing_else() {
    let library = libraries().join("libfronddb.so");
    let dynamic = expect_success(Command::new("objdump").arg("-p").arg(&library));
    assert!(String::from_utf8_lossy(&dynamic.stdout).contains("SONAME               libfronddb.so.0"));
    let symbols = expect_success(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert!(names.len() > 100 && names.contains(&"frond_db_open"));
    let foreign: Vec<&&str> = names.iter().filter(|name| !name.starts_with("frond_")).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn the_example_of_the_guide_does_what_the_guide_says() {
    let guide = std::fs::read_to_string(package().join("../../docs/c-api.md")).expect("docs/c-api.md");
    let block = |kind: &str| {
        let (_, rest) = guide.split_once(&format!("\n```{kind}\n")).expect("the block begins");
        rest.split_once("```").expect("the block ends").0
    };
    let work = Work::new("guide");
    let (source, program) = (work.0.join("example.c"), work.0.join("example"));
    std::fs::write(&source, block("c")).expect("write");
    let mut command = Command::new(compiler("CC", "cc"));
    command.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]).arg(package().join("include"));
    command.arg(&source).arg(libraries().join("libfronddb.a")).args(SYSTEM_LIBRARIES).arg("-o").arg(&program);
    expect_success(&mut command);
    let output = expect_success(Command::new(&program).arg(work.0.join("bank")));
    assert_eq!(String::from_utf8_lossy(&output.stdout), block("text"));
}

#[test]
fn the_header_is_clean_cpp() {
    let compiler = compiler("CXX", "c++");
    if Command::new(&compiler).arg("--version").output().is_err() {
        println!("no C++ compiler called {compiler}: not tried");
        return;
    }
    let mut command = Command::new(compiler);
    command.args(["-std=c++11", "-Wold-style-cast", "-Wzero-as-null-pointer-constant"]).args(WARNINGS);
    command.args(["-fsyntax-only", "-I"]).arg(package().join("include")).arg(package().join("ctest/header.cc"));
    expect_success(&mut command);
}
