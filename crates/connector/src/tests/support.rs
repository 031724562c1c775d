use std::collections::{BTreeMap, BTreeSet};

use kv_layout::BlockTable;

use crate::message::{Answer, Body, Grant, Message, Request};
use crate::params::{Address, RankAddress};
use crate::*;

/// A prefill worker.
pub(crate) const P: Peer = Peer { engine: EngineEpoch(1), agent: AgentEpoch(10) };
/// Two ranks of a decode engine.
pub(crate) const D: Peer = Peer { engine: EngineEpoch(2), agent: AgentEpoch(20) };
pub(crate) const D1: Peer = Peer { engine: EngineEpoch(2), agent: AgentEpoch(21) };
/// Another decode engine.
pub(crate) const E: Peer = Peer { engine: EngineEpoch(3), agent: AgentEpoch(30) };

pub(crate) fn secs(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// The last moment before.
pub(crate) fn before(time: Time) -> Time {
    time - Time::from_nanos(1)
}

pub(crate) fn worker(me: Peer, rank: u32) -> Worker {
    Worker::new(me, Rank(rank), Bounds::default(), [9; 32]).unwrap()
}

pub(crate) fn request(name: &str) -> RequestId {
    RequestId::new(name).unwrap()
}

pub(crate) fn lease_id(nonce: u64) -> LeaseId {
    LeaseId { engine: P.engine, request: request("prompt"), nonce: Nonce(nonce) }
}

pub(crate) fn prompt() -> PromptDigest {
    PromptIdentity { tokens: &[5, 6, 7], model: "m", ..Default::default() }.digest()
}

pub(crate) fn lease(nonce: u64) -> Lease {
    let table = BlockTable { first_token: 0, ids: [3, 1, 4].into() };
    Lease { id: lease_id(nonce), prompt: prompt(), tables: [table].into() }
}

pub(crate) fn claim_of(lease: u64, peer: Peer) -> ClaimId {
    ClaimId { lease: lease_id(lease), engine: peer.engine, request: request("answer") }
}

/// One of several requests with the parameters of the same lease.
pub(crate) fn sample_of(lease: u64, peer: Peer, sample: u64) -> ClaimId {
    match sample {
        0 => claim_of(lease, peer),
        _ => ClaimId { request: request(&format!("answer {sample}")), ..claim_of(lease, peer) },
    }
}

pub(crate) fn ranks(ranks: &[u32]) -> BTreeSet<Rank> {
    ranks.iter().copied().map(Rank).collect()
}

pub(crate) fn sources(readers: &[u32]) -> BTreeMap<AgentEpoch, BTreeSet<Rank>> {
    BTreeMap::from([(P.agent, ranks(readers))])
}

/// Where an engine of one rank answers.
pub(crate) fn address(port: u16) -> Address {
    let first = RankAddress { host: "p".into(), port };
    Address { engine_id: "p".into(), tp_size: 1, first, others: Vec::new() }
}

/// Has a worker fetch a request whose engine it gets to know at once; nothing else is taken
/// from it.
pub(crate) fn start(
    worker: &mut Worker,
    now: Time,
    claim: ClaimId,
    sources: BTreeMap<AgentEpoch, BTreeSet<Rank>>,
) {
    let (address, prompt) = (address(1), prompt());
    worker
        .handle(now, Input::Fetch(Fetch { claim, shared: None, prompt, address: address.clone() }));
    assert_eq!(actions(worker), [Action::Greet { address: address.clone() }]);
    let acquaintance = Acquaintance { engine: P.engine, sources };
    worker.handle(now, Input::Greeted { address, acquaintance });
}

pub(crate) fn to_claim(rank: u32, readers: &[u32]) -> Request {
    Request::Claim { rank: Rank(rank), readers: ranks(readers) }
}

pub(crate) fn asks(from: Peer, claim: &ClaimId, request: Request) -> Message {
    Message { from: from.agent, to: P.agent, claim: claim.clone(), body: Body::Request(request) }
}

pub(crate) fn answers(to: Peer, claim: &ClaimId, answer: Answer) -> Message {
    Message { from: P.agent, to: to.agent, claim: claim.clone(), body: Body::Answer(answer) }
}

pub(crate) fn grant() -> Grant {
    let Lease { prompt, tables, .. } = lease(1);
    Grant { token: ReadToken(77), prompt, left: secs(20), tables }
}

pub(crate) fn actions(worker: &mut Worker) -> Vec<Action> {
    std::iter::from_fn(|| worker.poll_action()).collect()
}

pub(crate) fn events(worker: &mut Worker) -> Vec<Event> {
    std::iter::from_fn(|| worker.poll_event()).collect()
}

/// Nothing is held, whatever the totals say.
pub(crate) fn at_rest(worker: &Worker) -> bool {
    let Counts { refused, misdirected, engines, .. } = worker.counts();
    worker.counts() == Counts { refused, misdirected, engines, ..Counts::default() }
        && worker.poll_timeout().is_none()
}
