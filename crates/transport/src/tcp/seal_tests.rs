use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use super::*;
use crate::session::{HELLO_LEN, Tls};

#[path = "../../tests/certs/mod.rs"]
mod certs;

/// Both ends of a session, each with its socket; the first has connected.
fn ends() -> [(TcpStream, Seal); 2] {
    let folder = tempfile::tempdir().unwrap();
    certs::Authority::new().certify(folder.path(), &certs::HERE);
    let [chain, key, ca] = ["cert.pem", "key.pem", "ca.pem"].map(|name| folder.path().join(name));
    let tls = Tls::from_files(&chain, &key, &ca).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let far = listener.accept().unwrap().0;
    let deadline = Instant::now() + Duration::from_secs(10);
    let session = tls.from().unwrap();
    let far = thread::spawn(move || Seal::open(&far, session, deadline).map(|seal| (far, seal)));
    let session = tls.to(IpAddr::from(Ipv4Addr::LOCALHOST)).unwrap();
    let seal = Seal::open(&near, session, deadline).unwrap();
    [(near, seal), far.join().unwrap().unwrap()]
}

fn room(seal: &Seal) -> usize {
    lock(&seal.inward).bytes.capacity()
}

/// A peer may have 16 streams, of which a source reads one: the others cost little.
#[test]
fn a_stream_that_hears_a_hello_has_no_room_for_portions() {
    let [(near, from), (far, to)] = ends();
    assert_eq!(room(&to), 0);
    from.write_all(&near, &[7; HELLO_LEN]).unwrap();
    let mut hello = [0; HELLO_LEN];
    while hello != [7; HELLO_LEN] {
        let _ = to.read(&far, &mut hello);
    }
    assert_eq!(room(&to), SIP);

    from.write_all(&near, &[9; CHUNK]).unwrap();
    let (mut bytes, mut have) = (vec![0; CHUNK], 0);
    while have < CHUNK {
        have += to.read(&far, &mut bytes[have..]).unwrap_or(0);
    }
    assert!(bytes.iter().all(|&byte| byte == 9));
    assert_eq!(room(&to), CHUNK);
}

/// Whoever reads comes back to its clock, whatever it is that came.
#[test]
fn what_is_nothing_whole_is_not_waited_for() {
    let [(mut near, from), (far, to)] = ends();
    let (mut record, mut word) = (Vec::new(), [0; 16]);
    from.encrypt(b"a word", &mut record).unwrap();
    let (start, rest) = record.split_at(9);
    near.write_all(start).unwrap();
    let why = to.read(&far, &mut word).unwrap_err();
    assert_eq!(why.kind(), io::ErrorKind::Interrupted);
    near.write_all(rest).unwrap();
    assert_eq!(to.read(&far, &mut word).unwrap(), 6);
    assert_eq!(&word[..6], b"a word");
}
