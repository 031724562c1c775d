//! What a step costs in which nothing happens.

use allocation_counter::measure;

use super::scheduler::scheduler;
use super::support::*;
use crate::*;

#[test]
fn a_worker_with_nothing_to_do_allocates_nothing() {
    let mut p = worker(P, 0);
    let mut d = worker(D, 0);
    for nonce in 0..1000 {
        p.handle(secs(0), Input::Lease(lease(nonce)));
        let (claim, prompt, address) = (claim_of(nonce, D), prompt(), address(1));
        d.handle(secs(0), Input::Fetch(Fetch { claim, shared: None, prompt, address }));
    }
    actions(&mut d);
    let idle = measure(|| {
        for worker in [&mut p, &mut d] {
            worker.handle_timeout(secs(1));
            assert_eq!(worker.poll_action(), None);
            assert_eq!(worker.poll_event(), None);
            assert!(worker.poll_timeout().is_some());
        }
    });
    assert_eq!(idle.count_total, 0);
}

#[test]
fn a_scheduler_with_nothing_to_do_allocates_nothing() {
    let mut d = scheduler(2);
    for number in 0..10_000 {
        let request = request(&format!("answer {number}"));
        let claim = ClaimId { request, ..claim_of(number, P) };
        d.fetch(RemotePrefill { claim, address: address(1), tokens: 3 }, prompt()).unwrap();
    }
    while d.poll_order().is_some() {}
    let idle = measure(|| {
        assert_eq!(d.poll_order(), None);
        assert_eq!(d.poll_outcome(), None);
    });
    assert_eq!((idle.count_total, d.requests()), (0, 10_000));
}
