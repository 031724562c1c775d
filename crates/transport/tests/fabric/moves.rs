//! Bytes come as they were, within a process and between two.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use transport::libfabric::{
    CounterError, FabricConfig, Move, Notice, OpenError, Outcome, PeerError, WorkErrorKind,
    WorkKind,
};

use crate::ends::*;
use crate::stage::*;

const BLOCK: u64 = 128 << 10;

#[test]
fn bytes_are_read_between_two_endpoints_of_a_process() {
    on_each_stage("moves::bytes_are_read_between_two_endpoints_of_a_process", |stage| {
        let (source, reader) = (End::new(stage, 32 << 20), End::new(stage, 32 << 20));
        source.paint(1);
        reader.paint(2);
        let peer = reader.driver.insert(source.driver.address()).unwrap();
        for (id, (count, block)) in
            [(1, 64), (8, 64), (4096, 4096), (256, BLOCK), (4, 8 << 20)].iter().enumerate()
        {
            let moves = shuffled(*count, *block);
            let remote = source.registered.exposed();
            let outcome = reader.read(id as u64, peer, remote, &moves);
            assert_eq!(outcome, Outcome::Done, "{count} of {block}");
            assert!(brought(&reader, 1, &moves), "{count} of {block}");
        }
        // What was not asked for is as it was.
        assert!((0..4 << 20).all(|at| source.word(at) == painted(1, at)));
    });
}

#[test]
fn bytes_that_lie_anywhere_come_whole() {
    on_each_stage("moves::bytes_that_lie_anywhere_come_whole", |stage| {
        let (source, reader) = (End::new(stage, 1 << 20), End::new(stage, 1 << 20));
        source.paint(3);
        reader.paint(4);
        let peer = reader.driver.insert(source.driver.address()).unwrap();
        let moves: Vec<Move> = (0..500)
            .map(|at| Move { local: at * 2001 + 1, remote: at * 1999 + 3, len: at % 97 + 1 })
            .collect();
        let byte = |end: &End, at: u64| end.word(at as usize / 8).to_ne_bytes()[at as usize % 8];
        let expected: Vec<u8> =
            moves.iter().flat_map(|m| (0..m.len).map(|at| byte(&source, m.remote + at))).collect();
        let around: Vec<u8> = moves.iter().map(|m| byte(&reader, m.local + m.len)).collect();
        assert_eq!(reader.read(1, peer, source.registered.exposed(), &moves), Outcome::Done);
        let found: Vec<u8> =
            moves.iter().flat_map(|m| (0..m.len).map(|at| byte(&reader, m.local + at))).collect();
        assert!(found == expected);
        let left: Vec<u8> = moves.iter().map(|m| byte(&reader, m.local + m.len)).collect();
        assert_eq!(left, around);
    });
}

#[test]
fn large_memory_is_registered_in_parts() {
    on_each_stage("moves::large_memory_is_registered_in_parts", |stage| {
        let open = |grain| {
            let config = FabricConfig { grain, ..stage.config() };
            End::with(transport::libfabric::Driver::open(config).unwrap(), 9 << 20)
        };
        let (source, reader) = (open(4 << 20), open(2 << 20));
        let _attention = source.driver.attend();
        assert_eq!(source.registered.exposed().exposures().len(), 3);
        assert_eq!(reader.registered.exposed().exposures().len(), 5);
        source.paint(5);
        let peer = reader.driver.insert(source.driver.address()).unwrap();
        let moves = [Move { local: 1 << 20, remote: 8, len: 8 << 20 }];
        assert_eq!(reader.read(1, peer, source.registered.exposed(), &moves), Outcome::Done);
        assert!(brought(&reader, 5, &moves));
    });
}

#[test]
fn writes_are_counted_by_their_target() {
    on_each_stage("moves::writes_are_counted_by_their_target", |stage| {
        let (writer, target) = (End::new(stage, 8 << 20), End::new(stage, 8 << 20));
        writer.paint(6);
        let peer = writer.driver.insert(target.driver.address()).unwrap();
        // The target need not know the writer to be written to.
        for (id, early) in [(1, true), (2, false)] {
            target.paint(7);
            let moves: Vec<Move> = shuffled(64, BLOCK / 2);
            let counter = target.driver.counter().unwrap();
            let plan = writer.plan(target.registered.exposed(), &moves);
            let total = plan.operations() as u32;
            if early {
                target.driver.expect(counter, total).unwrap();
            }
            writer.submit(id, peer, WorkKind::Counted(counter), plan);
            assert_eq!(writer.outcome(id), Outcome::Done);
            if !early {
                target.driver.expect(counter, total).unwrap();
            }
            assert_eq!(target.hear_within(PATIENCE), [Notice::Arrived { counter }]);
            for bytes in moves {
                let (to, from) = (bytes.remote as usize / 8, bytes.local as usize / 8);
                let whole = (0..bytes.len as usize / 8)
                    .all(|at| target.word(to + at) == painted(6, from + at));
                assert!(whole);
            }
            assert_eq!(target.driver.expect(counter, total), Err(CounterError::Unknown));
        }
        assert_eq!(target.driver.strays(), 0);
        let moves = [Move { local: 0, remote: 4096, len: 4096 }];
        writer.submit(3, peer, WorkKind::Write, writer.plan(target.registered.exposed(), &moves));
        assert_eq!(writer.outcome(3), Outcome::Done);
    });
}

#[test]
fn what_cannot_be_is_said_at_once() {
    on_each_stage("moves::what_cannot_be_is_said_at_once", |stage| {
        let config = FabricConfig { provider: "no_such".to_owned(), ..stage.config() };
        let error = transport::libfabric::Driver::open(config).err().unwrap();
        assert!(matches!(error, OpenError::NotOffered { .. }), "{error}");
        assert!(error.to_string().contains("no_such"), "{error}");
        let config = FabricConfig { max_works: 1, ..stage.config() };
        let end = End::with(transport::libfabric::Driver::open(config).unwrap(), 4096);
        for address in [&[][..], &[0; 3], &[255; 300]] {
            let error = end.driver.insert(address).unwrap_err();
            assert!(matches!(error, PeerError::Address { .. }), "{error}");
        }
        let peer = end.driver.insert(end.driver.address()).unwrap();
        end.submit(1, peer, WorkKind::Read, end.driver.plan());
        let work = transport::libfabric::Work {
            id: transport::libfabric::WorkId(2),
            peer,
            kind: WorkKind::Read,
            plan: end.driver.plan(),
        };
        let rejected = end.driver.submit(work.clone()).unwrap_err();
        assert_eq!((rejected.why, &*rejected.work), (WorkErrorKind::QueueFull, &work));
        assert_eq!(end.outcome(1), Outcome::Done);
        end.submit(2, peer, WorkKind::Read, end.driver.plan());
        let rejected = end.driver.submit(work).unwrap_err();
        assert_eq!(rejected.why, WorkErrorKind::IdInUse);
        assert_eq!(end.outcome(2), Outcome::Done);
        end.submit(2, peer, WorkKind::Read, end.driver.plan());
        assert_eq!(end.outcome(2), Outcome::Done);
        end.driver.deregister(&end.registered).unwrap();
        assert!(end.driver.deregister(&end.registered).is_err());
    });
}

/// The signals that this process catches, a bit each from the first.
fn caught() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

/// The provider `shm` would remove its files in handlers of its own.
#[test]
fn an_open_driver_catches_no_signals() {
    on_each_stage("moves::an_open_driver_catches_no_signals", |stage| {
        let mut end = End::new(stage, 4096);
        let ours = [Signal::INT, Signal::TERM, Signal::ABORT, Signal::ILL];
        let ours = ours.map(|signal| 1 << (signal.as_raw() - 1)).iter().sum::<u64>();
        assert_eq!(caught() & ours, 0, "{:x}", caught());
        end.driver.fence().unwrap();
        assert_eq!(caught() & ours, 0, "{:x}", caught());
    });
}

/// What the other process is to be.
const PART: &str = "KVFERRY_TEST_FABRIC_PART";

/// A process with a painted memory, which ends with its standard input.
pub struct Source {
    pub child: Child,
    stdin: Option<ChildStdin>,
    pub card: String,
}

impl Source {
    pub fn start(stage: &Stage) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["moves::the_other_process", "--exact", "--nocapture"]);
        command.env(PART, "source").env(STAGE, stage.text());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut lines = BufReader::new(stdout).lines();
        let card = lines.find_map(|line| Some(line.unwrap().split_once("card ")?.1.to_owned()));
        Self { child, stdin, card: card.unwrap() }
    }
}

/// How long a source may take to end by itself.
const FAREWELL: Duration = Duration::from_secs(3);

impl Source {
    fn has_ended_well(&mut self) -> bool {
        drop(self.stdin.take());
        let begun = Instant::now();
        while begun.elapsed() < FAREWELL {
            match self.child.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Ok(Some(status)) => return status.success(),
                Err(_) => return false,
            }
        }
        false
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.has_ended_well() {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What is killed leaves its shared memory behind.
        let own = format!("{}:", self.child.id());
        for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&own) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

#[test]
fn the_other_process() {
    if std::env::var(PART).is_err() {
        return;
    }
    // Stopped or not, it does not outlive the test: it holds the pipes on which others wait for
    // what that had to say.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
    on_each_stage("moves::the_other_process", |stage| {
        let end = End::new(stage, 32 << 20);
        end.paint(8);
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "\ncard {}", end.card()).unwrap();
        stdout.flush().unwrap();
        std::io::stdin().lines().for_each(drop);
    });
}

#[test]
fn bytes_are_read_from_another_process() {
    on_each_stage("moves::bytes_are_read_from_another_process", |stage| {
        let source = Source::start(stage);
        let (address, remote) = read_card(&source.card);
        let reader = End::new(stage, 32 << 20);
        let peer = reader.driver.insert(&address).unwrap();
        for (id, (count, block)) in [(1, 4096), (256, BLOCK), (4096, 4096)].iter().enumerate() {
            reader.paint(9);
            let moves = shuffled(*count, *block);
            let begun = Instant::now();
            assert_eq!(reader.read(id as u64, peer, &remote, &moves), Outcome::Done);
            let (took, bytes) = (begun.elapsed(), count * block);
            assert!(brought(&reader, 8, &moves), "{count} of {block}");
            let facts = reader.driver.facts();
            say(&format!(
                "measured: {} of {}: {count} blocks of {block} bytes in {took:?}, {:.2} GB/s",
                facts.provider,
                facts.version,
                bytes as f64 / 1e9 / took.as_secs_f64()
            ));
        }
    });
}
