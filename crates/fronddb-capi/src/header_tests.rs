//! Compares `include/frond.h` with this crate: statuses, constants, layouts, functions. What stands twice must not
//! drift.
//!
//! Numbers and layouts are asked of the C compiler, by a program made of the names found in the header.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use engine::ErrorKind;

use crate::types::Layout;

const HEADER: &str = include_str!("../include/frond.h");
const SOURCES: &[&str] = &[
    include_str!("border.rs"),
    include_str!("cursor.rs"),
    include_str!("database.rs"),
    include_str!("fetch.rs"),
    include_str!("monitor.rs"),
    include_str!("options.rs"),
    include_str!("prepared.rs"),
    include_str!("program.rs"),
    include_str!("read.rs"),
    include_str!("statistics.rs"),
    include_str!("transaction.rs"),
    include_str!("tree.rs"),
    include_str!("upkeep.rs"),
    include_str!("write.rs"),
];

/// The header without its comments.
fn code() -> String {
    let mut rest = HEADER;
    let mut code = String::new();
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").expect("comments end").1;
    }
    code + rest
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Runs a C program that includes the header and whose `main` is `body`; its output.
fn run_c(name: &str, body: &str) -> String {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let work = std::env::temp_dir().join(format!("frond-header-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&work).expect("make a directory");
    let (source, program) = (work.join("main.c"), work.join("main"));
    let text = format!("#include <stdio.h>\n#include \"frond.h\"\nint main(void) {{\n{body}return 0;\n}}\n");
    std::fs::write(&source, text).expect("write the program");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let compiled = Command::new(compiler)
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"])
        .arg(directory.join("include"))
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .expect("run the C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().expect("run the program");
    std::fs::remove_dir_all(&work).expect("clean up");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn statuses_and_constants_have_the_same_numbers_on_both_sides() {
    let code = code();
    let mut names = BTreeSet::new();
    for line in code.lines().map(str::trim) {
        let name = line.strip_prefix("#define ").unwrap_or(line).split(|c| !is_word(c)).next().unwrap_or_default();
        let defines = line.starts_with("#define ") && line.len() > "#define ".len() + name.len();
        let enumerates = line.split_once(" = ").is_some_and(|(before, _)| before == name);
        if name.starts_with("FROND_") && name != "FROND_VERSION" && (defines || enumerates) {
            names.insert(name);
        }
    }
    let prints = |name: &&str| format!("printf(\"{name} %lld %d\\n\", (long long)({name}), ({name}) > 0);\n");
    let output = run_c("constants", &names.iter().map(prints).collect::<String>());
    let mut header = BTreeMap::new();
    for line in output.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let number: i64 = words[1].parse().expect("a number");
        let unsigned = number < 0 && words[2] == "1";
        header.insert(words[0].to_owned(), if unsigned { i128::from(number as u64) } else { i128::from(number) });
    }

    let mut crates: BTreeMap<_, _> =
        crate::constants::ALL.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    crates.insert("FROND_OK".to_owned(), 0);
    for kind in ErrorKind::ALL {
        let mut name = "FROND".to_owned();
        for character in format!("{kind:?}").chars() {
            if character.is_uppercase() {
                name.push('_');
            }
            name.push(character.to_ascii_uppercase());
        }
        crates.insert(name, kind as i128);
    }
    assert_eq!(header, crates);
}

#[test]
fn structures_lie_in_memory_alike_on_both_sides() {
    let mut layouts = vec![crate::statistics::statistics_layout()];
    layouts.push(Layout {
        name: "frond_slice",
        bytes: size_of::<crate::border::frond_slice>(),
        fields: vec![
            ("data", std::mem::offset_of!(crate::border::frond_slice, data)),
            ("size", std::mem::offset_of!(crate::border::frond_slice, size)),
        ],
    });
    layouts.extend(crate::types::layouts());
    layouts.extend(crate::options::layouts());
    layouts.extend(crate::prepared::layouts());
    layouts.extend(crate::upkeep::layouts());
    layouts.extend(crate::monitor::layouts());
    layouts.extend(crate::statistics::layouts());
    layouts.sort_by_key(|layout| layout.name);

    let code = code();
    let mut body = String::new();
    let mut structures: Vec<_> = code.split("typedef struct ").skip(1).filter(|text| text.contains('{')).collect();
    structures.retain(|text| text.find('{') < text.find(';'));
    structures.sort();
    for text in structures {
        let (name, rest) = text.split_once(" {").expect("a structure has fields");
        let (fields, _) = rest.split_once('}').expect("a structure ends");
        body += &format!("printf(\"{name} %d\\n\", (int)sizeof({name}));\n");
        for field in fields.split(';').map(str::trim).filter(|field| !field.is_empty()) {
            let field = field.rsplit(|c| !is_word(c)).next().expect("a field has a name");
            body += &format!("printf(\"  {field} %d\\n\", (int)offsetof({name}, {field}));\n");
        }
    }
    let header = run_c("structures", &body);

    let mut crates = String::new();
    for layout in layouts {
        crates += &format!("{} {}\n", layout.name, layout.bytes);
        for (field, offset) in layout.fields {
            crates += &format!("  {field} {offset}\n");
        }
    }
    assert_eq!(header, crates);
}

/// Number of arguments between the first parenthesis of `text` and the one that closes it.
fn count_arguments(text: &str) -> usize {
    let (mut depth, mut arguments, mut word) = (0, 0, String::new());
    for character in text[text.find('(').expect("a parenthesis")..].chars() {
        match character {
            '(' | '<' => depth += 1,
            ')' | '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && character == ',') {
            let trimmed = word.trim_matches(|c: char| c.is_whitespace() || c == '(');
            arguments += usize::from(!trimmed.is_empty() && trimmed != "void");
            word.clear();
        } else {
            word.push(character);
        }
        if depth == 0 {
            break;
        }
    }
    arguments
}

#[test]
fn every_function_is_declared_and_defined_with_as_many_arguments() {
    let code = code();
    let mut declared = BTreeMap::new();
    for statement in code.split(['}', ';', '\n']).map(str::trim).filter(|text| text.contains('(')) {
        let whole = &code[statement.as_ptr() as usize - code.as_ptr() as usize..];
        let name = statement.split('(').next().unwrap_or_default().rsplit(|c| !is_word(c)).next().unwrap_or_default();
        let is_declaration = !statement.starts_with("static ") && !statement.starts_with("typedef ");
        if name.starts_with("frond_") && is_declaration && whole.find(';') < whole.find('{').or(Some(usize::MAX)) {
            declared.insert(name.to_owned(), count_arguments(whole));
        }
    }
    let mut defined = BTreeMap::new();
    for source in SOURCES {
        for text in source.split("extern \"C\" fn ").skip(1) {
            let name = text.split(['(', '<']).next().unwrap_or_default();
            if name.starts_with("frond_") {
                defined.insert(name.to_owned(), count_arguments(text));
            }
        }
        let Some((_, single)) = source.split_once("single_writes! {\n") else { continue };
        for line in single.split('}').next().unwrap_or_default().lines().map(str::trim).filter(|line| !line.is_empty())
        {
            let name = line.split('(').next().unwrap_or_default();
            defined.insert(name.to_owned(), 2 + count_arguments(line));
        }
    }
    assert_eq!(declared, defined);
    assert!(defined.len() > 80, "count={}", defined.len());
}

#[test]
fn the_header_is_of_this_version() {
    assert!(HEADER.contains(&format!("#define FROND_VERSION \"{}\"", env!("CARGO_PKG_VERSION"))));
}
