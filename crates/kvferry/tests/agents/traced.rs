//! What an operator can trace of a request.

use std::io;
use std::sync::{Arc, Mutex};

use crate::common::{BYTES, D, P};
use kvferry::Config;
use kvferry::kv_layout::PageOrder;
use tracing_subscriber::fmt::format::FmtSpan;

/// Lines that were logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Of each request's span, the line that closes it.
    fn closed(&self) -> Vec<String> {
        let text = self.0.lock().unwrap().clone();
        let text = String::from_utf8(text).unwrap();
        let closed =
            text.lines().filter(|line| line.contains("handoff{") && line.contains("close"));
        closed.map(str::to_owned).collect()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The number that a field of the line has.
fn number(line: &str, field: &str) -> u64 {
    let after =
        line.split(&format!("{field}=")).nth(1).unwrap_or_else(|| panic!("{field}: {line}"));
    after.split([' ', '}']).next().unwrap().parse().unwrap()
}

/// One span for each request, with its peer, its bytes and descriptors, and where the time went.
#[tokio::test]
async fn a_span_for_each_request() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .with_span_events(FmtSpan::CLOSE)
        .finish();
    let _here = tracing::subscriber::set_default(subscriber);
    let mut p = P::start(&Config::default(), PageOrder::Joint).await;
    let d = D::start(&Config::default(), PageOrder::Joint);
    let params = p.offer(1).await;
    d.fetch(1, &params).await.unwrap();
    p.freed(1).await;
    let [received] = &log.closed()[..] else { panic!("{:?}", log.closed()) };
    assert!(received.contains(&format!("peer={}", p.prefill.address())), "{received}");
    assert!(received.contains("outcome=\"received\""), "{received}");
    assert_eq!(number(received, "bytes"), BYTES);
    assert!(number(received, "copies") > 0);
    for stage in ["claim_us", "wait_us", "plan_us", "post_us", "move_us"] {
        number(received, stage);
    }
    // A lease that is over, and a request that nobody wants any more.
    assert!(d.fetch(1, &params).await.is_err());
    let params = p.offer(2).await;
    drop(d.claim(2, &params).await.unwrap());
    let [_, refused, given_up] = &log.closed()[..] else { panic!("{:?}", log.closed()) };
    assert!(refused.contains("outcome=the peer"), "{refused}");
    assert!(!refused.contains("bytes="), "{refused}");
    assert!(given_up.contains("outcome=\"given up\""), "{given_up}");
}
