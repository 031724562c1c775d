//! Ranks that are led by the orders of a scheduler in another process: what they say to each
//! other crosses as JSON.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{RESUME, TOKENS, live, prompt, until, within};
use crate::ranks::{described, model, ranks_of, tensor};
use kvferry::connector::params::Address;
use kvferry::connector::{
    Allocation, ClaimId, EngineEpoch, Failure, Finished, Lease, LeaseId, Nonce, Order, Outcome,
    Rank, RequestId, Scheduler, Why, Word,
};
use kvferry::kv_layout::{BlockTable, Kind};
use kvferry::{Config, Part, WorkerDriver};
use serde_json::Value;

struct Led {
    engines: Vec<Arc<sim::Engine>>,
    ranks: Vec<WorkerDriver>,
    scheduler: Scheduler,
    /// Bytes that requests moved, and what their failures say.
    moved: u64,
    messages: Vec<String>,
}

impl Led {
    async fn start(epoch: u64, ways: u32, part: Part) -> Self {
        let engines = ranks_of(&model(), tensor(ways), epoch);
        let mut ranks = Vec::new();
        for engine in described(&engines, epoch) {
            ranks.push(WorkerDriver::start(&Config::default(), &engine, part).await.unwrap());
        }
        let mut addresses = ranks.iter().filter_map(|rank| rank.advertised().cloned());
        let scheduler = match addresses.next() {
            Some(first) => {
                let (engine_id, others) = ("led".into(), addresses.collect());
                let address = Address { engine_id, tp_size: ways, first, others };
                Scheduler::new(EngineEpoch(epoch), address).unwrap()
            }
            None => Scheduler::of_decode(EngineEpoch(epoch), ways),
        };
        Self { engines, ranks, scheduler, moved: 0, messages: Vec::new() }
    }

    /// One step of an engine: orders down, words up.
    fn step(&mut self) {
        let orders: Vec<_> = std::iter::from_fn(|| self.scheduler.poll_order()).collect();
        let carried = serde_json::to_vec(&orders).unwrap();
        for (index, rank) in (0..).zip(&self.ranks) {
            let orders: Vec<Order> = serde_json::from_slice(&carried).unwrap();
            orders.into_iter().for_each(|order| rank.follow(order));
            for report in rank.reports() {
                match report.load.map(|load| load.outcome) {
                    Some(Ok(bytes)) => self.moved += bytes,
                    Some(Err(why)) => self.messages.push(why.to_string()),
                    None => {}
                }
                let word = serde_json::to_vec(&report.word).unwrap();
                let word: Word = serde_json::from_slice(&word).unwrap();
                self.scheduler.hear(Rank(index), word);
            }
        }
    }

    /// The same blocks on every rank, as engines have whose ranks share block ids.
    fn allocate(&self) -> Vec<BlockTable> {
        let tables: Vec<_> =
            self.engines.iter().map(|engine| engine.allocate(TOKENS, RESUME).unwrap()).collect();
        assert!(tables.iter().all(|table| *table == tables[0]));
        tables.into_iter().next().unwrap()
    }

    fn retire(&self, tables: &[BlockTable]) {
        self.engines.iter().for_each(|engine| engine.retire(tables));
    }

    fn offer(&mut self, request: u64) -> (Value, Vec<BlockTable>) {
        let tables = self.allocate();
        self.engines.iter().for_each(|engine| engine.prefill(request, TOKENS, &tables));
        let finished = Finished {
            request: name(),
            nonce: Nonce(request),
            prompt: prompt(request),
            tables: tables.clone().into(),
        };
        (self.scheduler.finish(finished).unwrap().to_json(), tables)
    }

    fn fetch(&mut self, prompt: kvferry::PromptDigest, params: &Value) {
        let remote = self.scheduler.admit(name(), params).unwrap();
        self.scheduler.fetch(remote, prompt).unwrap();
    }

    fn give(&mut self) -> Vec<BlockTable> {
        self.give_to(&name())
    }

    fn give_to(&mut self, request: &RequestId) -> Vec<BlockTable> {
        let tables = self.allocate();
        let groups = vec![(Kind::Full, 0); tables.len()];
        let tables = Arc::from(tables);
        let blocks = Allocation { tables, resume_at: RESUME, align: 1, groups };
        let given = blocks.tables.to_vec();
        self.scheduler.allocate(request, blocks);
        given
    }

    async fn at_rest(&self) {
        assert_eq!((self.scheduler.leases(), self.scheduler.requests()), (0, 0));
        for (engine, rank) in self.engines.iter().zip(&self.ranks) {
            let counts = || async { rank.counts().await.map(live) == [[0; 5]; 2] };
            until("a led rank at rest", counts).await;
            engine.inspect_pool().unwrap();
        }
    }
}

fn name() -> RequestId {
    RequestId::new("led").unwrap()
}

/// Steps both engines until one of them knows how something ended.
async fn outcome(p: &mut Led, d: &mut Led, of_p: bool) -> Outcome {
    let mut known = None;
    until("an outcome", || {
        p.step();
        d.step();
        known = if of_p { p.scheduler.poll_outcome() } else { d.scheduler.poll_outcome() };
        let is_known = known.is_some();
        async move { is_known }
    })
    .await;
    known.unwrap()
}

/// A prefill engine of one rank, and a decode engine of several.
async fn pair(ways: u32) -> (Led, Led) {
    (Led::start(1, 1, Part::Prefill).await, Led::start(2, ways, Part::Decode).await)
}

/// Steps both engines until P may use the blocks again.
async fn freed(p: &mut Led, d: &mut Led, kept: &[BlockTable]) {
    assert!(matches!(outcome(p, d, true).await, Outcome::Freed(_)));
    p.retire(kept);
}

async fn at_rest(p: &Led, d: &Led) {
    p.at_rest().await;
    d.at_rest().await;
}

/// Steps both engines until P has a claim.
async fn claimed(p: &mut Led, d: &mut Led) {
    within("a claim", async {
        while p.ranks[0].counts().await[0].claims == 0 {
            p.step();
            d.step();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rank_of_both_engines_follows_its_scheduler() {
    for (from, to) in [(1, 1), (2, 4), (4, 2)] {
        let (mut p, mut d) =
            (Led::start(1, from, Part::Prefill).await, Led::start(2, to, Part::Both).await);
        let (params, kept) = p.offer(5);
        d.fetch(prompt(5), &params);
        let given = d.give();
        assert_eq!(outcome(&mut p, &mut d, false).await, Outcome::Received(name()));
        for engine in &d.engines {
            engine.inspect(5, RESUME, &given).unwrap();
        }
        assert!(d.moved > 0);
        freed(&mut p, &mut d, &kept).await;
        d.retire(&given);
        at_rest(&p, &d).await;
    }
}

/// Nobody has given blocks yet, or somebody has just done so.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_given_up_frees_both_sides() {
    for with_blocks in [false, true] {
        let (mut p, mut d) = pair(2).await;
        let (params, kept) = p.offer(1);
        d.fetch(prompt(1), &params);
        let given = with_blocks.then(|| d.give());
        d.scheduler.release(&name());
        assert!(matches!(outcome(&mut p, &mut d, true).await, Outcome::Freed(_)));
        if let Some(given) = given {
            assert_eq!(outcome(&mut p, &mut d, false).await, Outcome::Released(name()));
            d.retire(&given);
        }
        p.retire(&kept);
        until("forgotten", || {
            d.step();
            let requests = d.scheduler.requests();
            async move { requests == 0 }
        })
        .await;
        at_rest(&p, &d).await;
    }
}

/// The digest of another prompt: every rank says why, and the engine hears it once.
#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_up_request_fails_with_its_reason() {
    let (mut p, mut d) = pair(2).await;
    let (params, kept) = p.offer(1);
    d.fetch(prompt(2), &params);
    let Outcome::Failed { failure, .. } = outcome(&mut p, &mut d, false).await else {
        panic!("received");
    };
    assert_eq!(failure, Failure::Digest);
    assert!(d.messages.contains(&Failure::Digest.to_string()), "{:?}", d.messages);
    freed(&mut p, &mut d, &kept).await;
    at_rest(&p, &d).await;
}

/// What was ordered before ends, what is ordered meanwhile fails, and afterwards all is as before.
#[tokio::test(flavor = "multi_thread")]
async fn withdrawal_follows_the_orders_before_it() {
    let (mut p, mut d) = pair(1).await;
    let (_, kept) = p.offer(1);
    p.step();
    p.ranks[0].withdraw().await;
    freed(&mut p, &mut d, &kept).await;
    p.ranks[0].restore();

    let (params, kept) = p.offer(2);
    for asleep in [false, true] {
        d.fetch(prompt(2), &params);
        let given = d.give();
        if !asleep {
            // The orders are there, the blocks are not.
            d.step();
            d.scheduler.withdraw();
            d.ranks[0].withdraw().await;
        }
        let failed = outcome(&mut p, &mut d, false).await;
        let withdrawn = Outcome::Failed {
            request: name(),
            failure: Failure::Withdrawn,
            recompute_from: Some(0),
        };
        assert_eq!(failed, withdrawn);
        d.retire(&given);
    }
    freed(&mut p, &mut d, &kept).await;
    d.ranks[0].restore();

    let (params, kept) = p.offer(3);
    d.fetch(prompt(3), &params);
    let given = d.give();
    assert_eq!(outcome(&mut p, &mut d, false).await, Outcome::Received(name()));
    freed(&mut p, &mut d, &kept).await;
    d.retire(&given);
    at_rest(&p, &d).await;
}

/// A request that waits for blocks hears that its prefill engine is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_ends_before_there_are_blocks_is_reported() {
    let (mut p, mut d) = pair(1).await;
    let (params, _) = p.offer(1);
    d.fetch(prompt(1), &params);
    claimed(&mut p, &mut d).await;
    p.ranks.clear();
    let Outcome::Failed { recompute_from, .. } = outcome(&mut p, &mut d, false).await else {
        panic!("received");
    };
    assert_eq!(recompute_from, None, "it has no blocks yet");
    d.at_rest().await;
}

/// The second sample comes under the claim of the first, which is given up in the same step.
#[tokio::test(flavor = "multi_thread")]
async fn orders_of_one_step_are_followed_in_their_order() {
    for _ in 0..20 {
        let (mut p, mut d) = pair(1).await;
        let (params, kept) = p.offer(1);
        d.fetch(prompt(1), &params);
        claimed(&mut p, &mut d).await;
        let second = RequestId::new("second").unwrap();
        let remote = d.scheduler.admit(second.clone(), &params).unwrap();
        d.scheduler.fetch(remote, prompt(1)).unwrap();
        d.scheduler.release(&name());
        let given = d.give_to(&second);
        assert_eq!(outcome(&mut p, &mut d, false).await, Outcome::Received(second));
        freed(&mut p, &mut d, &kept).await;
        d.retire(&given);
        at_rest(&p, &d).await;
    }
}

/// Orders that concern nothing, and one for an engine of the other kind.
#[tokio::test(flavor = "multi_thread")]
async fn orders_that_lead_nowhere() {
    let d = Led::start(2, 1, Part::Decode).await;
    let lease = LeaseId { engine: EngineEpoch(1), request: name(), nonce: Nonce(1) };
    let claim = ClaimId { lease: lease.clone(), engine: EngineEpoch(2), request: name() };
    let blocks = Allocation { tables: [].into(), resume_at: 0, align: 1, groups: Vec::new() };
    d.ranks[0].follow(Order::Read { claim: claim.clone(), blocks: blocks.into() });
    d.ranks[0].follow(Order::Abort(claim));
    let kept = Lease { id: lease.clone(), prompt: prompt(1), tables: [].into() };
    d.ranks[0].follow(Order::Keep(kept));
    let mut words = Vec::new();
    until("a word", || {
        words.extend(d.ranks[0].reports().into_iter().map(|report| report.word));
        let heard = !words.is_empty();
        async move { heard }
    })
    .await;
    assert_eq!(words, [Word::Freed { lease, why: Why::Over }]);
    d.at_rest().await;
}
