use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use connector::{EngineEpoch, LeaseId, Nonce, ReadToken, RequestId};
use strided::Blocks;
use transport::{
    AgentId, BoundRegion, Capabilities, Card, ConnectError, Event, GrantError, Memory,
    RegisterError, Registration, SubmitError,
};

use super::*;

/// Reads that a peer's queue takes.
const DEPTH: usize = 4;

/// A provider with short queues, each of which has room again only when somebody has taken what
/// it has done.
struct Short {
    ready: OwnedFd,
    queues: BTreeMap<PeerId, Vec<TransferId>>,
    /// How often it was asked to take something.
    asked: usize,
}

impl Short {
    fn new() -> Self {
        let ready = std::fs::File::open("/dev/null").unwrap().into();
        Self { ready, queues: BTreeMap::new(), asked: 0 }
    }

    /// What is done by now, the last one first.
    fn done(&mut self) -> Vec<TransferId> {
        let mut events = Vec::new();
        self.poll(&mut events);
        let id = |event| match event {
            Event::Completion { id, .. } => id,
            other => panic!("{other:?}"),
        };
        events.into_iter().map(id).collect()
    }
}

impl Endpoint for Short {
    fn capabilities(&self) -> Capabilities {
        unreachable!("nobody asks")
    }

    fn card(&self) -> Card {
        unreachable!("nobody asks")
    }

    fn register(
        &mut self,
        _: Arc<dyn Memory>,
        _: &[BoundRegion],
    ) -> Result<Registration, RegisterError> {
        unreachable!("nothing is registered")
    }

    fn deregister(&mut self, _: Registration) -> Result<(), RegisterError> {
        unreachable!("nothing is registered")
    }

    fn connect(&mut self, _: &Card) -> Result<PeerId, ConnectError> {
        unreachable!("peers are there")
    }

    fn disconnect(&mut self, _: PeerId) {}

    fn submit(&mut self, transfer: Transfer) -> Result<(), SubmitError> {
        self.asked += 1;
        let queue = self.queues.entry(transfer.peer).or_default();
        if queue.len() == DEPTH {
            let why = SubmitErrorKind::QueueFull;
            return Err(SubmitError { why, transfer: Box::new(transfer) });
        }
        queue.push(transfer.id);
        Ok(())
    }

    fn cancel(&mut self, _: TransferId) {}

    fn grant(&mut self, _: AgentId, _: GrantToken, _: Vec<Blocks>) -> Result<(), GrantError> {
        unreachable!("nothing is granted")
    }

    fn revoke(&mut self, _: GrantToken) {}

    fn poll(&mut self, events: &mut Vec<Event>) {
        let done = self.queues.values_mut().flat_map(|queue| queue.drain(..).rev());
        events.extend(done.map(|id| Event::Completion { id, outcome: Outcome::Done }));
    }

    fn ready_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

/// A rank of P, known as `PeerId(number)`.
fn rank(number: u64) -> AgentEpoch {
    AgentEpoch(100 + number)
}

/// Starts the read of a request from a rank. Nothing is to be told of it yet.
fn start(reads: &mut Reads, endpoint: &mut Short, request: u64, peer: u64) {
    let request = RequestId::new(&format!("r{request}")).unwrap();
    let lease = LeaseId { engine: EngineEpoch(1), request: request.clone(), nonce: Nonce(1) };
    let claim = ClaimId { lease, engine: EngineEpoch(2), request };
    let wanted = Read { peer: rank(peer), token: ReadToken(1), copies: Vec::new() };
    reads.want(&claim, vec![wanted]);
    let told = reads.start(endpoint, (claim, rank(peer)), Some(PeerId(peer)));
    assert_eq!(told, []);
}

/// A queue that was full made the caller crash, hang, or ask for ever. What it does not take
/// waits, and is asked for again when there is room: not each of those that wait, each time.
#[test]
fn r92_a_thousand_reads_through_a_queue_of_four() {
    let (mut reads, mut endpoint) = (Reads::new(Duration::from_secs(30)), Short::new());
    (0..1000).for_each(|request| start(&mut reads, &mut endpoint, request, 1));
    let (mut ended, mut turns) = (0, 0);
    while ended < 1000 {
        let done = endpoint.done();
        assert_eq!(done.len(), DEPTH, "the queue is full again after each turn");
        for id in done {
            let told = reads.completed(&mut endpoint, id, &Outcome::Done);
            assert!(matches!(&told[..], [Input::ReadEnded { how: Ok(()), .. }]), "{told:?}");
            ended += 1;
        }
        turns += 1;
    }
    assert_eq!((turns, endpoint.done().len()), (250, 0));
    assert!(endpoint.asked <= 3 * 1000, "asked {} times", endpoint.asked);
}

/// A peer whose queue is full holds up nobody else's reads.
#[test]
fn r92_a_full_queue_is_one_peers() {
    let (mut reads, mut endpoint) = (Reads::new(Duration::from_secs(30)), Short::new());
    (0..50).for_each(|request| start(&mut reads, &mut endpoint, request, 1));
    (50..53).for_each(|request| start(&mut reads, &mut endpoint, request, 2));
    let open: Vec<usize> = endpoint.queues.values().map(Vec::len).collect();
    assert_eq!(open, [DEPTH, 3]);
    // The oldest come first when there is room.
    let first = endpoint.done();
    assert_eq!(first.iter().map(|id| id.0).collect::<Vec<_>>(), [3, 2, 1, 0, 52, 51, 50]);
    reads.completed(&mut endpoint, first[0], &Outcome::Done);
    assert_eq!(endpoint.queues[&PeerId(1)], [4, 5, 6, 7].map(TransferId));
}
