//! What the library's errors mean for who reads them.

use std::io;

use rustls::pki_types::pem;
use rustls::{AlertDescription as Alert, CertificateError as Fault, Error, InvalidMessage};

use super::super::GreetingError;

/// What a failed call on a stream says about the peer, if TLS made it fail.
pub(in super::super) fn meaning(why: &io::Error) -> Option<GreetingError> {
    let why = why.get_ref()?.downcast_ref::<Error>()?;
    Some(match why {
        // The first byte is none of TLS.
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => GreetingError::OnlyOurTls,
        Error::InvalidCertificate(_) | Error::NoCertificatesPresented => {
            GreetingError::Certificate { why: plain(why) }
        }
        Error::AlertReceived(alert) => match refusal(*alert) {
            Some(why) => GreetingError::CertificateNotTaken { why: why.to_owned() },
            None => GreetingError::Tls { why: plain(why) },
        },
        _ => GreetingError::Tls { why: plain(why) },
    })
}

/// An error in words that say what to do, as far as they can.
pub(super) fn plain(why: &Error) -> String {
    match why {
        Error::InvalidCertificate(fault) => certificate(fault),
        Error::NoCertificatesPresented => "it shows none".to_owned(),
        Error::InconsistentKeys(_) => "it is the key of another certificate".to_owned(),
        other => other.to_string(),
    }
}

fn certificate(fault: &Fault) -> String {
    match fault {
        Fault::Expired | Fault::ExpiredContext { .. } => "it has expired",
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => "it is not valid yet",
        Fault::UnknownIssuer | Fault::BadSignature => "none of these authorities has signed it",
        Fault::BadEncoding => "it is malformed",
        Fault::InvalidPurpose | Fault::InvalidPurposeContext { .. } => {
            "it is not for both ends of a connection: its extended key usage, if it has one, must \
             have serverAuth and clientAuth"
        }
        Fault::NotValidForNameContext { expected, presented } => {
            return names(&expected.to_str(), presented);
        }
        other => return other.to_string(),
    }
    .to_owned()
}

/// What is wrong with a file that should be PEM.
pub(super) fn pem(why: &pem::Error) -> String {
    match why {
        pem::Error::MissingSectionEnd { .. } => "what begins in it has no end".to_owned(),
        pem::Error::Base64Decode(_) => "what is in it is not base64".to_owned(),
        other => other.to_string(),
    }
}

fn names(expected: &str, presented: &[String]) -> String {
    match presented {
        [] => format!("it is not for {expected}, nor for any other name (subjectAltName)"),
        names => format!("it is not for {expected}, but for {}", names.join(", ")),
    }
}

/// What the peer says is wrong with this side's certificate, if it says that.
fn refusal(alert: Alert) -> Option<&'static str> {
    Some(match alert {
        Alert::UnknownCA => "none of its authorities has signed it",
        // Of an authority that has the name of another, say.
        Alert::DecryptError => "its signature is wrong",
        Alert::CertificateExpired => "it has expired, or is not valid yet",
        Alert::CertificateRevoked => "it was revoked",
        Alert::CertificateRequired => "it wants one",
        Alert::UnsupportedCertificate => "it is not for this use",
        Alert::BadCertificate => "it is malformed, or not for the name that the peer knows",
        Alert::CertificateUnknown | Alert::AccessDenied => "it does not say why",
        _ => return None,
    })
}
