use std::net::{Ipv4Addr, SocketAddr};

use kvferry::greet::Stream;
use kvferry::{Config, Secret};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::door::Caller;
use super::link::Socket;
use super::*;
use crate::failure::{Code, Failure};

/// What a side hears of bytes after which the other one hangs up.
async fn heard(bytes: &[u8]) -> Result<Ask, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let mut there = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let mut socket = Socket::new(Stream::Plain(listener.accept().await.unwrap().0), "decode");
    let say = async {
        // Whoever has heard enough does not hear it all.
        let _ = there.write_all(bytes).await;
        let _ = there.shutdown().await;
    };
    tokio::join!(say, socket.ear.word()).1
}

#[tokio::test]
async fn lines_that_are_words_and_lines_that_are_none() {
    let word = br#"{"word":{"say":"prompt","request":7,"tokens":40}}"#;
    let lines = [b"\n\n", &word[..], b"\nmore"].concat();
    assert!(matches!(heard(&lines).await, Ok(Ask::Prompt { request: 7, tokens: 40 })));
    let long = vec![b' '; 1 << 20];
    for (bytes, error) in [
        (&b""[..], "it hung up"),
        (word, "it hung up"),
        (b"\n\n", "it hung up"),
        (b"what?\n", "it said what is no word: expected value at line 1 column 1"),
        (
            b"{\"word\":{\"say\":\"\\u001b[31m\"}}\n",
            "it said what is no word: unknown variant `[31m`, expected one of `begin`, `prompt`, \
             `finish`",
        ),
        (&long, "it said a line of more than 262144 bytes"),
    ] {
        let why = heard(bytes).await.unwrap_err();
        assert!(why.message.starts_with(&format!("the decode host is lost: {error}")), "{why:?}");
        assert_eq!(why.code, Code::Peer);
    }
}

/// A terminal does what it is told, and a script reads a line.
#[tokio::test]
async fn a_failure_from_elsewhere_is_one_line_of_letters() {
    let failed = br#"{"failed":{"message":"a\nb\u001b]0;c","hint":"d\r","exit_code":4}}"#;
    let why = heard(&[failed, &b"\n"[..]].concat()).await.unwrap_err();
    assert_eq!((why.code, why.message.as_str()), (Code::Bytes, "on the decode host: ab]0;c"));
    assert_eq!(why.hint.as_deref(), Some("d"));
}

fn proven(secret: &str) -> Config {
    Config { secret: Some(Secret::new(secret.as_bytes()).unwrap().into()), ..Config::default() }
}

async fn calls(address: SocketAddr, config: &Config, word: &[u8]) -> Stream {
    let socket = TcpStream::connect(address).await.unwrap();
    let mut stream = greet::dialler(socket, "127.0.0.1", config).await.unwrap();
    stream.write_all(word).await.unwrap();
    stream
}

/// Nobody loses a place to those who do not say what they want, however many they are.
#[tokio::test]
async fn the_first_who_is_a_decode_side_is_let_in() {
    for config in [proven("as long as a secret must be"), Config::default()] {
        let door = Door::open(&config).await.unwrap();
        let address = door.address();
        let first = tokio::spawn(door.first());
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.push(Stream::Plain(TcpStream::connect(address).await.unwrap()));
        }
        // Each of them is greeted, and then is no decode side's parent: a rank, say.
        for word in [&b"\x07\0\0\0"[..], b"{}\n", b"{\"word\":{\"say\":\"finish\"}}\n"] {
            silent.push(calls(address, &config, word).await);
        }
        let begin = b"{\"word\":{\"say\":\"begin\",\"tokens\":40}}\n";
        let _caller = calls(address, &config, begin).await;
        let Caller { tokens, .. } = first.await.unwrap();
        assert_eq!(tokens, 40);
        // There is no second place, and nobody waits for one.
        assert!(TcpStream::connect(address).await.is_err());
        for mut stranger in silent {
            let mut said = Vec::new();
            let _ = stranger.read_to_end(&mut said).await;
            assert_eq!(said, b"");
        }
    }
}

#[tokio::test]
async fn a_door_beyond_this_host_needs_a_secret() {
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let without = Config { listen: everywhere, ..Config::default() };
    let why = Door::open(&without).await.err().unwrap();
    assert_eq!(why.code, Code::Peer);
    let with = Config { listen: everywhere, ..proven("as long as a secret must be") };
    assert!(Door::open(&with).await.is_ok());
}
