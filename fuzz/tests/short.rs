//! Every target over its kept corpus, and a short run from there; and that both would find a
//! fault.

// Clippy allows a panic in test functions, not in their helpers.
#![allow(clippy::unwrap_used)]
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use fuzz::short::{MAX_INPUT, holds, search};
use fuzz::{TARGETS, Target, allowance};

/// Inputs of a short run for each target, some seconds for all of them.
const RUNS: usize = 2_000;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The kept inputs of a target by file, in an order that is the same everywhere.
fn kept(target: Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = corpus().join(target.name);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), std::fs::read(file).unwrap())).collect()
}

fn replay(target: Target, file: &Path) -> String {
    format!("cargo run -p fuzz --bin replay -- {} {}", target.name, file.display())
}

#[test]
fn kept_inputs_break_no_promise() {
    for target in TARGETS {
        for (file, input) in kept(target) {
            assert!(holds(target, &input), "to replay: {}", replay(target, &file));
        }
    }
}

/// `KVFERRY_FUZZ_SEED` asks for another run than the usual one.
#[test]
fn inputs_made_from_the_kept_ones_break_no_promise() {
    let asked = std::env::var("KVFERRY_FUZZ_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = asked.unwrap_or(1);
    println!("KVFERRY_FUZZ_SEED={seed}");
    for target in TARGETS {
        let inputs: Vec<Vec<u8>> = kept(target).into_iter().map(|(_, input)| input).collect();
        if let Some(input) = search(target, &inputs, seed, RUNS) {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(target.name);
            std::fs::write(&file, input).unwrap();
            panic!("seed {seed}; to replay: {}", replay(target, &file));
        }
    }
}

#[test]
fn each_target_has_a_small_corpus_and_each_corpus_a_target() {
    let mut folders: Vec<String> = std::fs::read_dir(corpus())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut names = TARGETS.map(|target| target.name.to_owned());
    folders.sort();
    names.sort();
    assert_eq!(folders, names);
    for target in TARGETS {
        let kept = kept(target);
        assert!((1..=400).contains(&kept.len()), "{}: {} inputs", target.name, kept.len());
        assert!(kept.iter().all(|(_, input)| input.len() <= MAX_INPUT), "{}", target.name);
    }
}

#[test]
fn a_planted_panic_is_found_and_found_again() {
    let run = |input: &[u8]| assert!(!input.ends_with(&[7]), "planted");
    let planted = Target { name: "planted", run };
    let found = search(planted, &[vec![1, 2, 3]], 1, RUNS).unwrap();
    assert_eq!(found.last(), Some(&7));
    assert!(!holds(planted, &found));
    assert_eq!(search(planted, &[vec![1, 2, 3]], 1, RUNS), Some(found));
}

#[test]
fn a_planted_allocation_is_found() {
    // The input says how many bytes it wants: a kibibyte for each that it has is too much.
    let run = |input: &[u8]| {
        let wanted = input.first().map_or(0, |&first| usize::from(first) << 10);
        let allowed = allowance::of(input.len(), 1 << 10);
        allowance::within(allowed, "planted", || std::hint::black_box(vec![0_u8; wanted]));
    };
    let planted = Target { name: "planted", run };
    assert!(holds(planted, &[17]));
    assert!(!holds(planted, &[18]));
    assert!(holds(planted, &[18, 0]));
    assert!(search(planted, &[], 1, RUNS).is_some());
}
