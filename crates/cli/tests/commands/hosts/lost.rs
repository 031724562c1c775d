//! A side that is gone: the other one says so within seconds, and no process stays.

use std::thread;
use std::time::{Duration, Instant};

use super::{ENDLESS, prefill, role, two};
use crate::common::processes::{is_worker, kill, rank_of, stop, wait};
use crate::common::{Running, SECRET, Said, start, with_secrets};

/// Both sides in the midst of a run without end, and all of its ranks.
fn endless(folder: &tempfile::TempDir) -> ([Running; 2], Vec<u32>) {
    let (p, address) = prefill(folder.path(), &two(&SECRET));
    let connect = ["--connect", &address, "--decode-tp", "2", "--tokens", "200"];
    let more = [&connect[..], &ENDLESS, &SECRET].concat();
    let d = start(folder.path(), &role("full.json", "decode", &more));
    let of = |parent: &Running, side| [0, 1].map(|rank| rank_of(parent.child.id(), side, rank));
    let ranks = [of(&p, "prefill"), of(&d, "decode")].concat();
    thread::sleep(Duration::from_millis(500));
    ([p, d], ranks)
}

fn one_line(said: &Said, error: &str) {
    assert!(said.stderr.starts_with(&format!("error: {error}")), "{}", said.stderr);
    assert_eq!((said.stderr.lines().count(), said.code), (1, Some(5)), "{}", said.stderr);
}

fn all_end(ranks: &[u32]) {
    wait("the end of all ranks", || (!ranks.iter().any(|&id| is_worker(id))).then_some(()));
}

#[test]
fn a_parent_that_is_killed() {
    let folder = with_secrets();
    for (victim, lost) in [(0, "the prefill host is lost: "), (1, "the decode host is lost: ")] {
        let (mut sides, ranks) = endless(&folder);
        let killed = Instant::now();
        kill(sides[victim].child.id());
        let [p, d] = sides.each_mut();
        let _ = if victim == 0 { p.child.wait() } else { d.child.wait() };
        let [p, d] = sides;
        let survivor = if victim == 0 { d } else { p };
        one_line(&survivor.end(), lost);
        assert!(killed.elapsed() < Duration::from_secs(10));
        all_end(&ranks);
    }
}

/// A parent that is there and says nothing is as good as gone. What the decode side sees as a
/// rank that is lost, the prefill side looks into.
#[test]
fn a_process_that_hangs() {
    let folder = with_secrets();
    let hang = |victim: &dyn Fn(&[Running; 2], &[u32]) -> u32| {
        let (sides, ranks) = endless(&folder);
        let hanging = victim(&sides, &ranks);
        stop(hanging);
        (sides, ranks, hanging)
    };
    // All wait at the same time.
    let ([p, d], p_ranks, p_hangs) = hang(&|sides, _| sides[0].child.id());
    let ([other_p, other_d], d_ranks, d_hangs) = hang(&|sides, _| sides[1].child.id());
    let ([third_p, third_d], ranks, _) = hang(&|_, ranks| ranks[1]);
    one_line(&d.end(), "the prefill host does not answer: no word in 30 s\n");
    one_line(&other_p.end(), "the decode host does not answer: no word in 30 s\n");
    one_line(&third_d.end(), "");
    one_line(&third_p.end(), "prefill rank 1 does not answer: no word in ");
    for (hanging, id) in [(p, p_hangs), (other_d, d_hangs)] {
        kill(id);
        hanging.end();
    }
    all_end(&[p_ranks, d_ranks, ranks].concat());
}

/// The parent of a rank that is gone tells the other one.
#[test]
fn a_rank_that_is_killed() {
    let folder = with_secrets();
    for (victim, side) in [(1, "prefill"), (3, "decode")] {
        let ([p, d], ranks) = endless(&folder);
        let killed = Instant::now();
        kill(ranks[victim]);
        let here = format!("{side} rank 1 is lost: it ended without a word\n");
        let there = format!("on the {side} host: {here}");
        let [p_error, d_error] = if side == "prefill" { [&here, &there] } else { [&there, &here] };
        one_line(&d.end(), d_error);
        one_line(&p.end(), p_error);
        assert!(killed.elapsed() < Duration::from_secs(10));
        all_end(&ranks);
    }
}

/// A prefill side that has nobody to serve yet needs its ranks all the same.
#[test]
fn a_rank_that_is_killed_before_anybody_has_come() {
    let folder = with_secrets();
    let (p, _) = prefill(folder.path(), &two(&SECRET));
    kill(rank_of(p.child.id(), "prefill", 0));
    let said = p.end();
    one_line(&said, "prefill rank 0 is lost: it ended without a word\n");
}
