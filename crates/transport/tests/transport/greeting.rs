//! The first words without a socket: who takes whom, and what each side says if not.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;

use transport::AgentId;
use transport::session::{
    Channel, Greeting, GreetingError, HELLO_LEN, Hello, PROOF_LEN, Role, Secret, Step, VERSIONS,
};

fn secret(text: &str) -> Option<Arc<Secret>> {
    Some(Arc::new(Secret::new(text.as_bytes()).unwrap()))
}

fn ours() -> Option<Arc<Secret>> {
    secret("a secret of some length")
}

fn dialling() -> Hello {
    Hello {
        versions: VERSIONS,
        role: Role::Decode,
        channel: Channel::Data,
        stream: 1,
        streams: 2,
        engine: 1,
        agent: AgentId(2),
        random: [3; 16],
        proves: false,
    }
}

fn listening() -> Hello {
    let (role, agent) = (Role::Prefill, AgentId(5));
    Hello { role, agent, stream: 0, streams: 1, engine: 4, random: [6; 16], ..dialling() }
}

/// The bytes of an answer to `dialling`, by somebody with a secret.
fn answer(own: &Hello) -> Vec<u8> {
    Hello { proves: true, stream: 1, streams: 2, ..own.clone() }.encode().to_vec()
}

/// One side of a conversation, and what is on its way to it.
struct End {
    greeting: Greeting,
    inbox: VecDeque<Vec<u8>>,
    outcome: Option<Result<Hello, String>>,
}

impl End {
    fn new(greeting: Greeting) -> Self {
        Self { greeting, inbox: VecDeque::new(), outcome: None }
    }

    /// Goes on until it has to wait, and gives what it says.
    fn go(&mut self, other_hung_up: bool) -> Vec<Vec<u8>> {
        let mut said = Vec::new();
        while self.outcome.is_none() {
            match self.greeting.step() {
                Ok(Step::Say(word)) => said.push(word),
                Ok(Step::Hear(len)) => match self.inbox.pop_front() {
                    Some(word) => {
                        assert_eq!(word.len(), len);
                        let heard = self.greeting.hear(&word);
                        self.outcome = heard.err().map(|why| Err(why.to_string()));
                    }
                    None if other_hung_up => {
                        let meant = self.greeting.broken_off(&ErrorKind::UnexpectedEof.into(), &[]);
                        self.outcome =
                            Some(Err(meant.map_or(HUNG_UP.into(), |why| why.to_string())));
                    }
                    None => break,
                },
                Ok(Step::Known(known)) => {
                    said.extend(Some(known.last_word).filter(|word| !word.is_empty()));
                    self.outcome = Some(Ok(known.hello));
                }
                Err(why) => self.outcome = Some(Err(why.to_string())),
            }
        }
        said
    }
}

/// Lets a dialler and a listener talk to their end, over a wire that may change every word.
fn meet(
    dialler: Greeting,
    listener: Greeting,
    mut wire: impl FnMut(Role, usize, &mut Vec<u8>),
) -> [Result<Hello, String>; 2] {
    let (mut d, mut l) = (End::new(dialler), End::new(listener));
    let mut words = [0; 2];
    while d.outcome.is_none() || l.outcome.is_none() {
        for mut word in d.go(l.outcome.is_some()) {
            wire(Role::Decode, words[0], &mut word);
            words[0] += 1;
            l.inbox.push_back(word);
        }
        for mut word in l.go(d.outcome.is_some()) {
            wire(Role::Prefill, words[1], &mut word);
            words[1] += 1;
            d.inbox.push_back(word);
        }
    }
    [d.outcome.unwrap(), l.outcome.unwrap()]
}

fn messages(ended: [Result<Hello, String>; 2]) -> [String; 2] {
    ended.map(|ended| ended.map_or_else(|why| why, |_| "known".to_owned()))
}

/// What both say when this is all there is between them.
fn between(dialler: Option<Arc<Secret>>, listener: Option<Arc<Secret>>) -> [String; 2] {
    let dialler = Greeting::dialler(dialling(), dialler);
    let listener = Greeting::listener(listening(), listener);
    messages(meet(dialler, listener, |_, _, _| ()))
}

const HUNG_UP: &str = "the other side hung up";
const ONLY_THEIRS: &str = "the peer has a secret and this side has none: give both the same";
const ONLY_OURS: &str = "this side has a secret and the peer has none: give both the same";
const PROOF: &str = "the peer has another secret than this side: give both the same";
const NOT_TAKEN: &str = "the peer did not take this side's secret for its own: give both the same";

#[test]
fn those_with_the_same_secret_or_none_know_each_other() {
    for secret in [ours(), None] {
        let proves = secret.is_some();
        let dialler = Greeting::dialler(dialling(), secret.clone());
        let listener = Greeting::listener(listening(), secret);
        let [theirs, caller] = meet(dialler, listener, |_, _, _| ());
        assert_eq!(caller.unwrap(), Hello { proves, ..dialling() });
        // It answers for the stream that it was asked as.
        assert_eq!(theirs.unwrap(), Hello { proves, stream: 1, streams: 2, ..listening() });
    }
}

#[test]
fn a_secret_on_one_side_only_is_named_on_both() {
    assert_eq!(between(ours(), None), [ONLY_OURS, ONLY_THEIRS]);
    assert_eq!(between(None, ours()), [ONLY_THEIRS, ONLY_OURS]);
}

#[test]
fn another_secret_is_named_on_both() {
    assert_eq!(between(ours(), secret("a secret of same length")), [NOT_TAKEN, PROOF]);
}

/// Whoever changes these bytes can no longer talk to what is out there.
#[test]
fn the_proofs_are_for_ever() {
    let (mut said, mut hellos) = (Vec::new(), 0);
    let dialler = Greeting::dialler(dialling(), ours());
    let listener = Greeting::listener(listening(), ours());
    let ended = meet(dialler, listener, |_, _, word| match word.len() {
        PROOF_LEN => said.push(word.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        _ => hellos += 1,
    });
    assert_eq!(messages(ended), ["known", "known"]);
    assert_eq!(hellos, 2);
    assert_eq!(said, [DIALLER_PROOF, LISTENER_PROOF]);
}

/// Computed by another implementation of HMAC-SHA-256.
const DIALLER_PROOF: &str = "4255bd7d2570a6164f97273c7f161015165296f7bb79cb1fee8fdb11c518c3f1";
const LISTENER_PROOF: &str = "beac1661c869866a870af64a650eecc137489d3c592baf7f774673e2251e8873";

/// Every bit of every word matters: roles, channel, epochs, random numbers, spare bytes.
#[test]
fn nothing_on_the_wire_can_be_changed() {
    let lengths = [HELLO_LEN, PROOF_LEN];
    for side in [Role::Decode, Role::Prefill] {
        for (index, bits) in lengths.into_iter().map(|len| len * 8).enumerate() {
            for bit in 0..bits {
                let dialler = Greeting::dialler(dialling(), ours());
                let listener = Greeting::listener(listening(), ours());
                let [d, l] = meet(dialler, listener, |from, at, word| {
                    if (from, at) == (side, index) {
                        word[bit / 8] ^= 1 << (bit % 8);
                    }
                });
                // Whoever hears the changed word knows; of the listener's last one, only the
                // dialler can.
                let last = side == Role::Prefill && index == 1;
                assert!(d.is_err(), "{side:?} {index} {bit}");
                assert_eq!(l.is_ok(), last, "{side:?} {index} {bit}");
            }
        }
    }
}

/// A data stream whose hello names another agent than the one that proved itself.
#[test]
fn a_proof_of_another_agent_role_or_channel_is_refused() {
    // Bytes of the hello: channel, stream, engine, agent, and a spare one.
    for (at, value) in [(14, 0), (24, 9), (32, 9), (40, 9), (60, 9)] {
        let dialler = Greeting::dialler(dialling(), ours());
        let listener = Greeting::listener(listening(), ours());
        let ended = meet(dialler, listener, |from, index, word| {
            if (from, index) == (Role::Decode, 0) {
                word[at] = value;
            }
        });
        assert_eq!(messages(ended), [NOT_TAKEN, PROOF], "byte {at}");
    }
    let other = Hello { channel: Channel::Control, ..dialling() };
    let ended = meet(
        Greeting::dialler(other, ours()),
        Greeting::listener(listening(), ours()),
        |_, _, _| (),
    );
    let part = ["the peer is not a prefill agent on its control channel"];
    assert_eq!(messages(ended), [part[0], "the peer is not a reader of data"]);
}

/// The claim of having no secret, put on the wire by somebody in between.
#[test]
fn nobody_can_be_talked_out_of_the_proof() {
    for side in [Role::Decode, Role::Prefill] {
        let dialler = Greeting::dialler(dialling(), ours());
        let listener = Greeting::listener(listening(), ours());
        let [d, l] = meet(dialler, listener, |from, index, word| {
            if (from, index) == (side, 0) {
                word[18] = 0;
            }
        });
        assert!(d.is_err() && l.is_err());
    }
}

/// Whoever has no secret can only say again what he heard.
#[test]
fn a_reflected_proof_is_refused() {
    let mut dialler = Greeting::dialler(dialling(), ours());
    let Ok(Step::Say(_)) = dialler.step() else { panic!("no hello") };
    dialler.hear(&Hello { proves: true, ..listening() }.encode()).unwrap();
    let Ok(Step::Say(own)) = dialler.step() else { panic!("no proof") };
    assert_eq!(dialler.hear(&own), Err(GreetingError::Proof));

    // Its whole hello as well: that is the wrong part.
    let mut dialler = Greeting::dialler(dialling(), ours());
    let Ok(Step::Say(own)) = dialler.step() else { panic!("no hello") };
    let (role, channel) = (Role::Prefill, Channel::Data);
    assert_eq!(dialler.hear(&own), Err(GreetingError::Part { role, channel }));
}

#[test]
fn a_replayed_proof_is_refused() {
    let mut recorded = Vec::new();
    let dialler = Greeting::dialler(dialling(), ours());
    let listener = Greeting::listener(listening(), ours());
    let _ = meet(dialler, listener, |from, _, word| recorded.push((from, word.clone())));
    let said = |role| {
        let words = recorded.iter().filter(move |(from, _)| *from == role);
        words.map(|(_, word)| word.clone()).collect::<Vec<_>>()
    };

    // To a listener, which says something new each time.
    let again = Hello { random: [7; 16], ..listening() };
    let mut listener = End::new(Greeting::listener(again.clone(), ours()));
    listener.inbox.extend(said(Role::Decode));
    assert_eq!(listener.go(true), [answer(&again), vec![0; PROOF_LEN]]);
    assert_eq!(listener.outcome, Some(Err(PROOF.to_owned())));

    // To a dialler, which does so too.
    let again = Hello { random: [7; 16], ..dialling() };
    let mut dialler = End::new(Greeting::dialler(again, ours()));
    dialler.inbox.extend(said(Role::Prefill));
    dialler.go(true);
    assert_eq!(dialler.outcome, Some(Err(PROOF.to_owned())));
}

/// A listener proves nothing to whoever has not proved himself.
#[test]
fn nothing_is_proved_to_strangers() {
    let mut listener = End::new(Greeting::listener(listening(), ours()));
    listener.inbox.push_back(Hello { proves: true, ..dialling() }.encode().to_vec());
    listener.inbox.push_back(vec![0; PROOF_LEN]);
    let said = listener.go(true);
    assert_eq!(said, [answer(&listening()), vec![0; PROOF_LEN]]);
    assert_eq!(listener.outcome, Some(Err(PROOF.to_owned())));
}

#[test]
fn what_is_no_hello_is_told_nothing() {
    let mut listener = End::new(Greeting::listener(listening(), None));
    listener.inbox.push_back(vec![0; HELLO_LEN]);
    assert_eq!(listener.go(true).len(), 0);
    let refused = "the peer is not kvferry: not a hello".to_owned();
    assert_eq!(listener.outcome, Some(Err(refused)));
}

#[test]
fn words_that_were_not_asked_for_are_a_bug_of_the_driver() {
    let mut dialler = Greeting::dialler(dialling(), None);
    assert_eq!(dialler.hear(&[0; 3]), Err(GreetingError::Unasked(3)));
    let mut listener = Greeting::listener(listening(), None);
    assert_eq!(listener.hear(&[0; 3]), Err(GreetingError::Unasked(3)));
}
