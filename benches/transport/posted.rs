use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kv_layout::{BlockTable, CacheLayout, EngineShape, Model, PageOrder, Plan, Planner, Span};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, clock_gettime};
use strided::BlockCopy;
use transport::memory::HostMemory;
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{
    AgentId, BoundRegion, Endpoint, Event, GrantToken, Memory, Outcome, PeerId, Transfer,
    TransferError, TransferId,
};

use crate::Fallible;

const GEMMA: &str = include_str!("../../models/gemma-3-4b-it.json");
const TOKENS: u64 = 4000;
const BLOCK_TOKENS: u32 = 64;
const POOL: u32 = 512;
const TOKEN: GrantToken = GrantToken(1);
const UNKNOWN: GrantToken = GrantToken(2);

/// From the block ids of a request until its caller is free: the plan, and `submit`. What
/// comes of it is waited for outside of the clock: the bytes, after which no cache has anything of
/// the caller's any more, or a refusal, after which they have.
pub fn bench(rounds: usize) -> Fallible<()> {
    let mut pair = Pair::new()?;
    println!("\ngemma-3-4b, {TOKENS} tokens: {} block ids, {} MiB", pair.ids(), pair.bytes() >> 20);
    println!("\n| caches | until | median µs | min µs | p99 µs |\n|---|---|---|---|---|");
    for (name, token, times) in [("cold", TOKEN, 200), ("warm", UNKNOWN, 5000)] {
        let mut taken = Vec::new();
        for time in 0..=if rounds > 1 { times } else { 1 } {
            let one = pair.request(token)?;
            if time > 0 {
                taken.push(one);
            }
        }
        row(name, "planned", taken.iter().map(|one| one.planned).collect());
        row(name, "posted", taken.iter().map(|one| one.posted).collect());
        row(name, "posted, CPU of the caller", taken.iter().map(|one| one.cpu).collect());
    }
    Ok(())
}

fn row(caches: &str, name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: usize| {
        let time = times.get((times.len() * share / 100).min(times.len() - 1));
        time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    };
    println!("| {caches} | {name} | {:.1} | {:.1} | {:.1} |", at(50), at(0), at(99));
}

/// What one request took of its caller, from the block ids on.
struct Taken {
    planned: Duration,
    posted: Duration,
    cpu: Duration,
}

/// A source and a reader of one model, over TCP.
struct Pair {
    _source: TcpEndpoint,
    reader: TcpEndpoint,
    peer: PeerId,
    planner: Planner,
    sources: Vec<BlockTable>,
    targets: Vec<BlockTable>,
    next: u64,
}

const SPAN: Span = Span { valid: TOKENS, resume_at: TOKENS - 1 };

impl Pair {
    fn new() -> Fallible<Self> {
        let model = Model::from_config(GEMMA, "gemma-3-4b-it.json")?;
        let shape = EngineShape::single(BLOCK_TOKENS, PageOrder::Joint);
        let layouts = shape.layouts(&model, POOL)?;
        let layouts: Vec<&CacheLayout> = layouts.iter().collect();
        let planner = Planner::new(&layouts, &layouts, 0)?;
        let [sources, targets] = [tables(&model, shape, 181)?, tables(&model, shape, 307)?];
        let layout = layouts.first().ok_or("an engine without ranks")?;
        let (mut source, mut reader) = (endpoint(1)?, endpoint(2)?);
        for endpoint in [&mut source, &mut reader] {
            let (memory, regions) = memory(layout)?;
            endpoint.register(memory, &regions)?;
        }
        let peer = reader.connect(&source.card())?;
        let mut pair = Self { _source: source, reader, peer, planner, sources, targets, next: 0 };
        let granted = copies(&pair.plan()?).iter().map(|copy| copy.source().clone()).collect();
        pair._source.grant(AgentId(2), TOKEN, granted)?;
        Ok(pair)
    }

    fn plan(&self) -> Fallible<Plan> {
        Ok(self.planner.plan(&[&self.sources], &self.targets, &[], SPAN)?)
    }

    fn ids(&self) -> usize {
        self.targets.iter().map(|table| table.ids.len()).sum()
    }

    fn bytes(&self) -> u64 {
        self.plan().map_or(0, |plan| plan.copies().map(BlockCopy::bytes).sum())
    }

    fn request(&mut self, token: GrantToken) -> Fallible<Taken> {
        let cpu = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime));
        self.next += 1;
        let id = TransferId(self.next);
        let (start, before) = (Instant::now(), cpu()?);
        let plan = self.plan()?;
        let planned = start.elapsed();
        let (copies, timeout) = (copies(&plan), Duration::from_secs(60));
        let transfer = Transfer { id, peer: self.peer, token, copies, timeout };
        self.reader.submit(transfer).map_err(|error| error.why)?;
        let (posted, cpu) = (start.elapsed(), cpu()?.saturating_sub(before));
        let mut events = Vec::new();
        while events.is_empty() {
            poll(&mut [PollFd::from_borrowed_fd(self.reader.ready_fd(), PollFlags::IN)], None)?;
            self.reader.poll(&mut events);
        }
        let refused = Outcome::Failed(TransferError::NotGranted);
        let expected = if token == TOKEN { Outcome::Done } else { refused };
        match events.as_slice() {
            [Event::Completion { outcome, .. }] if *outcome == expected => {
                Ok(Taken { planned, posted, cpu })
            }
            other => Err(format!("{other:?}").into()),
        }
    }
}

fn copies(plan: &Plan) -> Vec<BlockCopy> {
    plan.copies().cloned().collect()
}

fn endpoint(agent: u64) -> Fallible<TcpEndpoint> {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(TcpEndpoint::bind(TcpConfig::new(AgentId(agent), 0, listen))?)
}

/// Blocks from all over the pool, no two of them neighbours.
fn tables(
    model: &Model,
    shape: EngineShape,
    odd: u32,
) -> Result<Vec<BlockTable>, Box<dyn Error + Send + Sync>> {
    let rank = shape.ranks(model)?.into_iter().next().ok_or("an engine without ranks")?;
    let mut ids = (1..POOL).map(|i| i.wrapping_mul(odd) % POOL);
    let table = |kept: kv_layout::Kept| -> Fallible<BlockTable> {
        let ids: Vec<u32> = ids.by_ref().take(usize::try_from(kept.blocks)?).collect();
        Ok(BlockTable { first_token: kept.first_token, ids: ids.into() })
    };
    rank.kept(SPAN.resume_at, SPAN.valid).map(table).collect()
}

/// All regions of a rank, one behind the other.
fn memory(layout: &CacheLayout) -> Fallible<(Arc<dyn Memory>, Vec<BoundRegion>)> {
    let mut regions = Vec::new();
    let mut offset = 0;
    for (id, region) in (0..).zip(&layout.regions) {
        regions.push(BoundRegion { id: strided::RegionId(id), offset, region: *region });
        offset += region.bytes()?;
    }
    Ok((Arc::new(HostMemory::new(usize::try_from(offset)?)?), regions))
}
