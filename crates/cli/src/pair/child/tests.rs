use super::*;

fn name() -> Name {
    Name::new(Role::Prefill, 0, 1)
}

#[tokio::test]
async fn whoever_asks_a_worker_that_has_ended_is_told() {
    let asked = Asked::new();
    let (reply, mut answers) = mpsc::unbounded_channel();
    assert!(asked.ask(1, reply.clone()) && asked.ask(2, reply.clone()));
    asked.answer(1, Ok(FromWorker::Kept { request: 1 }));
    assert!(matches!(answers.recv().await, Some(Ok(FromWorker::Kept { request: 1 }))));
    asked.close(&name().lost("it ended"));
    let late = answers.recv().await.unwrap().unwrap_err();
    assert_eq!(
        (late.code, late.message.as_str()),
        (Code::Peer, "the prefill worker is lost: it ended")
    );
    assert!(!asked.ask(3, reply));
    asked.answer(2, Ok(FromWorker::Here));
    assert!(answers.recv().await.is_none(), "nobody is left to answer");
}

#[test]
fn a_rank_is_named_where_there_are_several() {
    let failure = Failure::new(Code::Bytes, "request 3: wrong bytes");
    assert_eq!(name().told(failure.clone()).message, "request 3: wrong bytes");
    let rank = Name::new(Role::Decode, 2, 4);
    let told = rank.told(failure.hint("look"));
    assert_eq!(told.message, "decode rank 2: request 3: wrong bytes");
    assert_eq!((told.code, told.hint.as_deref()), (Code::Bytes, Some("look")));
    assert_eq!(rank.lost("it ended").message, "decode rank 2 is lost: it ended");
    assert_eq!(rank.silent(SILENCE).message, "decode rank 2 does not answer: no word in 30 s");
}
