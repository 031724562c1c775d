use std::io;
use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
use std::sync::Arc;

use super::proof::{Side, Transcript};
use super::tls::{self, Binding};
use super::{Channel, HELLO_LEN, Hello, HelloError, PROOF_LEN, Role, Secret, VERSIONS};
use crate::Class;

/// One side of the first words on a socket, without the socket: whoever has it asks for the
/// next [step](Self::step), does it, and asks again.
pub struct Greeting {
    side: Side,
    own: Hello,
    secret: Option<Arc<Secret>>,
    /// Of the TLS session that all this is said in, if it is.
    binding: Option<Binding>,
    state: State,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes.
    Say(Vec<u8>),
    /// Receive so many bytes, at most [`HELLO_LEN`], and give them to [`Greeting::hear`].
    Hear(usize),
    /// Nothing more: the peer is who it should be.
    Known(Box<Known>),
}

/// A peer that is who it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// What it said of itself.
    pub hello: Hello,
    /// Still to be sent, once there is a place for the peer: it counts on that place when it
    /// has heard this. Empty on the side that dialled.
    pub last_word: Vec<u8>,
}

/// Why the peer is refused, or refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GreetingError {
    /// No hello, or one of a version that does not meet ours.
    #[error("the peer is not kvferry: {0}")]
    Hello(#[from] HelloError),
    /// A peer of another part than is expected here.
    #[error("the peer is not {}", part(*role, *channel))]
    Part {
        /// What it should be.
        role: Role,
        /// The channel that should be there.
        channel: Channel,
    },
    /// Only the peer has a secret.
    #[error("the peer has a secret and this side has none: give both the same")]
    OnlyTheirs,
    /// Only this side has a secret.
    #[error("this side has a secret and the peer has none: give both the same")]
    OnlyOurs,
    /// What the peer said proves nothing.
    #[error("the peer has another secret than this side: give both the same")]
    Proof,
    /// The peer says that this side's proof is none.
    #[error("the peer did not take this side's secret for its own: give both the same")]
    NotTaken,
    /// Only the peer speaks TLS.
    #[error("the peer speaks TLS and this side does not: give both certificates, or neither")]
    OnlyTheirTls,
    /// Only this side speaks TLS.
    #[error("this side speaks TLS and the peer does not: give both certificates, or neither")]
    OnlyOurTls,
    /// The peer shows no certificate that this side takes.
    #[error("the peer's certificate is refused: {why}")]
    Certificate {
        /// What is wrong with it.
        why: String,
    },
    /// The peer says that this side's certificate is none that it takes.
    #[error("the peer refuses this side's certificate: {why}")]
    CertificateNotTaken {
        /// What it says is wrong with it.
        why: String,
    },
    /// What comes is no TLS that both sides understand, or was changed on the way.
    #[error("TLS with the peer failed: {why}")]
    Tls {
        /// What is wrong with it.
        why: String,
    },
    /// The peer hung up before it was known.
    #[error("the peer hung up before it said who it is: it is not kvferry, or has many callers")]
    HungUp,
    /// The driver gave what was not asked for.
    #[error("{0} bytes of a greeting that were not asked for")]
    Unasked(usize),
}

impl GreetingError {
    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Hello(HelloError::Version { .. })
            | Self::OnlyTheirs
            | Self::OnlyOurs
            | Self::Proof
            | Self::NotTaken
            | Self::OnlyTheirTls
            | Self::OnlyOurTls
            | Self::Certificate { .. }
            | Self::CertificateNotTaken { .. } => Class::Config,
            Self::Hello(_) | Self::Part { .. } | Self::Tls { .. } => Class::Protocol,
            Self::HungUp => Class::PeerLost,
            Self::Unasked(_) => Class::Bug,
        }
    }
}

/// The peer's hello, and both on the wire.
#[derive(Clone)]
struct Met {
    hello: Hello,
    transcript: Transcript,
}

enum State {
    /// The dialler's hello is to be said.
    Begin,
    AwaitHello,
    /// This side's word is to be said, then the peer's proof is to be heard.
    Say(Vec<u8>, Met),
    AwaitProof(Met),
    Known(Known),
    /// The listener still answers, for the other side's sake.
    Refuse(Vec<u8>, GreetingError),
    Over(GreetingError),
}

impl Greeting {
    /// The side that connected. `own` is what it says of itself; with a secret it proves that,
    /// and wants a proof of the same secret.
    #[must_use]
    pub fn dialler(own: Hello, secret: Option<Arc<Secret>>) -> Self {
        Self::new(Side::Dialler, own, secret, State::Begin)
    }

    /// The side that was connected to. Which stream it is follows from the peer's hello.
    #[must_use]
    pub fn listener(own: Hello, secret: Option<Arc<Secret>>) -> Self {
        Self::new(Side::Listener, own, secret, State::AwaitHello)
    }

    fn new(side: Side, own: Hello, secret: Option<Arc<Secret>>, state: State) -> Self {
        let own = Hello { proves: secret.is_some(), ..own };
        Self { side, own, secret, binding: None, state }
    }

    /// The same inside a TLS session, before the first step: what is proved holds there alone.
    #[must_use]
    pub fn inside(self, session: Binding) -> Self {
        Self { binding: Some(session), ..self }
    }

    /// What to do next. It is asked for once for each word that is said.
    ///
    /// # Errors
    /// [`GreetingError`]: hang up.
    pub fn step(&mut self) -> Result<Step, GreetingError> {
        let (step, next) = match &mut self.state {
            State::Begin => (Step::Say(self.own.encode().to_vec()), State::AwaitHello),
            State::Refuse(word, why) => (Step::Say(std::mem::take(word)), State::Over(why.clone())),
            State::Say(word, met) => {
                (Step::Say(std::mem::take(word)), State::AwaitProof(met.clone()))
            }
            State::AwaitHello => return Ok(Step::Hear(HELLO_LEN)),
            State::AwaitProof(_) => return Ok(Step::Hear(PROOF_LEN)),
            State::Known(known) => return Ok(Step::Known(Box::new(known.clone()))),
            State::Over(why) => return Err(why.clone()),
        };
        self.state = next;
        Ok(step)
    }

    /// Takes the bytes that the last step asked for.
    ///
    /// # Errors
    /// [`GreetingError`]: hang up.
    pub fn hear(&mut self, bytes: &[u8]) -> Result<(), GreetingError> {
        let unasked = GreetingError::Unasked(bytes.len());
        self.state = match &self.state {
            State::AwaitHello => self.met(bytes.try_into().map_err(|_| unasked)?)?,
            State::AwaitProof(met) => self.proved(met, bytes)?,
            _ => return Err(unasked),
        };
        Ok(())
    }

    /// What it means that a step fails now in this way, where it means something, or the TLS
    /// handshake before the first step. `heard` are the bytes that came instead of those asked for.
    #[must_use]
    pub fn broken_off(&self, how: &io::Error, heard: &[u8]) -> Option<GreetingError> {
        if self.binding.is_none() && heard.starts_with(&tls::ALERT) {
            return Some(GreetingError::OnlyTheirTls);
        }
        let hung_up = matches!(how.kind(), UnexpectedEof | ConnectionReset | BrokenPipe);
        let hung_up = hung_up && self.side == Side::Dialler;
        tls::meaning(how).or(hung_up.then_some(GreetingError::HungUp))
    }

    fn met(&mut self, theirs: &[u8; HELLO_LEN]) -> Result<State, GreetingError> {
        if self.side == Side::Listener && theirs.starts_with(&tls::HANDSHAKE) {
            let hello = self.own.encode().to_vec();
            return Ok(State::Refuse(hello, GreetingError::OnlyTheirTls));
        }
        let hello = Hello::decode(theirs)?;
        if self.side == Side::Listener {
            (self.own.stream, self.own.streams) = (hello.stream, hello.streams);
        }
        if let Err(why) = self.fits(&hello) {
            return match self.side {
                Side::Dialler => Err(why),
                Side::Listener => Ok(State::Refuse(self.own.encode().to_vec(), why)),
            };
        }
        let (own, binding) = (self.own.encode(), self.binding);
        let transcript = match self.side {
            Side::Dialler => Transcript { dialler: own, listener: *theirs, binding },
            Side::Listener => Transcript { dialler: *theirs, listener: own, binding },
        };
        Ok(match (&self.secret, self.side) {
            (None, Side::Dialler) => State::Known(Known { hello, last_word: Vec::new() }),
            (None, Side::Listener) => State::Known(Known { hello, last_word: own.to_vec() }),
            (Some(secret), Side::Dialler) => {
                let proof = transcript.proof(secret, self.side).to_vec();
                State::Say(proof, Met { hello, transcript })
            }
            (Some(_), Side::Listener) => State::Say(own.to_vec(), Met { hello, transcript }),
        })
    }

    fn fits(&self, theirs: &Hello) -> Result<(), GreetingError> {
        theirs.agree(&VERSIONS)?;
        let (role, channel) = (self.own.role.other(), self.own.channel);
        if (theirs.role, theirs.channel) != (role, channel) {
            return Err(GreetingError::Part { role, channel });
        }
        match (self.own.proves, theirs.proves) {
            (true, false) => Err(GreetingError::OnlyOurs),
            (false, true) => Err(GreetingError::OnlyTheirs),
            _ => Ok(()),
        }
    }

    fn proved(&self, met: &Met, proof: &[u8]) -> Result<State, GreetingError> {
        let secret = self.secret.as_deref().ok_or(GreetingError::OnlyTheirs)?;
        if !met.transcript.proves(secret, self.side.other(), proof) {
            return match self.side {
                Side::Listener => Ok(State::Refuse(NO_PROOF.to_vec(), GreetingError::Proof)),
                Side::Dialler if proof == NO_PROOF => Err(GreetingError::NotTaken),
                Side::Dialler => Err(GreetingError::Proof),
            };
        }
        let last_word = match self.side {
            Side::Dialler => Vec::new(),
            Side::Listener => met.transcript.proof(secret, self.side).to_vec(),
        };
        Ok(State::Known(Known { hello: met.hello.clone(), last_word }))
    }
}

/// What a listener says instead of its proof when the dialler's is wrong, so that the dialler
/// can tell another secret from a line that broke.
const NO_PROOF: [u8; PROOF_LEN] = [0; PROOF_LEN];

fn part(role: Role, channel: Channel) -> &'static str {
    match (role, channel) {
        (Role::Prefill, Channel::Control) => "a prefill agent on its control channel",
        (Role::Decode, Channel::Control) => "a decode agent on its control channel",
        (Role::Prefill, Channel::Data) => "a source of data",
        (Role::Decode, Channel::Data) => "a reader of data",
    }
}
