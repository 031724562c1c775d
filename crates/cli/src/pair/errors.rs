//! What the library refuses, with the flags that mend it.

use kvferry::connector::Class;
use kvferry::transport::session::GreetingError;
use kvferry::{FetchError, StartError};

use crate::failure::{Code, Failure};

/// What needs a secret, and how to do without.
const SECRET: &str = "give both sides the same --secret-file, or stay on this host with an \
                      address such as 127.0.0.1:0 or [::1]:0";

pub(super) const SAME_SECRET: &str = "give both sides the same --secret-file";

/// What agents under TLS need.
const CERTIFIED: &str = "give both sides --tls-cert, --tls-key and --tls-ca, with certificates of \
                         one authority, that of the prefill side for the address by which it is \
                         reached";

/// What to do about a peer that is refused, where certificates are to blame.
pub(super) fn same_authority(why: &GreetingError) -> Option<&'static str> {
    use GreetingError::{Certificate, CertificateNotTaken, OnlyOurTls, OnlyTheirTls};
    let certificates =
        matches!(why, Certificate { .. } | CertificateNotTaken { .. } | OnlyOurTls | OnlyTheirTls);
    certificates.then_some(CERTIFIED)
}

pub(super) fn failed(why: impl ToString) -> Failure {
    Failure::new(Code::Failed, why)
}

pub(super) fn from_start_error(why: StartError) -> Failure {
    let hint = match &why {
        StartError::NotLoopback { .. } => SECRET,
        StartError::Listen { .. } => {
            "give --listen an address of this host with a free port; port 0 lets the system choose"
        }
        StartError::Unspecified { .. } | StartError::Advertise { .. } => {
            "give --advertise the name or address by which the decode side reaches this host, \
             without a port"
        }
        StartError::Tls(_) => {
            "make a certificate that has the address or name in its subjectAltName"
        }
        _ => return failed(why),
    };
    Failure::new(Code::Peer, why).hint(hint)
}

pub(super) fn from_fetch_error(why: &FetchError) -> Failure {
    let hint = match why {
        FetchError::NotLoopback { .. } => Some(SECRET),
        FetchError::NotAllowed { .. } | FetchError::Elsewhere { .. } => {
            Some("put the address on the list of --allow, if you mean it")
        }
        FetchError::Nowhere { .. } => Some("give the prefill side --advertise"),
        FetchError::Mismatch(_) => Some("give both sides the same MODEL.json"),
        _ => None,
    };
    let failure = Failure::new(code(why), why);
    hint.map_or(failure.clone(), |hint| failure.hint(hint))
}

fn code(why: &FetchError) -> Code {
    match why {
        FetchError::Plan(plan) if plan.is_unsupported() => Code::Unsupported,
        FetchError::Mismatch(_) => Code::Input,
        FetchError::Control { .. }
        | FetchError::NotLoopback { .. }
        | FetchError::NotAllowed { .. }
        | FetchError::Nowhere { .. }
        | FetchError::Elsewhere { .. }
        | FetchError::NoProvider
        | FetchError::Connect(_) => Code::Peer,
        FetchError::Failed(failure) if failure.class() == Class::PeerLost => Code::Peer,
        _ => Code::Failed,
    }
}
