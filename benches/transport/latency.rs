use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use criterion::Criterion;

use crate::Fallible;
use crate::ours::Ours;
use crate::workload::Workload;

const W4: Workload = Workload { regions: 1, pool: 64, moved: 1, block: 4096 };

/// From `submit` until the completion has been polled by a thread that slept; and what the
/// kernel takes for a request and its answer between two threads.
pub fn bench() -> Fallible<()> {
    // The arguments name sections.
    let mut criterion = Criterion::default();
    compare(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn compare(criterion: &mut Criterion) -> Fallible<()> {
    let mut ours = Ours::new(&W4, None)?;
    // The connection is made before anything is timed.
    ours.read()?;
    time(criterion, "W4: one block of 4 KiB, ours", || ours.read())?;
    let (mut reader, echo) = plain()?;
    let mut block = [0; W4.block];
    time(criterion, "W4: one block of 4 KiB, plain", || {
        reader.write_all(&[1; 64])?;
        Ok(reader.read_exact(&mut block)?)
    })?;
    drop(reader);
    echo.join().map_err(|_| "panic")?
}

fn time(
    criterion: &mut Criterion,
    name: &str,
    mut run: impl FnMut() -> Fallible<()>,
) -> Fallible<()> {
    let mut failed = None;
    criterion
        .bench_function(name, |bencher| bencher.iter(|| failed = run().err().or(failed.take())));
    failed.map_or(Ok(()), Err)
}

/// A socket on which each 64 bytes are answered by a block.
fn plain() -> Fallible<(TcpStream, thread::JoinHandle<Fallible<()>>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let reader = TcpStream::connect(listener.local_addr()?)?;
    let (mut source, _) = listener.accept()?;
    reader.set_nodelay(true)?;
    source.set_nodelay(true)?;
    let echo = thread::spawn(move || {
        let mut request = [0; 64];
        while source.read_exact(&mut request).is_ok() {
            source.write_all(&[7; W4.block])?;
        }
        Ok(())
    });
    Ok((reader, echo))
}
