//! What crosses a connection, counted by a peer that is played by hand.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::raw::{self, FRAME_LEN, PORTION, REQUEST, Source};
use crate::common::unix::{self, HERE, SHOW};
use crate::common::*;
use crate::tcp_source::{Serving, request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use strided::{BlockCopy, Blocks, Pattern, Region, RegionId};
use transport::session::{Hello, Role};
use transport::shm::{ShmConfig, ShmEndpoint};
use transport::{BoundRegion, Endpoint, Memory, PeerId, Transfer, TransferId};

/// The kind of the next frame, and its first number.
fn head(mut socket: &TcpStream) -> (u32, u32) {
    let mut head = [0; FRAME_LEN];
    socket.read_exact(&mut head).unwrap();
    let half = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let frame = (half(0), half(4));
    if [REQUEST, PORTION].contains(&frame.0) {
        socket.read_exact(&mut vec![0; frame.1 as usize]).unwrap();
    }
    frame
}

/// Bytes of the requests that a reader makes of these transfers.
fn asked(regions: u32, transfers: &[Vec<BlockCopy>]) -> Vec<u32> {
    let mut reader = Net::Streams(1).endpoint(READER);
    let pool = Pool::new(64, 200);
    for id in 0..regions {
        pool.register(&mut *reader, id);
    }
    let source = Source::new();
    let peer: PeerId = reader.connect(&source.card()).unwrap();
    for (id, copies) in (0..).zip(transfers.iter().cloned()) {
        let id = TransferId(id);
        reader.submit(Transfer { id, peer, token: TOKEN, copies, timeout: PATIENCE }).unwrap();
    }
    let socket = source.accept(|_| ());
    let requests = std::iter::repeat_with(|| head(&socket)).filter(|(kind, _)| *kind == REQUEST);
    requests.take(transfers.len()).map(|(_, len)| len).collect()
}

/// Bytes of a request, from the format that both sides keep to: the lists of ids and their number,
/// then 28 bytes a copy.
fn of_lists(lists: &[u32], copies: u32) -> u32 {
    4 + lists.iter().map(|ids| 4 + 4 * ids).sum::<u32>() + 4 + 28 * copies
}

/// Posting was the cost, descriptor by descriptor. 48 layers, keys and values apart, 100 blocks
/// that do not follow each other: 9,600 descriptors, of which a reader posts one request with one
/// list of ids.
#[test]
fn r96_a_request_is_as_long_as_its_list_of_blocks() {
    let ids: std::sync::Arc<[u32]> = (0..200).step_by(2).collect();
    let plane = Pattern::contiguous(0, 64).unwrap();
    let blocks = |region| Blocks::new(RegionId(region), ids.clone(), plane).unwrap();
    let copies: Vec<BlockCopy> =
        (0..96).map(|region| copy(blocks(region), blocks(region))).collect();
    assert_eq!(asked(96, &[copies]), [of_lists(&[100], 96)]);
}

/// Batches of one were 800 times slower than the raw tool. A batch is one request however many
/// blocks it has; only who posts them one by one asks so often.
#[test]
fn r99_a_batch_is_one_request() {
    let block = |id: u32| copy(page(&[id], 64), page(&[id], 64));
    let ids: Vec<u32> = (0..128).collect();
    let batch = copy(page(&ids, 64), page(&ids, 64));
    assert_eq!(asked(1, &[vec![batch]]), [of_lists(&[128], 1)]);
    let singly: Vec<Vec<BlockCopy>> = ids.iter().map(|&id| vec![block(id)]).collect();
    assert_eq!(asked(1, &singly), [of_lists(&[1], 1); 128]);
}

/// Peers took seconds to set up, an object for each block of each region. 64 regions of a million
/// blocks are told in 24 bytes each, and 24 in front.
#[test]
fn r97_a_million_blocks_are_told_as_one() {
    let region = Region { block_stride: 8, block_count: 1_000_000 };
    let bytes = region.bytes().unwrap();
    let pool = Pool::shared(Region { block_stride: bytes, block_count: 64 });
    let bound = |id: u32| BoundRegion { id: RegionId(id), offset: u64::from(id) * bytes, region };
    let mut source = ShmEndpoint::bind(ShmConfig::new(SOURCE, 1)).unwrap();
    let memory: std::sync::Arc<dyn Memory> = pool.memory;
    source.register(memory, &(0..64).map(bound).collect::<Vec<_>>()).unwrap();
    let (_, shown) = unix::reader(&source.card());
    let told: Vec<(u32, u32)> = shown.iter().map(|frame| (frame.kind, frame.small)).collect();
    assert_eq!(told, [(SHOW, 24 + 64 * 24), (HERE, std::process::id())]);
}

/// Some of the network cards carried next to nothing, and held up all. Streams have no shares:
/// each takes the next portion when it has sent one. Of 64 portions, one stalled stream of four
/// would have a quarter; it gets what sockets hold, and the others bring the rest.
#[test]
fn r94_a_stream_that_stalls_keeps_what_its_socket_holds() {
    let serving = Serving::new();
    let first = Hello { streams: 4, ..raw::hello(READER, Role::Decode) };
    let sockets = [0, 1, 2, 3].map(|stream| {
        let socket = TcpStream::connect(&serving.card.address).unwrap();
        set_socket_recv_buffer_size(&socket, 64 << 10).unwrap();
        raw::greet(&socket, &Hello { stream, ..first.clone() });
        socket
    });
    (&sockets[0]).write_all(&request(1, 64)).unwrap();
    let mut brought = 0;
    while brought < 56 {
        let mut ready = [0, 1, 2].map(|at| PollFd::new(&sockets[at], PollFlags::IN));
        let patience = Timespec::try_from(PATIENCE).unwrap();
        assert!(poll(&mut ready, Some(&patience)).unwrap() > 0, "only {brought} portions came");
        let ready = ready.map(|fd| fd.revents().contains(PollFlags::IN));
        for (socket, _) in sockets.iter().zip(ready).filter(|(_, ready)| *ready) {
            brought += u32::from(head(socket).0 == PORTION);
        }
    }
}
