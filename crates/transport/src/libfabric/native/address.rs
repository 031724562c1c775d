//! Addresses of endpoints as they come from peers: the library reads as many bytes as its kind of
//! address has, and believes what they say.

use libfabric_sys::constants::{FI_ADDR_STR, FI_SOCKADDR, FI_SOCKADDR_IN, FI_SOCKADDR_IN6};

use super::links::MAX_ADDRESS;
use crate::libfabric::PeerError;

const INTERNET: i32 = libc::AF_INET;
const INTERNET_6: i32 = libc::AF_INET6;

const LEN: usize = size_of::<libc::sockaddr_in>();
const LEN_6: usize = size_of::<libc::sockaddr_in6>();

/// Whether these bytes can be handed to the library, as an address of the same kind as `own`.
pub(super) fn check(format: u32, own: &[u8], address: &[u8]) -> Result<(), PeerError> {
    let rule = |holds: bool, why| if holds { Ok(()) } else { Err(PeerError::Address { why }) };
    rule(!address.is_empty(), "it is empty")?;
    rule(address.len() <= MAX_ADDRESS, "it is longer than any is")?;
    match format {
        FI_SOCKADDR | FI_SOCKADDR_IN | FI_SOCKADDR_IN6 => {
            rule(is_socket(format, address), "it is no socket address of this family")
        }
        FI_ADDR_STR => {
            let end = address.iter().position(|&byte| byte == 0);
            rule(end.is_some_and(|end| end > 0), "it is no text that ends in a zero")
        }
        _ => rule(address.len() == own.len(), "it has another length than this side's"),
    }
}

fn is_socket(format: u32, address: &[u8]) -> bool {
    let Some(&[a, b]) = address.first_chunk() else { return false };
    let family = i32::from(u16::from_ne_bytes([a, b]));
    match (family, address.len()) {
        (INTERNET, LEN) => format != FI_SOCKADDR_IN6,
        (INTERNET_6, LEN_6) => format != FI_SOCKADDR_IN,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(family: i32, len: usize) -> Vec<u8> {
        let mut bytes = vec![1; len];
        bytes[..2].copy_from_slice(&u16::try_from(family).unwrap().to_ne_bytes());
        bytes
    }

    #[test]
    fn only_whole_addresses_of_the_right_kind_reach_the_library() {
        const EFA: u32 = 12;
        let unix = socket(libc::AF_UNIX, LEN);
        for (format, address, good) in [
            (FI_SOCKADDR_IN, socket(INTERNET, LEN), true),
            (FI_SOCKADDR_IN, socket(INTERNET, LEN - 1), false),
            (FI_SOCKADDR_IN, socket(INTERNET, LEN + 1), false),
            (FI_SOCKADDR_IN, socket(INTERNET_6, LEN_6), false),
            (FI_SOCKADDR_IN6, socket(INTERNET_6, LEN_6), true),
            (FI_SOCKADDR_IN6, socket(INTERNET, LEN), false),
            (FI_SOCKADDR, socket(INTERNET_6, LEN_6), true),
            (FI_SOCKADDR, unix, false),
            (FI_SOCKADDR, vec![2], false),
            (FI_ADDR_STR, b"fi_shm://1\0".to_vec(), true),
            (FI_ADDR_STR, b"fi_shm://1".to_vec(), false),
            (FI_ADDR_STR, b"\0".to_vec(), false),
            (FI_ADDR_STR, vec![0; MAX_ADDRESS + 1], false),
            (EFA, vec![7; 32], true),
            (EFA, vec![7; 31], false),
            (EFA, vec![], false),
        ] {
            let own = [0; 32];
            assert_eq!(check(format, &own, &address).is_ok(), good, "{format} {address:?}");
        }
    }
}
