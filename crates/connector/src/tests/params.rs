use serde_json::{Value, json};

use super::support::lease_id;
use crate::params::{Address, HandoffParams, ParamsError, RankAddress};

fn params() -> HandoffParams {
    let first = RankAddress { host: "10.0.0.7".into(), port: 5600 };
    let address = Address { engine_id: "p-0".into(), tp_size: 8, first, others: Vec::new() };
    HandoffParams { lease: lease_id(u64::MAX - 1), address, tokens: 4096 }
}

/// Parameters of an engine of three ranks.
fn of_three_ranks() -> HandoffParams {
    let mut params = params();
    let other = |host: &str| RankAddress { host: host.into(), port: 5601 };
    params.address.others = vec![other("10.0.0.7"), other("fd00::8")];
    params
}

#[test]
fn other_ranks_travel_beside_the_first() {
    let value = of_three_ranks().to_json();
    let expected =
        json!([{ "host": "10.0.0.7", "port": 5601 }, { "host": "fd00::8", "port": 5601 }]);
    assert_eq!(value["kvferry"]["other_ranks"], expected);
    assert_eq!(HandoffParams::from_json(&value), Ok(of_three_ranks()));
    assert_eq!(of_three_ranks().address.rank_count(), 3);
    assert_eq!(of_three_ranks().address.ranks().count(), 3);
}

#[test]
fn other_ranks_are_refused_by_name() {
    let other = json!({ "host": "h", "port": 1 });
    let wrong = [
        json!({}),
        json!(["10.0.0.7:5601"]),
        json!([{ "host": "", "port": 1 }]),
        json!([{ "host": "h", "port": 0 }]),
        json!([{ "host": "h", "port": 65536 }]),
        json!([{ "host": "h" }]),
        json!(vec![&other; 4096]),
    ];
    let refused = "`kvferry.other_ranks` is absent or not a list of at most 4095 objects of a host and a port";
    for others in wrong {
        let mut value = params().to_json();
        value["kvferry"]["other_ranks"] = others;
        assert_eq!(HandoffParams::from_json(&value).unwrap_err().to_string(), refused);
    }
    let mut most = params().to_json();
    most["kvferry"]["other_ranks"] = json!(vec![&other; 4095]);
    assert_eq!(HandoffParams::from_json(&most).unwrap().address.rank_count(), 4096);
}

#[test]
fn json_as_it_travels() {
    let expected = json!({
        "do_remote_prefill": true,
        "do_remote_decode": false,
        "remote_engine_id": "p-0",
        "remote_request_id": "prompt",
        "remote_host": "10.0.0.7",
        "remote_port": 5600,
        "tp_size": 8,
        "remote_num_tokens": 4096,
        "transfer_mode": "pull",
        "kvferry": {
            "version": 1,
            "engine": "0000000000000001",
            "nonce": "fffffffffffffffe",
        },
    });
    assert_eq!(params().to_json(), expected);
}

#[test]
fn read_back_with_what_routers_add() {
    let mut value = params().to_json();
    value["remote_block_ids"] = json!([[1, 2]]);
    value["kvferry"]["later"] = json!(true);
    value["dcp_size"] = json!(1);
    assert_eq!(HandoffParams::from_json(&value), Ok(params()));
    value.as_object_mut().unwrap().remove("transfer_mode");
    assert_eq!(HandoffParams::from_json(&value), Ok(params()));
}

const HOST: &str =
    "`remote_host` is absent or not a host name or an IP address of at most 1024 bytes";

#[test]
fn refused_by_name() {
    let table: &[(&str, Value, &str)] = &[
        ("/do_remote_prefill", json!(false), "`do_remote_prefill` is not true"),
        ("/do_remote_prefill", json!("true"), "`do_remote_prefill` is not true"),
        ("/transfer_mode", json!("push"), "`transfer_mode` is not \"pull\""),
        ("/kvferry", json!(1), "`kvferry` is absent or not an object"),
        ("/kvferry/version", json!(2), "version 2 of `kvferry` is not 1"),
        ("/kvferry/version", json!("1"), "`kvferry.version` is absent or not a number"),
        (
            "/kvferry/engine",
            json!("1"),
            "`kvferry.engine` is absent or not 16 lowercase hexadecimal digits",
        ),
        (
            "/kvferry/nonce",
            json!("+00000000000000f"),
            "`kvferry.nonce` is absent or not 16 lowercase hexadecimal digits",
        ),
        (
            "/remote_request_id",
            json!("x".repeat(257)),
            "`remote_request_id` is absent or not a text of 1 to 256 bytes",
        ),
        ("/remote_engine_id", json!(null), "`remote_engine_id` is absent or not a text"),
        ("/remote_host", json!(""), HOST),
        ("/remote_host", json!("10.0.0.7\nERROR"), HOST),
        ("/remote_host", json!("h".repeat(1025)), HOST),
        (
            "/remote_port",
            json!(65_536),
            "`remote_port` is absent or not a port number from 1 to 65535",
        ),
        ("/remote_port", json!(0), "`remote_port` is absent or not a port number from 1 to 65535"),
        ("/tp_size", json!(4097), "`tp_size` is absent or not a number from 1 to 4096"),
        ("/tp_size", json!(-1), "`tp_size` is absent or not a number from 1 to 4096"),
        ("/remote_num_tokens", json!(0), "`remote_num_tokens` is absent or not a positive number"),
    ];
    for (path, wrong, message) in table {
        let mut value = params().to_json();
        *value.pointer_mut(path).unwrap() = wrong.clone();
        assert_eq!(HandoffParams::from_json(&value).unwrap_err().to_string(), *message);
    }
    for other in [json!(null), json!([]), json!({})] {
        assert_eq!(HandoffParams::from_json(&other), Err(ParamsError::NothingRemote));
    }
}

/// As people write it: an IPv6 address in brackets.
#[test]
fn an_address_as_text() {
    let text = |host: &str| RankAddress { host: host.into(), port: 7000 }.to_string();
    let texts = ["10.0.0.7", "fd00::8", "p.example"].map(text);
    assert_eq!(texts, ["10.0.0.7:7000", "[fd00::8]:7000", "p.example:7000"]);
}
