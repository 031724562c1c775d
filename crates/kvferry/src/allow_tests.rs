use super::*;

fn allows(list: &str, address: &str) -> bool {
    list.parse::<AllowList>().unwrap().contains(address.parse().unwrap())
}

#[test]
fn networks_and_single_hosts() {
    let list = "10.1.0.0/16, 192.168.7.1,fd00::/8,";
    for address in ["10.1.0.0", "10.1.255.255", "192.168.7.1", "fd12::1", "::ffff:10.1.2.3"] {
        assert!(allows(list, address), "{address}");
    }
    for address in ["10.2.0.0", "192.168.7.2", "127.0.0.1", "fe80::1", "::1", "::ffff:10.2.0.0"] {
        assert!(!allows(list, address), "{address}");
    }
    // Whatever host stands in front of the length of the network.
    assert!(allows("10.1.2.3/16", "10.1.9.9"));
    assert!(allows("::ffff:10.1.2.3", "10.1.2.3"));
}

#[test]
fn what_is_no_list_is_refused_by_its_entry() {
    let refused = |list: &str| list.parse::<AllowList>().unwrap_err().to_string();
    for nothing in ["", " ", ",,"] {
        assert_eq!(
            refused(nothing),
            "no network is named: write for example 10.0.0.0/8,192.168.7.1"
        );
    }
    for entry in ["localhost", "10.0.0.0/33", "10.0.0", "10.0.0.1:80"] {
        let expected = format!(
            "{entry:?} is no network: write for example 10.0.0.0/8 or 192.168.7.1, not a name"
        );
        assert_eq!(refused(&format!("10.0.0.0/8,{entry}")), expected);
    }
}
