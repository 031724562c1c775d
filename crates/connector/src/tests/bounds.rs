use super::support::{P, secs};
use crate::{Bounds, Rank, Time, Worker};

#[test]
fn bounds_that_cannot_work() {
    let refused = |change: fn(&mut Bounds)| {
        let mut bounds = Bounds::default();
        change(&mut bounds);
        Worker::new(P, Rank(0), bounds, [0; 32]).map(drop).map_err(|e| e.to_string())
    };
    let order = |short: &str, long: &str| Err(format!("`{short}` must be shorter than `{long}`"));
    assert_eq!(refused(|_| ()), Ok(()));
    assert_eq!(
        refused(|b| b.pending = Time::ZERO),
        Err("`pending` must be longer than zero".into())
    );
    assert_eq!(refused(|b| b.renew_every = secs(20)), order("renew_every", "claim_life"));
    assert_eq!(refused(|b| b.claim_life = secs(600)), order("claim_life", "oldest"));
    assert_eq!(refused(|b| b.unclaimed = secs(601)), order("unclaimed", "oldest"));
    assert_eq!(refused(|b| b.answer = secs(2)), order("pending", "answer"));
    assert_eq!(refused(|b| b.oldest = secs(86_400)), Ok(()));
    assert_eq!(refused(|b| b.oldest = secs(86_401)), Err("`oldest` must be a day at most".into()));
    assert_eq!(refused(|b| b.answer = Time::MAX), Err("`answer` must be a day at most".into()));
}
