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
    include_str!("bulk.rs"),
    include_str!("cursor.rs"),
    include_str!("database.rs"),
    include_str!("fetch.rs"),
    include_str!("monitor.rs"),
    include_str!("offline.rs"),
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
    layouts.extend(crate::bulk::layouts());
    layouts.extend(crate::monitor::layouts());
    layouts.extend(crate::offline::layouts());
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

/// The parts between the first parenthesis of `text` and the one that closes it, and what follows that one.
fn arguments(text: &str) -> (Vec<&str>, &str) {
    let start = text.find('(').expect("a parenthesis") + 1;
    let (mut depth, mut begin, mut parts) = (1, start, Vec::new());
    for (at, character) in text.char_indices().skip_while(|(at, _)| *at < start) {
        match character {
            '(' | '<' => depth += 1,
            ')' | '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 || (depth == 1 && character == ',') {
            parts.push(text[begin..at].trim());
            begin = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    parts.retain(|part| !part.is_empty() && *part != "void");
    (parts, &text[begin..])
}

/// The C type behind a Rust type of a signature, without typedefs of numbers. A database is shared and changes inside:
/// C sees it without `const`, Rust as `&`.
fn c_type(rust: &str) -> String {
    let rust = rust.trim().trim_end_matches(',');
    let inside = |prefix: &str, suffix: &str| rust.strip_prefix(prefix)?.strip_suffix(suffix);
    let after_lifetime = |text: &str| text.strip_prefix("'t ").unwrap_or(text).to_owned();
    if let Some(inner) = inside("Out<'_, ", ">") {
        return c_type(inner) + "*";
    }
    if let Some(inner) = inside("Option<Box<", ">>").or(inside("Box<", ">")).or(inside("*mut ", "")) {
        return c_type(inner) + "*";
    }
    if rust == "Option<&frond_db>" {
        return "frond_db*".to_owned();
    }
    if let Some(inner) = inside("*const ", "").or(inside("Option<&", ">").filter(|inner| !inner.contains("mut "))) {
        return format!("const {}*", c_type(inner));
    }
    if let Some(inner) = inside("Option<&", ">") {
        return c_type(after_lifetime(inner).strip_prefix("mut ").expect("a mutable reference")) + "*";
    }
    match rust.split('<').next().unwrap_or_default() {
        "u8" => "uint8_t",
        "u32" => "uint32_t",
        "i32" | "Status" => "int32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "usize" => "size_t",
        "c_char" => "char",
        "c_void" | "()" => "void",
        "Bytes" => "frond_slice",
        "Text" => "const char*",
        same => same,
    }
    .rsplit("::")
    .next()
    .unwrap_or_default()
    .replace("c_char", "char")
}

/// A declaration of the header as a Rust signature would say it.
fn declared(code: &str) -> BTreeMap<String, String> {
    let mut numbers = BTreeMap::new();
    for line in code.lines().filter_map(|line| line.strip_prefix("typedef ")) {
        if let Some((number, name)) = line.trim_end().trim_end_matches(';').split_once("int32_t ") {
            numbers.insert(name, format!("{number}int32_t"));
        }
    }
    let plain = |text: &str| {
        let compact = text.split_whitespace().collect::<Vec<_>>().join(" ").replace(" *", "*");
        let (constant, rest) = compact.strip_prefix("const ").map_or(("", &*compact), |rest| ("const ", rest));
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let name = numbers.get(&rest[..end]).map_or(&rest[..end], String::as_str);
        format!("{constant}{name}{}", &rest[end..])
    };
    let mut found = BTreeMap::new();
    for statement in code.split(['}', ';', '{']).map(str::trim).filter(|text| text.contains('(')) {
        let statement = statement.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        let statement = statement.trim();
        let (before, _) = statement.split_once('(').unwrap_or_default();
        let name = before.rsplit(|c| !is_word(c)).next().unwrap_or_default();
        let at_start = statement.starts_with(|c: char| c.is_ascii_lowercase());
        if !name.starts_with("frond_") || !at_start || ["static ", "typedef "].iter().any(|s| statement.starts_with(s))
        {
            continue;
        }
        let types = arguments(statement).0.into_iter().map(|argument| {
            plain(
                argument.strip_suffix(argument.rsplit(|c| !is_word(c)).next().unwrap_or_default()).unwrap_or(argument),
            )
        });
        let types: Vec<_> = types.map(|text| text.trim().to_owned()).collect();
        let answer = plain(before.strip_suffix(name).unwrap_or_default());
        found.insert(name.to_owned(), format!("{}({})", answer.trim(), types.join(", ")));
    }
    found
}

#[test]
fn every_function_is_declared_as_it_is_defined() {
    let mut defined = BTreeMap::new();
    for source in SOURCES {
        for text in source.split("extern \"C\" fn ").skip(1).filter(|text| text.starts_with("frond_")) {
            let name = text.split(['(', '<']).next().unwrap_or_default();
            let (parts, rest) = arguments(text.trim_start_matches(is_word).trim_start_matches("<'t>"));
            let answer = rest.split('{').next().unwrap_or_default().trim().strip_prefix("-> ").unwrap_or("()");
            let types = parts.iter().map(|part| c_type(part.split_once(": ").expect("a type").1));
            defined.insert(name.to_owned(), format!("{}({})", c_type(answer), types.collect::<Vec<_>>().join(", ")));
        }
        let Some((_, single)) = source.split_once("single_writes! {\n") else { continue };
        for line in single.split('}').next().unwrap_or_default().lines().map(str::trim) {
            let Some((name, payload)) = line.split_once('(') else { continue };
            let mut signature = "int32_t(frond_txn*, const frond_tree*, frond_slice".to_owned();
            signature += if payload.contains(',') { ", frond_slice)" } else { ")" };
            defined.insert(name.to_owned(), signature);
        }
    }
    let declared = declared(&code());
    for name in declared.keys().chain(defined.keys()) {
        assert_eq!(declared.get(name), defined.get(name), "{name}: header left, crate right");
    }
    assert!(defined.len() > 80, "count={}", defined.len());
}

#[test]
fn the_header_is_of_this_version() {
    assert!(HEADER.contains(&format!("#define FROND_VERSION \"{}\"", env!("CARGO_PKG_VERSION"))));
}
