//! Every fuzz target of the tool takes every file of its seed corpus, and simple damage to it.

use std::fs;
use std::path::{Path, PathBuf};

use frond_tool::decoders::TARGETS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

#[test]
fn every_target_takes_every_seed_and_damaged_ones() {
    for (name, target) in TARGETS {
        let files: Vec<PathBuf> = fs::read_dir(fuzz().join("corpus").join(name))
            .expect("seeds")
            .map(|entry| entry.expect("a seed").path())
            .collect();
        assert!(files.len() > 1, "target {name} has no seeds");
        for file in files {
            let seed = fs::read(&file).expect("read");
            target(&seed);
            for at in 0..seed.len() {
                target(&seed[..at]);
                for byte in [0, b'\t', b'\n', b'"', b',', b'\\', b'x', 0x80, 0xc3, 0xff] {
                    let mut changed = seed.clone();
                    changed[at] = byte;
                    target(&changed);
                    let mut longer = seed.clone();
                    longer.insert(at, byte);
                    target(&longer);
                }
            }
        }
    }
}

#[test]
fn every_target_is_one_of_the_fuzzing_workspace() {
    for (name, _) in TARGETS {
        let path = fuzz().join(format!("fuzz_targets/{name}.rs"));
        assert!(fs::read_to_string(path).expect("a target").contains(&format!("decoders::{name}(")));
    }
}
