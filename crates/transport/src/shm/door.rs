use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Instant;

use super::catalog::Catalog;
use super::greet::{Fresh, hello};
use super::open::no_look;
use super::outbox::Outbox;
use super::serve::Served;
use super::sys::credentials;
use super::{ShmConfig, tracer};
use crate::ends;
use crate::grants::Grants;
use crate::greet::{GreetError, greet};
use crate::guests::{Caller, Guests, Room, Standing};
use crate::session::{Greeting, Known, Role};

/// Lets readers in.
pub(super) struct Door {
    config: ShmConfig,
    grants: Arc<Grants>,
    catalog: Arc<Catalog>,
    guests: Guests<UnixStream>,
}

impl Caller for UnixStream {
    fn hang_up(&self) {
        // It fails only if the other side has shut it already.
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl ends::Door<UnixListener> for Door {
    fn run(&self, listener: &UnixListener) {
        let accept = || Ok(listener.accept()?.0);
        self.guests.run(accept, |number, socket| self.receive(number, socket));
    }

    fn close(&self) {
        self.guests.close();
    }
}

impl Door {
    pub(super) fn new(config: ShmConfig, grants: Arc<Grants>, catalog: Arc<Catalog>) -> Self {
        let room = Room { readers: config.max_readers, strangers: config.max_strangers };
        Self { config, grants, catalog, guests: Guests::new(room) }
    }

    /// Gets to know who is at a socket, and serves.
    fn receive(&self, number: u64, socket: &Arc<UnixStream>) -> Result<(), GreetError> {
        let peer = credentials(socket)?;
        if peer.user != rustix::process::geteuid().as_raw() {
            return Err(GreetError::Unexpected("another user's process"));
        }
        let known = self.introduce(socket)?;
        self.guests.promote(number, Standing::Reader)?;
        tracer::allow(peer.pid);
        let outbox = Arc::new(Outbox::new()?);
        outbox.adopt(Arc::clone(socket));
        outbox.push(known.last_word, None);
        outbox.open();
        self.catalog.enter(number, Arc::clone(&outbox));
        let served = Served {
            reader: known.hello.agent,
            cut_after: self.config.cut_after,
            grants: &self.grants,
            catalog: &self.catalog,
            socket,
            outbox: &outbox,
        };
        let why = served.run();
        self.catalog.leave(number);
        outbox.close();
        tracing::debug!(reader = known.hello.agent.0, %why, "reader is gone");
        Ok(())
    }

    fn introduce(&self, socket: &UnixStream) -> Result<Known, GreetError> {
        let deadline = Instant::now() + self.config.hello_timeout;
        let own = hello(&self.config, Role::Prefill)?;
        let greeting = Greeting::listener(own, self.config.secret.clone());
        let known = greet(&Fresh { socket, bell: None, look: &no_look }, greeting, deadline)?;
        if known.hello.streams != 1 {
            return Err(GreetError::Unexpected("more than one stream"));
        }
        Ok(known)
    }
}

/// Listens at a name that is no file.
pub(super) fn listen(name: &str) -> io::Result<UnixListener> {
    use std::os::linux::net::SocketAddrExt;
    let place = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    UnixListener::bind_addr(&place)
}
