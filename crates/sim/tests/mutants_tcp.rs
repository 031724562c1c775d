//! The inspection finds each planted mistake by name after a real transfer over TCP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kv_layout::{
    BlockTable, CacheLayout, DType, Holding, Kind, Layer, Model, PageOrder, Span, Target, plan,
};
use sim::{Engine, Fault, Mutant};
use strided::{BlockCopy, Blocks, Pattern, RegionId};
use transport::tcp::{TcpConfig, TcpEndpoint};
use transport::{AgentId, Endpoint, Event, GrantToken, Outcome, Transfer, TransferId};

const BLOCK: u32 = 8;
const TOKENS: u64 = 53;
const RESUME: u64 = TOKENS - 1;
const REQUEST: u64 = 7;
const READER: AgentId = AgentId(2);
const TOKEN: GrantToken = GrantToken(99);
const PATIENCE: Duration = Duration::from_secs(20);

/// Full and windowed layers in turn, one padding slot.
fn model() -> Model {
    let layer = |i: usize| {
        let kind = if i % 3 == 2 { Kind::Full } else { Kind::SlidingWindow { window: 20 } };
        Layer::attention(format!("layers.{i}"), kind, 3, 16, 16)
    };
    Model { model_type: "test".into(), dtype: DType::Bf16, layers: (0..7).map(layer).collect() }
}

/// An engine, the blocks of its request, and its endpoint.
struct Side {
    engine: Engine,
    tables: Vec<BlockTable>,
    endpoint: TcpEndpoint,
}

impl Side {
    fn new(agent: AgentId) -> Self {
        let engine = Engine::new(&model(), BLOCK, PageOrder::Joint, 256 << 10, agent.0).unwrap();
        let tables = engine.allocate(TOKENS, RESUME).unwrap();
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut endpoint = TcpEndpoint::bind(TcpConfig::new(agent, agent.0, listen)).unwrap();
        endpoint.register(Arc::clone(engine.memory()) as _, engine.regions()).unwrap();
        Self { engine, tables, endpoint }
    }

    fn holding(&self) -> Holding<'_> {
        Holding { layout: self.engine.layout(), tables: &self.tables }
    }
}

/// All pages of the request's blocks.
fn pages(layout: &CacheLayout, tables: &[BlockTable]) -> Vec<Blocks> {
    let mut blocks = Vec::new();
    for (group, table) in (0..).zip(tables) {
        for (region, span) in layout.group_spans(group) {
            let page = Pattern::contiguous(span.start, span.end - span.start).unwrap();
            blocks.push(Blocks::new(RegionId(region), table.ids.clone(), page).unwrap());
        }
    }
    blocks
}

/// Plans, lets `plant` change the plan, and moves it.
fn moved(plant: impl FnOnce(&CacheLayout, &mut Vec<BlockCopy>)) -> Side {
    let (mut source, mut target) = (Side::new(AgentId(1)), Side::new(READER));
    source.engine.prefill(REQUEST, TOKENS, &source.tables);
    target.engine.inspect_unused(&target.tables).unwrap();
    let span = Span { valid: TOKENS, resume_at: RESUME };
    let layout = target.engine.layout();
    let to = Target { ranks: &[layout], rank: 0, tables: &target.tables, hits: &[] };
    let mut copies = plan(&[source.holding()], to, span).unwrap().reads.remove(0);
    plant(target.engine.layout(), &mut copies);
    let granted = pages(source.engine.layout(), &source.tables);
    source.endpoint.grant(READER, TOKEN, granted).unwrap();
    let peer = target.endpoint.connect(&source.endpoint.card()).unwrap();
    let id = TransferId(1);
    let transfer = Transfer { id, peer, token: TOKEN, copies, timeout: PATIENCE };
    target.endpoint.submit(transfer).unwrap();
    assert_eq!(outcome(&mut target.endpoint), Outcome::Done);
    target
}

fn outcome(endpoint: &mut TcpEndpoint) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut events = Vec::new();
        endpoint.poll(&mut events);
        match events.pop() {
            Some(Event::Completion { outcome, .. }) => return outcome,
            Some(other) => panic!("{other:?} before the end"),
            None => assert!(Instant::now() < deadline, "the transfer did not end"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The request's blocks first, then, with those painted over, the whole pool.
fn inspect(target: &Side) -> Result<(), Fault> {
    target.engine.inspect(REQUEST, RESUME, &target.tables)?;
    target.engine.retire(&target.tables);
    target.engine.inspect_pool()
}

fn verdict(mutant: Mutant) -> Fault {
    let target = moved(|layout, copies| assert_eq!(mutant.plant(layout, copies), Ok(true)));
    inspect(&target).expect_err("the mistake must be found")
}

#[test]
fn a_right_transfer_passes() {
    assert_eq!(inspect(&moved(|_, _| ())), Ok(()));
}

#[test]
fn mutant_block_dropped_is_caught() {
    // The last block of a full layer holds tokens 48 to 52.
    assert!(matches!(verdict(Mutant::BlockDropped), Fault::Missing { token: 48, .. }));
}

#[test]
fn mutant_blocks_swapped_is_caught() {
    assert!(matches!(verdict(Mutant::BlocksSwapped), Fault::Wrong { token: 0, .. }));
}

#[test]
fn mutant_window_start_off_is_caught() {
    // The query at 52 sees keys from 33 on; the block that holds it starts at 32.
    assert!(matches!(verdict(Mutant::WindowStartOff), Fault::Missing { token: 33, .. }));
}

#[test]
fn mutant_key_value_exchanged_is_caught() {
    assert!(matches!(verdict(Mutant::KeyValueExchanged), Fault::Wrong { byte: 0, .. }));
}

#[test]
fn mutant_neighbour_written_is_caught_in_the_request_and_in_the_neighbour() {
    assert!(matches!(verdict(Mutant::NeighbourWritten), Fault::Missing { token: 48, .. }));
    let target = moved(|layout, copies| {
        Mutant::NeighbourWritten.plant(layout, copies).unwrap();
    });
    let owned = |id: &u32| target.tables.iter().any(|table| table.ids.contains(id));
    target.engine.retire(&target.tables);
    let stray = target.engine.inspect_pool().expect_err("the neighbour was written");
    assert!(matches!(stray, Fault::Stray { block, .. } if !owned(&block)), "{stray}");
}

#[test]
fn mutant_head_slice_shifted_is_caught() {
    assert!(matches!(verdict(Mutant::HeadSliceShifted), Fault::Missing { part: 0, byte: 0, .. }));
}
