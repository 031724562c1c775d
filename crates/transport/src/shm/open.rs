use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::address::Address;
use super::atlas::Atlas;
use super::frame::ToReader;
use super::greet::{Fresh, Look, hello};
use super::input::Input;
use super::outbox::Outbox;
use super::process::{Process, Source, ended};
use super::sys::{Credentials, credentials, read_process};
use super::{ShmConfig, Unusable};
use crate::error::{broken, lost};
use crate::greet::{GreetError, greet};
use crate::memory::HostMemory;
use crate::pieces::Pieces;
use crate::session::{Greeting, Role};
use crate::{AgentId, Class, Memory, TransferError};

/// Time between two tries to get into a source's queue.
const QUEUE: Duration = Duration::from_millis(10);

/// Where a source listens, and who must answer.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) agent: AgentId,
}

/// A connection that is ready: the source is known, and its memory can be read.
pub(super) struct Opened {
    pub(super) source: Source,
    pub(super) input: Input,
    pub(super) atlas: Atlas,
    /// Why only what is mapped can be read, if so.
    pub(super) foreign: Result<(), Unusable>,
}

/// Connects, gets to know the source, and finds out whether its memory can be read.
pub(super) fn open(
    target: &Target,
    config: &ShmConfig,
    outbox: &Outbox,
    look: Look<'_>,
) -> Result<Opened, Unusable> {
    let deadline = Instant::now() + config.hello_timeout;
    let system = Unusable::system::<Errno>("make a socket");
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = Arc::new(UnixStream::from(socket.map_err(system)?));
    if !outbox.adopt(Arc::clone(&socket)) {
        return Err(TransferError::Disconnected.into());
    }
    let fresh = Fresh { socket: &socket, bell: Some(outbox.bell()), look };
    dial(&fresh, &target.address, deadline)?;
    let peer = credentials(&socket).map_err(Unusable::system("see who listens"))?;
    let own = rustix::process::geteuid().as_raw();
    if peer.user != own {
        return Err(Unusable::OtherUser { own, theirs: peer.user });
    }
    introduce(&fresh, target, config, deadline)?;
    let process = Process::open(peer.pid)?;
    let source = Source { socket: Arc::clone(&socket), process };
    let opened =
        Opened { source, input: Input::default(), atlas: Atlas::default(), foreign: Ok(()) };
    opened.learn(&fresh, peer, deadline)
}

fn dial(fresh: &Fresh<'_>, address: &Address, deadline: Instant) -> Result<(), Unusable> {
    let name = address.name();
    let unreachable = |why: String| Unusable::NoSocket { name: name.to_owned(), why };
    let place = SocketAddrUnix::new_abstract_name(name.as_bytes());
    let place = place.map_err(|why| unreachable(why.to_string()))?;
    loop {
        match connect(fresh.socket, &place) {
            Ok(()) => return Ok(()),
            // Too many wait to be let in.
            Err(Errno::AGAIN | Errno::INTR) => {
                let paused = fresh.pause(QUEUE, deadline);
                paused.map_err(|why| unreachable(why.to_string()))?;
            }
            Err(why) => return Err(unreachable(why.to_string())),
        }
    }
}

fn introduce(
    fresh: &Fresh<'_>,
    target: &Target,
    config: &ShmConfig,
    deadline: Instant,
) -> Result<(), Unusable> {
    let own = hello(config, Role::Decode).map_err(Unusable::system("draw a random number"))?;
    let greeting = Greeting::dialler(own, config.secret.clone());
    let known = greet(fresh, greeting, deadline).map_err(unknown)?;
    if known.hello.agent != target.agent {
        return Err(Unusable::Greeting { why: "another agent answers there".to_owned() });
    }
    Ok(())
}

/// A source that falls silent or hangs up is lost; any other is not what it should be.
fn unknown(why: GreetError) -> Unusable {
    let lost = match &why {
        GreetError::Io(_) => true,
        GreetError::Greeting(why) => why.class() == Class::PeerLost,
        GreetError::Unexpected(_) => false,
    };
    let why = why.to_string();
    if lost { TransferError::Lost { why }.into() } else { Unusable::Greeting { why } }
}

impl Opened {
    /// Hears of all registrations, and tries to read the nonce.
    fn learn(
        mut self,
        fresh: &Fresh<'_>,
        peer: Credentials,
        deadline: Instant,
    ) -> Result<Self, Unusable> {
        loop {
            while let Some((said, body)) = self.input.next(ToReader::decode)? {
                match said {
                    ToReader::Show { generation, .. } => {
                        self.atlas.take_in(generation, &body, &mut self.input)?;
                    }
                    ToReader::Here { pid, address, nonce } => {
                        self.foreign = self.prove(peer, pid, address, nonce);
                        // What is no more looks like something that is in the way.
                        self.source.is_there()?;
                        return self.checked();
                    }
                    _ => return Err(broken("a word before its time").into()),
                }
            }
            self.wait(fresh, deadline)?;
        }
    }

    pub(super) fn wait(&mut self, fresh: &Fresh<'_>, deadline: Instant) -> Result<(), Unusable> {
        let waited = fresh.wait(PollFlags::IN, deadline);
        waited.map_err(|why| lost(&why))?;
        Ok(self.input.fill(&self.source.socket)?)
    }

    fn checked(self) -> Result<Self, Unusable> {
        match &self.foreign {
            Err(why) if !self.atlas.is_mapped() => Err(why.clone()),
            Err(why) => {
                tracing::info!(%why, "only memory that is mapped here can be read");
                Ok(self)
            }
            Ok(()) => Ok(self),
        }
    }

    /// Reads the source's nonce out of its memory.
    fn prove(&self, peer: Credentials, pid: u32, address: u64, nonce: u64) -> Result<(), Unusable> {
        let process = self.source.process.as_ref().ok_or(Unusable::NoSharedPids)?;
        if u32::try_from(peer.pid) != Ok(pid) {
            return Err(Unusable::NoSharedPids);
        }
        let room = HostMemory::new(1).map_err(Unusable::system("map memory"))?;
        let (mut near, mut far) = (Pieces::new(), Pieces::new());
        near.push(room.base().as_ptr(), size_of::<u64>());
        let address = usize::try_from(address).unwrap_or(0);
        far.push(std::ptr::without_provenance_mut(address), size_of::<u64>());
        // SAFETY: the near piece is in `room`, which is nobody else's and lives until the end.
        let read = unsafe { read_process(process.pid, &mut near, &mut far) };
        let read = read.map_err(|why| match why.raw_os_error() {
            // There is such a process: it is ending, and has no memory any more.
            Some(libc::ESRCH) => ended().into(),
            _ => Unusable::refused(&why),
        })?;
        let found = room.words().first().map(|word| word.load(Relaxed));
        if read == size_of::<u64>() && found == Some(nonce) {
            Ok(())
        } else {
            Err(Unusable::OtherMemory)
        }
    }
}

/// For a thread that has nothing else to look after.
pub(super) fn no_look() -> io::Result<Option<Instant>> {
    Ok(None)
}
