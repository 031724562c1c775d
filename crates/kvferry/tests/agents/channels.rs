//! Which of an agent's control channels counts at P, spoken by hand.

use std::time::Duration;

use crate::common::stranger::{Stranger, handshake};
use crate::common::{P, describe, until};
use kvferry::Config;
use kvferry::connector::codec::BEAT;
use kvferry::connector::handshake::Handshake;
use kvferry::kv_layout::PageOrder;
use serde_json::Value;

/// A prefill engine with one lease, and what an agent by hand has to know.
struct Place {
    p: P,
    ours: Handshake,
    params: Value,
}

impl Place {
    async fn new() -> Self {
        let p = P::start(&Config::default(), PageOrder::Joint).await;
        let (ours, params) = (handshake(&describe(&p.engine)), p.offer(1).await);
        Self { p, ours, params }
    }

    /// One more channel of the agent, over which it has said nothing yet.
    async fn open(&self) -> (Stranger, Handshake) {
        let mut channel = Stranger::connect(self.p.prefill.address()).await;
        let theirs = channel.shake_hands(&self.ours).await;
        (channel, theirs)
    }

    async fn claim_over(&self, (channel, theirs): &mut (Stranger, Handshake)) {
        channel.claim(&self.ours, theirs, &self.params).await;
        self.claims(1).await;
    }

    async fn claims(&self, count: usize) {
        until("claims", || async { self.p.prefill.counts().await.claims == count }).await;
    }
}

/// A decode agent that finds another rank than it looks for gives up the channels that it has
/// opened. They take the place of none, be they hung up or left open.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_used_takes_no_place() {
    let place = Place::new().await;
    let mut used = place.open().await;
    place.claim_over(&mut used).await;
    let mut left_open = Vec::new();
    for turn in 0..10 {
        let channel = place.open().await;
        if turn % 2 == 0 {
            left_open.push(channel);
        }
    }
    // Long enough for the channel to be closed, if it were.
    used.0.hear_beats(2).await;
    assert_eq!(place.p.prefill.counts().await.claims, 1);
}

/// The agent has lost the earlier one, and with it what it claimed there.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_opened_later_takes_the_place() {
    let place = Place::new().await;
    let mut earlier = place.open().await;
    place.claim_over(&mut earlier).await;
    let mut later = place.open().await;
    later.0.say(&BEAT).await;
    earlier.0.hung_up().await;
    place.claims(0).await;
    later.0.hear_beats(2).await;
}

/// Its first byte was on the way for longer than all of the other.
#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_opened_before_does_not() {
    let place = Place::new().await;
    let mut earlier = place.open().await;
    let mut later = place.open().await;
    place.claim_over(&mut later).await;
    earlier.0.say(&BEAT).await;
    earlier.0.hung_up().await;
    later.0.hear_beats(2).await;
    assert_eq!(place.p.prefill.counts().await.claims, 1);
}

/// The agent may greet other ranks meanwhile, which takes its time.
#[tokio::test(flavor = "multi_thread")]
async fn one_may_be_used_late() {
    let place = Place::new().await;
    let mut channel = place.open().await;
    // Longer than any handshake takes.
    tokio::time::sleep(Duration::from_secs(6)).await;
    place.claim_over(&mut channel).await;
}
