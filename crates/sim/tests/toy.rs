//! The worth of a plan: a model that runs on the bytes which it moved gives the logits of one
//! that never moved anything, bit for bit.
//!
//! The source's memory is full of another request's numbers, the target's of NaN. A byte that is
//! missing, misplaced, of another token, head or layer, or not zeroed where it is masked, shows
//! in the logits.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Instant;

mod toy {
    pub mod lengths;
    pub mod models;
    pub mod mutants;
    pub mod pairs;
    pub mod play;
    pub mod random;
}

use toy::mutants;
use toy::pairs::{ALL, Pair, of};
use toy::play::{Case, Hit, Pairing, Tally, Truth, pair};
use toy::random;

/// Runs all pairs of some models. Not a print: the line is to stand in the log of a run that
/// passes too.
fn run(models: &[&str]) {
    let (started, mut all, mut pairs) = (Instant::now(), Tally::default(), 0);
    for model in models {
        let truth = Truth::of(model);
        for named in of(&[model]) {
            pairs += 1;
            for back in [1, 0, 3] {
                let tally = pair(&truth, named, back);
                all.lengths += tally.lengths;
                all.cases += tally.cases;
                all.bytes += tally.bytes;
                all.wrong.extend(tally.wrong);
            }
        }
    }
    let line = format!(
        "{models:?}: {pairs} pairs, {} lengths, {} hand-offs, {} bytes, {:?}\n",
        all.lengths,
        all.cases,
        all.bytes,
        started.elapsed()
    );
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let shown = all.wrong.iter().take(12).cloned().collect::<Vec<_>>().join("\n");
    assert!(all.wrong.is_empty(), "{} of {} are wrong:\n{shown}", all.wrong.len(), all.cases);
}

#[test]
fn sixty_pairs_and_more_each_named_once() {
    let names: BTreeSet<_> = ALL.iter().collect();
    assert_eq!(names.len(), ALL.len());
    let shapes: BTreeSet<_> = ALL.iter().map(|pair| (pair.1, pair.2)).collect();
    assert!(shapes.len() >= 60, "{}", shapes.len());
}

#[test]
fn full_windowed_and_chunked_attention_of_six_heads() {
    run(&["six heads"]);
}

#[test]
fn ranks_that_repeat_two_heads() {
    run(&["two heads"]);
}

#[test]
fn three_ranks_and_four() {
    run(&["twelve heads"]);
}

#[test]
fn blocks_of_several_sizes_in_one_model() {
    run(&["two widths"]);
}

#[test]
fn gated_delta_nets_and_convolutions() {
    run(&["delta net"]);
}

#[test]
fn mamba_2() {
    run(&["mamba"]);
}

#[test]
fn latents_and_shares_of_a_sequence() {
    run(&["latent", "latent and delta"]);
}

/// Pairs whose plans are spoilt, with a length at which every group has something to move.
const SPOILT: [(Pair, u64); 8] = [
    (("six heads", "tp1 b16 k8 apart", "tp1 b16 k4 tokens"), 27),
    (("six heads", "tp3 b4 tokens", "tp2 b16 k8 blocks"), 18),
    (("two heads", "tp4 b16 joint", "tp8 b6 blocks"), 22),
    (("two widths", "tp1 b4 joint", "tp2 b8 apart"), 23),
    (("delta net", "tp4 b8 joint", "tp2 pp2 b16 k4 blocks"), 35),
    (("mamba", "tp3 b16 tokens", "tp4 b24 blocks"), 31),
    (("latent", "tp4 cp2 b6 joint", "tp4 cp4 b6 joint"), 32),
    (("latent and delta", "tp4 b16 k8 tokens", "tp1 b16 blocks"), 50),
];

/// The oracle can fail: no copy, and no block of one, is there for nothing. Only where kernel
/// blocks are cut does a copy carry masked tokens alone; not to make it leaves NaN.
#[test]
fn every_mistake_in_a_plan_shows_in_the_logits() {
    let (mut made, mut missed) = (0, Vec::new());
    for (named, tokens) in SPOILT {
        let truth = Truth::of(named.0);
        let mut pairing = Pairing::new(&truth, named);
        let case = Case { tokens, back: 1, hit: Hit::Nothing, ahead: 0 };
        pairing.prefill(&case).unwrap();
        let (target, plans) = pairing.plan(&case).unwrap();
        let right = |plans: &[_]| pairing.answers(&case, target.clone(), plans).is_ok();
        assert!(right(&plans));
        let cut = named.1.contains(" k") || named.2.contains(" k");
        for copy in mutants::of_copies(&plans, &pairing.source.layouts()) {
            let idle = cut && right(&copy.zeroed);
            let mistakes = if idle { &copy.mistakes[..1] } else { &copy.mistakes[..] };
            made += mistakes.len();
            let unseen = mistakes.iter().filter(|(_, wrong)| right(wrong));
            missed.extend(unseen.map(|(what, _)| format!("{named:?}, {}: {what}", copy.name)));
        }
    }
    assert!(missed.is_empty(), "{} of {made} not seen:\n{}", missed.len(), missed.join("\n"));
    assert!(made > 1000, "{made}");
}

/// Source blocks shorter than the target's leave slots that only zeros make harmless.
#[test]
fn kernels_meet_nan_where_nothing_is_zeroed() {
    let named = ("six heads", "tp1 b4 joint", "tp1 b16 apart");
    let truth = Truth::of(named.0);
    let mut pairing = Pairing::new(&truth, named);
    let case = Case { tokens: 22, back: 1, hit: Hit::Nothing, ahead: 0 };
    pairing.prefill(&case).unwrap();
    let (target, plans) = pairing.plan(&case).unwrap();
    let bare = mutants::without_zeros(&plans).unwrap();
    let why = pairing.answers(&case, target, &bare).unwrap_err();
    assert!(why.contains("not a number"), "{why}");
}

/// A source that frees by the prompt's end, not by where the target resumes, lacks a block at
/// certain lengths (vLLM 0.32): these are refused, and no other.
#[test]
fn a_source_that_frees_too_early_is_refused_and_never_wrong() {
    let named = ("six heads", "tp2 b4 joint", "tp1 b8 tokens");
    let truth = Truth::of(named.0);
    let mut pairing = Pairing::new(&truth, named);
    let (window, chunk, block) = (7, 10, 4);
    for tokens in 2..60 {
        let case = Case { tokens, back: 1, hit: Hit::Nothing, ahead: 0 };
        pairing.compute(tokens).unwrap();
        pairing.source.trim(tokens);
        let missed = |first: u64| first / block * block;
        let window_moves =
            tokens >= window && missed(tokens - window + 1) > missed(tokens - window);
        let chunk_ends = tokens % chunk == 0;
        match pairing.case(&case) {
            Ok(_) => assert!(!window_moves && !chunk_ends, "{case}"),
            Err(why) => {
                assert!(window_moves || chunk_ends, "{case}: {why}");
                assert!(why.contains("are needed, the source's table holds"), "{case}: {why}");
            }
        }
    }
}

/// A state that has seen the last token is of no use to an engine that computes it again.
#[test]
fn a_state_of_another_position_is_refused() {
    let named = ("delta net", "tp1 b16 joint", "tp2 b16 joint");
    let truth = Truth::of(named.0);
    let mut pairing = Pairing::new(&truth, named);
    pairing.compute(21).unwrap();
    pairing.source.trim(20);
    let case = Case { tokens: 21, back: 1, hit: Hit::Nothing, ahead: 0 };
    let why = pairing.case(&case).unwrap_err();
    assert!(why.contains("the source's state has seen 21 tokens"), "{why}");
}

/// Shapes beyond those that have a name. All are planned but for one limit.
#[test]
fn pairs_at_random() {
    let (mut seen, mut cases, mut refused, mut wrong) = (0, 0, 0, Vec::new());
    for model in random::MODELS {
        let truth = Truth::of(model);
        for named in random::pairs(model, &truth, random::PAIRS) {
            seen += 1;
            let mut pairing = Pairing::new(&truth, named);
            let limit = random::interleaved(&pairing);
            for case in random::cases(&pairing) {
                cases += 1;
                let result = pairing.prefill(&case).and_then(|()| pairing.case(&case));
                match result {
                    Err(why) if limit && why.contains("unequal interleave") => refused += 1,
                    Ok(_) if !limit => {}
                    other => wrong.push(format!("{named:?}, {case}: {other:?}")),
                }
            }
        }
    }
    let line = format!("at random: {seen} pairs, {cases} hand-offs, {refused} refused\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    let shown = wrong.iter().take(12).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {cases} are wrong:\n{shown}", wrong.len());
}
