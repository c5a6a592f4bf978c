//! The sources check themselves: layers, headers, sizes, where unsafe code may stand.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Modules by layer, lowest first; a module may use its own layer's modules only where listed in `BESIDE`.
const LAYERS: &[&[&str]] = &[
    &["base"],
    &["io"],
    &["format", "store", "lock"],
    &["cache", "log"],
    &["memtable", "run"],
    &["tree"],
    &["txn"],
    &["db"],
];

/// Uses inside one layer that are meant.
const BESIDE: &[(&str, &str)] = &[("store", "format")];

/// Files that may hold unsafe code, with the reason in the file.
const UNSAFE: &[&str] = &[
    "base/page_buf.rs",
    "base/pool.rs",
    "base/prefetch.rs",
    "memtable/arena.rs",
    "memtable/leaf.rs",
    "memtable/leaves.rs",
    "memtable/leaves/cursor.rs",
    "memtable/leaves/forget.rs",
    "memtable/node.rs",
    "memtable/sample.rs",
];

/// Lines past which a file must be split. Tests and declarations count.
const LINES_MAX: usize = 620;

fn sources() -> Vec<(String, String)> {
    fn walk(dir: &Path, files: &mut Vec<PathBuf>) {
        let mut entries: Vec<_> =
            fs::read_dir(dir).expect("readable").map(|entry| entry.expect("readable").path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                walk(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&root, &mut files);
    let relative = |path: &PathBuf| path.strip_prefix(&root).expect("inside").to_string_lossy().into_owned();
    files.iter().map(|path| (relative(path), fs::read_to_string(path).expect("readable"))).collect()
}

fn is_test(path: &str) -> bool {
    path.contains("tests") || path.ends_with("_tests.rs")
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

#[test]
fn imports_go_down_only() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let Some((module, _)) = path.split_once('/') else { continue };
        if is_test(&path) {
            continue;
        }
        let own = layer_of(module).unwrap_or_else(|| panic!("{path}: module without a layer"));
        for (number, line) in text.lines().enumerate() {
            let code = line.trim_start();
            if code.starts_with("//") {
                continue;
            }
            if code.starts_with("mod tests") || code.starts_with("#[cfg(test)]") {
                break;
            }
            for part in code.split("crate::").skip(1) {
                let used: String = part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                let Some(layer) = layer_of(&used) else { continue };
                let beside = used == module || BESIDE.contains(&(module, used.as_str()));
                if layer > own || (layer == own && !beside) {
                    wrong.push(format!("{path}:{}: {module} uses {used}", number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the layers:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_opens_with_what_it_is() {
    let bare: Vec<String> =
        sources().into_iter().filter(|(_, text)| !text.starts_with("//!")).map(|(path, _)| path).collect();
    assert!(bare.is_empty(), "files without a header:\n{}", bare.join("\n"));
}

#[test]
fn files_stay_small() {
    let long: Vec<String> = sources()
        .into_iter()
        .filter(|(path, text)| !is_test(path) && text.lines().count() > LINES_MAX)
        .map(|(path, text)| format!("{path}: {} lines", text.lines().count()))
        .collect();
    assert!(long.is_empty(), "files to split:\n{}", long.join("\n"));
}

#[test]
fn unsafe_code_stands_where_it_is_allowed_and_says_why() {
    for (path, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let starts = ["unsafe ", "unsafe{"].iter().any(|word| code.contains(word)) && !code.starts_with("//");
            if !starts || code.contains("unsafe_code") {
                continue;
            }
            assert!(UNSAFE.contains(&path.as_str()), "{path}:{}: unsafe code outside of the list", number + 1);
            let said =
                lines[number.saturating_sub(12)..=number].iter().any(|line| line.to_lowercase().contains("safety"));
            assert!(said, "{path}:{}: unsafe code without a Safety comment", number + 1);
        }
    }
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents: Vec<PathBuf> =
        vec![root.join("README.md"), root.join("CONTRIBUTING.md"), root.join("CHANGELOG.md")];
    for dir in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(root.join(dir)).expect("readable");
        documents.extend(
            entries
                .map(|entry| entry.expect("readable").path())
                .filter(|path| path.extension().is_some_and(|e| e == "md")),
        );
    }
    let mut broken = BTreeMap::new();
    for document in documents.into_iter().filter(|document| document.exists()) {
        let text = fs::read_to_string(&document).expect("readable");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = document.parent().expect("a folder").join(target);
            if !path.exists() {
                broken.insert(format!("{}: {link}", document.display()), ());
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}
