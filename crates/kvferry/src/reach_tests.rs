use std::sync::Arc;

use transport::session::Secret;

use super::*;

fn reach(secret: bool, allow: Option<&str>) -> Reach {
    let secret = secret.then(|| Arc::new(Secret::new(b"a secret of some length").unwrap()));
    let allow = allow.map(|list| list.parse().unwrap());
    Reach::new(&Config { secret, allow, ..Config::default() })
}

fn check(reach: &Reach, found: &str) -> Result<(), String> {
    reach.check("p:1", found.parse().unwrap()).map_err(|why| why.to_string())
}

fn data(reach: &Reach, card: &str, peer: &str) -> Result<String, String> {
    let there = reach.data(card.parse().unwrap(), peer.parse().unwrap());
    there.map(|there| there.to_string()).map_err(|why| why.to_string())
}

#[test]
fn without_a_secret_only_this_host_is_reached() {
    let reach = reach(false, None);
    for own in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(check(&reach, own), Ok(()));
    }
    for other in ["10.0.0.1", "0.0.0.0", "::", "fe80::1", "169.254.169.254"] {
        let refused = "p:1 is not a loopback address: connecting there needs a secret".to_owned();
        assert_eq!(check(&reach, other), Err(refused));
    }
}

#[test]
fn with_a_secret_every_host_is_reached_but_none() {
    let reach = reach(true, None);
    for host in ["127.0.0.1", "10.0.0.1", "fd00::1"] {
        assert_eq!(check(&reach, host), Ok(()));
    }
    for nowhere in ["0.0.0.0", "::", "::ffff:0.0.0.0"] {
        let refused = "p:1 names no host: the prefill engine must advertise one".to_owned();
        assert_eq!(check(&reach, nowhere), Err(refused));
    }
}

#[test]
fn only_what_is_on_the_list_is_reached() {
    let listed = reach(true, Some("10.0.0.0/8"));
    assert_eq!(check(&listed, "10.0.0.1"), Ok(()));
    for other in ["11.0.0.1", "127.0.0.1"] {
        let refused = format!("p:1 is at {other}, which is not on the list of allowed addresses");
        assert_eq!(check(&listed, other), Err(refused));
    }
    // A list is no proof.
    let unproven = reach(false, Some("10.0.0.0/8"));
    let refused = "p:1 is not a loopback address: connecting there needs a secret".to_owned();
    assert_eq!(check(&unproven, "10.0.0.1"), Err(refused));
}

/// A peer must not lead this side's requests to a third host.
#[test]
fn blocks_are_where_the_peer_is() {
    let any = reach(true, None);
    assert_eq!(data(&any, "10.0.0.1:9", "10.0.0.1:1"), Ok("10.0.0.1:9".into()));
    assert_eq!(data(&any, "[::ffff:10.0.0.1]:9", "10.0.0.1:1"), Ok("[::ffff:10.0.0.1]:9".into()));
    assert_eq!(data(&any, "127.0.0.2:9", "127.0.0.1:1"), Ok("127.0.0.2:9".into()));
    for third in ["10.0.0.2:9", "127.0.0.1:9", "169.254.169.254:80", "[fd00::1]:9"] {
        let refused = format!(
            "the prefill engine at 10.0.0.1:1 has its blocks on another host, {third}: only a \
             list of allowed addresses can permit that"
        );
        assert_eq!(data(&any, third, "10.0.0.1:1"), Err(refused));
    }
}

#[test]
fn a_card_without_a_host_means_the_one_that_was_reached() {
    let any = reach(true, None);
    assert_eq!(data(&any, "0.0.0.0:9", "10.0.0.1:1"), Ok("10.0.0.1:9".into()));
    assert_eq!(data(&any, "[::]:9", "10.0.0.1:1"), Ok("10.0.0.1:9".into()));
    assert_eq!(data(&any, "0.0.0.0:9", "[fe80::1%2]:1"), Ok("[fe80::1%2]:9".into()));
}

#[test]
fn a_list_permits_other_hosts_for_blocks() {
    let listed = reach(true, Some("10.0.0.0/8"));
    assert_eq!(data(&listed, "10.0.0.2:9", "10.0.0.1:1"), Ok("10.0.0.2:9".into()));
    let refused = "11.0.0.2:9 is at 11.0.0.2, which is not on the list of allowed addresses";
    assert_eq!(data(&listed, "11.0.0.2:9", "10.0.0.1:1"), Err(refused.into()));
    let refused = "127.0.0.1:9 is at 127.0.0.1, which is not on the list of allowed addresses";
    assert_eq!(data(&listed, "127.0.0.1:9", "10.0.0.1:1"), Err(refused.into()));
}
