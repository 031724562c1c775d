//! The first words on every socket, of the control channel and of data alike.
//!
//! A [`Hello`] is 64 bytes of fixed layout that every version can read, for ever; integers are
//! little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..8 | `KVFERRY` and a zero |
//! | 8..12 | oldest and newest protocol version that the sender speaks |
//! | 12, 13 | role and channel |
//! | 14..16, 16..18 | which stream of a channel this is, and how many it has |
//! | 18 | 1 if the sender proves that it has a secret, else 0 |
//! | 19..24 | zero; ignored by readers |
//! | 24..32, 32..40 | epochs of the sender's engine and agent |
//! | 40..56 | random; names the channel that a dialler's streams belong to |
//! | 56..64 | zero; ignored by readers |
//!
//! The dialler speaks first. A listener that cannot make sense of what it hears says nothing
//! and hangs up; one that hears a proper hello answers with its own, so that both sides can
//! name what does not meet: versions, parts, or a [`Secret`] that only one of them has.
//!
//! Then, with a secret, each side proves that it has the same one, the dialler first, in 32
//! bytes:
//!
//! ```text
//! HMAC-SHA-256(secret, label of the prover's side ‖ dialler's hello ‖ listener's hello ‖ binding)
//! ```
//!
//! The hellos go in as they were on the wire. So a proof holds for these two agents, roles and
//! channel and for this socket alone: the other side has added randomness of its own, and the
//! labels tell the sides apart. Nothing else is said before, and a side with a secret never
//! goes on with a peer that proves nothing. A listener answers a wrong proof with 32 zeros
//! instead of its own, and hangs up.
//!
//! A [`Greeting`] is all of this without the socket, so blocking and async sockets share it.
//!
//! With [`Tls`], a stream is wrapped before its hello, and all of the above is said inside. The
//! binding, else empty, is then 32 bytes that only the two ends of this TLS session can know
//! (RFC 5705, label `EXPORTER-kvferry proof`): a proof is worth nothing at the end of another
//! session, whoever stands between the two with a certificate of his own. A listener without TLS
//! that hears the beginning of it answers with its hello all the same, which no TLS can be taken
//! for; a dialler without TLS knows the alert that a listener with it answers.

mod file;
mod greeting;
mod hello;
mod proof;
mod secret;
mod tls;
mod trust;

pub use greeting::{Greeting, GreetingError, Known, Step};
pub use hello::{Channel, HELLO_LEN, Hello, HelloError, Role, VERSIONS};
pub use proof::PROOF_LEN;
pub use secret::{Secret, SecretError};
pub use tls::{Binding, Tls, TlsError, binding};
pub use trust::Trust;
