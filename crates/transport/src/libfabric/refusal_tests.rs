//! What the engine refuses, and what becomes of it when the fabric refuses.

use std::time::{Duration, Instant};

use super::fake_tests::{CORNER, PATIENCE, Play};
use super::{
    FabricPeer, FenceError, MemoryError, Move, Notice, Outcome, Plan, Work, WorkError, WorkId,
    WorkKind,
};
use crate::bell::Bell;

#[test]
fn names_of_one_fabric_mean_nothing_to_another() {
    let (mut one, mut other) = (Play::new(1), Play::new(1));
    let work = |peer| Work { id: WorkId(9), peer, kind: WorkKind::Read, plan: Plan::new(8) };
    one.engine.submit(work(other.peer));
    let outcome = Outcome::Failed(WorkError::NoPeer);
    assert_eq!(one.notices.take(), [Notice::Ended { id: WorkId(9), outcome }]);
    let memory = other.source.registered.id;
    assert_eq!(one.engine.deregister(memory), Err(MemoryError::Unknown));
    assert_eq!(other.engine.deregister(memory), Ok(()));
}

#[test]
fn a_second_work_of_a_name_is_not_reported_as_the_first() {
    let mut play = Play::new(1);
    play.submit(0);
    play.notices.take();
    play.submit(0);
    assert_eq!(play.notices.take(), []);
}

/// A play whose first work has operations in flight and others that were not posted.
fn under_way() -> Play {
    let mut play = (1..100).map(Play::new).find(|play| play.limit < 20).unwrap();
    let mut plan = Plan::new(play.limit);
    let bytes = Move { local: 0, remote: 0, len: CORNER };
    plan.add(&play.target.registered, play.source.registered.exposed(), bytes).unwrap();
    play.engine.submit(Work { id: WorkId(0), peer: play.peer, kind: WorkKind::Read, plan });
    let waits = (0..PATIENCE).any(|_| {
        play.engine.turn();
        play.engine.fabric.flying() > 0
    });
    assert!(waits && play.engine.is_busy() && play.notices.take().is_empty());
    play
}

fn empty(id: u64, peer: FabricPeer) -> Work {
    Work { id: WorkId(id), peer, kind: WorkKind::Read, plan: Plan::new(8) }
}

#[test]
fn an_endpoint_that_may_still_be_open_is_left_alone_and_its_works_stay() {
    let mut play = under_way();
    let failed = FenceError::StillOpen { why: "busy".to_owned() };
    play.engine.fabric.manners.fence_fails = Some(failed.clone());
    for round in 0..3 {
        assert_eq!(play.engine.fence(), Err(failed.clone()));
        let broken = Notice::Broken { why: "busy".to_owned() };
        let expected = if round == 0 { vec![broken] } else { vec![] };
        assert_eq!(play.notices.take(), expected);
        let flying = play.engine.fabric.flying();
        assert!((0..100).all(|_| !play.engine.turn()));
        assert_eq!((play.engine.fabric.flying(), play.engine.is_busy()), (flying, true));
    }
    // Its memory stays, and nothing new begins.
    let memory = play.target.registered.id;
    assert_eq!(play.engine.deregister(memory), Err(MemoryError::InUse));
    play.engine.submit(empty(1, play.peer));
    let outcome = Outcome::Failed(WorkError::Broken { why: "busy".to_owned() });
    assert_eq!(play.notices.take(), [Notice::Ended { id: WorkId(1), outcome }]);
}

#[test]
fn an_endpoint_that_is_not_opened_anew_has_ended_its_works_and_may_be_later() {
    let mut play = under_way();
    let failed = FenceError::NotReopened { why: "no memory".to_owned() };
    play.engine.fabric.manners.fence_fails = Some(failed.clone());
    assert_eq!(play.engine.fence(), Err(failed));
    let outcome = Outcome::Failed(WorkError::Fenced);
    assert_eq!(play.notices.take(), [Notice::Ended { id: WorkId(0), outcome }]);
    assert!(!play.engine.is_busy() && !play.engine.turn());
    play.engine.submit(empty(1, play.peer));
    let notices = play.notices.take();
    let broken = |notice: &Notice| {
        matches!(notice, Notice::Ended { outcome: Outcome::Failed(WorkError::Broken { .. }), .. })
    };
    assert!(matches!(&notices[..], [notice] if broken(notice)), "{notices:?}");
    play.engine.fence().unwrap();
    let peer = play.engine.insert(b"self").unwrap();
    play.engine.submit(empty(2, peer));
    assert_eq!(play.notices.take(), [Notice::Ended { id: WorkId(2), outcome: Outcome::Done }]);
}

#[test]
fn a_registration_that_does_not_end_is_told_of_and_used_no_more() {
    let mut play = Play::new(1);
    play.engine.fabric.manners.keeps = true;
    let memory = play.target.registered.id;
    let failed = MemoryError::StillOpen { why: "kept".to_owned() };
    assert_eq!(play.engine.deregister(memory), Err(failed));
    assert_eq!(play.engine.deregister(memory), Err(MemoryError::Unknown));
}

#[test]
fn a_broken_endpoint_does_not_keep_the_thread_awake() {
    let (mut play, bell) = (under_way(), Bell::new().unwrap());
    let nap = Duration::from_millis(20);
    assert!(play.engine.sleep(&bell, nap));
    play.engine.fabric.manners.fence_fails = Some(FenceError::StillOpen { why: "busy".to_owned() });
    play.engine.fence().unwrap_err();
    let begun = Instant::now();
    assert!(play.engine.is_broken() && !play.engine.sleep(&bell, nap));
    assert!(begun.elapsed() >= nap / 2, "{:?}", begun.elapsed());
    bell.ring();
    let begun = Instant::now();
    assert!(!play.engine.sleep(&bell, Duration::from_secs(60)));
    assert!(begun.elapsed() < Duration::from_secs(30));
}
