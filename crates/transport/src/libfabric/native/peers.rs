//! Peers by their names and by their addresses, of which the library knows each once.

use std::collections::HashMap;
use std::rc::Rc;

use libfabric_sys::abi::fi_addr_t;

use crate::libfabric::FabricPeer;

#[derive(Default)]
pub(super) struct Peers {
    named: HashMap<FabricPeer, (fi_addr_t, Rc<[u8]>)>,
    /// The library's name of an address, and how many peers have it.
    known: HashMap<Rc<[u8]>, (fi_addr_t, usize)>,
}

impl Peers {
    pub(super) fn get(&self, peer: FabricPeer) -> Option<fi_addr_t> {
        self.named.get(&peer).map(|(name, _)| *name)
    }

    /// Adds a peer, and calls `tell` if it is the first of its address: some providers count them
    /// and some forget all of them with one.
    pub(super) fn insert<E>(
        &mut self,
        peer: FabricPeer,
        address: &[u8],
        tell: impl FnOnce() -> Result<fi_addr_t, E>,
    ) -> Result<(), E> {
        let address = self.known.get_key_value(address).map_or_else(|| address.into(), key);
        let name = match self.known.get_mut(&address) {
            Some((name, uses)) => {
                *uses += 1;
                *name
            }
            None => {
                let name = tell()?;
                self.known.insert(Rc::clone(&address), (name, 1));
                name
            }
        };
        self.named.insert(peer, (name, address));
        Ok(())
    }

    /// Forgets a peer; gives the name that the library is to forget if it was the last of its address.
    pub(super) fn remove(&mut self, peer: FabricPeer) -> Option<fi_addr_t> {
        let (name, address) = self.named.remove(&peer)?;
        let (_, uses) = self.known.get_mut(&address)?;
        *uses -= 1;
        if *uses > 0 {
            return None;
        }
        self.known.remove(&address);
        Some(name)
    }

    pub(super) fn clear(&mut self) {
        self.named.clear();
        self.known.clear();
    }
}

fn key<V>((key, _): (&Rc<[u8]>, V)) -> Rc<[u8]> {
    Rc::clone(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_hears_of_the_first_and_of_the_last_use_of_an_address() {
        let mut peers = Peers::default();
        let [a, b, c] = [(); 3].map(|()| FabricPeer::new());
        let fails = || Err("it is told");
        assert_eq!(peers.insert(a, b"x", fails), Err("it is told"));
        assert_eq!((peers.get(a), peers.remove(a)), (None, None));
        assert_eq!(peers.insert(a, b"x", || Ok::<_, &str>(7)), Ok(()));
        assert_eq!(peers.insert(b, b"x", fails), Ok(()));
        assert_eq!(peers.insert(c, b"y", || Ok::<_, &str>(8)), Ok(()));
        assert_eq!([a, b, c].map(|peer| peers.get(peer)), [Some(7), Some(7), Some(8)]);
        assert_eq!((peers.remove(a), peers.remove(a), peers.get(b)), (None, None, Some(7)));
        assert_eq!((peers.remove(b), peers.get(b)), (Some(7), None));
        assert_eq!(peers.insert(a, b"x", || Ok::<_, &str>(9)), Ok(()));
        peers.clear();
        assert_eq!(peers.insert(a, b"y", fails), Err("it is told"));
    }
}
