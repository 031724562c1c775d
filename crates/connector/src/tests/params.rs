use serde_json::{Value, json};

use super::support::lease_id;
use crate::params::{Address, HandoffParams, ParamsError};

fn params() -> HandoffParams {
    let address =
        Address { engine_id: "p-0".into(), host: "10.0.0.7".into(), port: 5600, tp_size: 8 };
    HandoffParams { lease: lease_id(u64::MAX - 1), address, tokens: 4096 }
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
        ("/remote_host", json!(""), "`remote_host` is absent or not a text of 1 to 1024 bytes"),
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
