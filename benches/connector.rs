//! What the hand-off machines cost: `cargo bench -p benches --bench connector`.
//!
//! * **idle**: a worker that holds 1,000 leases and has nothing to do.
//! * **idle scheduler**: one with 10,000 requests under way and nothing to do.
//! * **codec**: the answer that grants 165 blocks in 7 groups, to bytes and back.

use std::error::Error;
use std::time::Duration;

use connector::message::{Answer, Body, Grant, Message};
use connector::params::{Address, RankAddress};
use connector::{
    AgentEpoch, Bounds, ClaimId, EngineEpoch, Input, Lease, LeaseId, Nonce, Peer, PromptIdentity,
    Rank, ReadToken, RemotePrefill, RequestId, Scheduler, Worker, codec,
};
use criterion::{Criterion, Throughput};
use kv_layout::BlockTable;

fn main() -> Result<(), Box<dyn Error>> {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("connector");
    let mut worker = leased(1000)?;
    group.bench_function("a step with nothing to do, 1,000 leases", |bencher| {
        bencher.iter(|| {
            worker.handle_timeout(Duration::from_secs(1));
            (worker.poll_action(), worker.poll_event())
        });
    });
    let mut scheduler = fetching(10_000)?;
    group.bench_function("a scheduler with nothing to do, 10,000 requests", |bencher| {
        bencher.iter(|| (scheduler.poll_order(), scheduler.poll_outcome()));
    });
    let message = grant()?;
    let frame = codec::encode(&message)?;
    group.throughput(Throughput::Bytes(frame.len() as u64));
    group.bench_function("encode a grant", |bencher| bencher.iter(|| codec::encode(&message)));
    group.bench_function("decode a grant", |bencher| bencher.iter(|| codec::decode(&frame)));
    group.finish();
    criterion.final_summary();
    Ok(())
}

const ENGINE: EngineEpoch = EngineEpoch(1);

fn lease_id(nonce: u64) -> Result<LeaseId, Box<dyn Error>> {
    Ok(LeaseId { engine: ENGINE, request: RequestId::new("request")?, nonce: Nonce(nonce) })
}

/// 6 window groups of 17 blocks and a full one of 63.
fn tables() -> Vec<BlockTable> {
    let table = |blocks: u32| BlockTable { first_token: 0, ids: (0..blocks).collect() };
    [17, 17, 17, 17, 17, 17, 63].map(table).to_vec()
}

fn leased(leases: u64) -> Result<Worker, Box<dyn Error>> {
    let me = Peer { engine: ENGINE, agent: AgentEpoch(1) };
    let mut worker = Worker::new(me, Rank(0), Bounds::default(), [0; 32])?;
    let prompt = PromptIdentity::default().digest();
    for nonce in 0..leases {
        let lease = Lease { id: lease_id(nonce)?, prompt, tables: tables().into() };
        worker.handle(Duration::ZERO, Input::Lease(lease));
    }
    Ok(worker)
}

fn fetching(requests: u64) -> Result<Scheduler, Box<dyn Error>> {
    let first = RankAddress { host: "h".to_owned(), port: 1 };
    let address = Address { engine_id: "d".to_owned(), tp_size: 1, first, others: Vec::new() };
    let mut scheduler = Scheduler::new(EngineEpoch(2), address.clone())?;
    let prompt = PromptIdentity::default().digest();
    for nonce in 0..requests {
        let request = RequestId::new(&nonce.to_string())?;
        let claim = ClaimId { lease: lease_id(nonce)?, engine: EngineEpoch(2), request };
        let remote = RemotePrefill { claim, address: address.clone(), tokens: 1 };
        scheduler.fetch(remote, prompt)?;
    }
    while scheduler.poll_order().is_some() {}
    Ok(scheduler)
}

fn grant() -> Result<Message, Box<dyn Error>> {
    let claim = ClaimId {
        lease: lease_id(0)?,
        engine: EngineEpoch(2),
        request: RequestId::new("request")?,
    };
    let grant = Grant {
        token: ReadToken(3),
        prompt: PromptIdentity::default().digest(),
        left: Duration::from_secs(20),
        tables: tables().into(),
    };
    let body = Body::Answer(Answer::Granted(grant));
    Ok(Message { from: AgentEpoch(1), to: AgentEpoch(2), claim, body })
}
