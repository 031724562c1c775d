//! A plain request and its answer: numbers of blocks go one way, their bytes the other.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use kvferry::transport::tcp::LowWater;

use crate::bench::workload::Move;

/// Pieces of one vectored call; the kernel takes no more.
const PIECES: usize = 1024;

/// Far above what any workload takes.
const PATIENCE: Duration = Duration::from_secs(60);

const REACHED_WITHIN: Duration = Duration::from_secs(5);

/// A socket to a source that serves those who say `pass`.
pub(super) fn dial(address: SocketAddr, pass: u64) -> io::Result<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&address, REACHED_WITHIN)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(&pass.to_le_bytes())?;
    Ok(socket)
}

/// Asks for the sources of `moves`: their number, then each by its place in the pool.
pub(super) fn request(moves: &[Move], block: usize) -> Vec<u8> {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    let blocks = moves.iter().map(|at| at.source / block);
    [moves.len()].into_iter().chain(blocks).flat_map(number).collect()
}

/// Sends a request and takes the answer.
pub(super) fn read(
    mut socket: &TcpStream,
    request: &[u8],
    mut targets: &mut [IoSliceMut<'_>],
    low_water: bool,
) -> io::Result<()> {
    socket.write_all(request)?;
    let mut missing: usize = targets.iter().map(|target| target.len()).sum();
    let mut mark = low_water.then(|| LowWater::new(socket));
    while !targets.is_empty() {
        if let Some(mark) = &mut mark {
            mark.fit(missing)?;
        }
        let pieces = targets.len().min(PIECES);
        let received = socket.read_vectored(&mut targets[..pieces])?;
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        missing -= received;
        IoSliceMut::advance_slices(&mut targets, received);
    }
    Ok(())
}

/// Sends all pieces.
pub(super) fn write(mut socket: &TcpStream, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !pieces.is_empty() {
        let some = pieces.len().min(PIECES);
        let sent = socket.write_vectored(&pieces[..some])?;
        IoSlice::advance_slices(&mut pieces, sent);
    }
    Ok(())
}
