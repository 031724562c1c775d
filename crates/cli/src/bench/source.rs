//! The side whose blocks are read, in a process of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kvferry::Config;
use kvferry::transport::memory::HostMemory;
use kvferry::transport::session::Trust;
use kvferry::transport::{AgentId, BoundRegion, Endpoint, Memory};

use super::bytes;
use super::plain::source::PlainSource;
use super::provided::{TOKEN, blocks, regions};
use super::providers::{self, Opening};
use super::usage::{Usage, check_memory};
use super::words::{Answer, Ask, CardWords, READER, Reader, Wanted};
use super::workload::Side;
use crate::failure::{Code, Failure};
use crate::pair::{Door, FirstLoss, Link};

/// Serves the first reader that comes. Gives how many pools it has read.
pub(super) async fn serve(door: Door, config: &Config) -> Result<u64, Failure> {
    let source = Source {
        ip: door.address().ip(),
        trust: Trust { secret: config.secret.clone(), tls: config.tls.clone() },
    };
    let (socket, theirs) = door.first_to_say(READER, begun).await;
    let mut link = Link::open(socket, &FirstLoss::new());
    match source.answer(&mut link, theirs).await {
        Ok(pools) => {
            link.say(Answer::Finished)?;
            link.close().await;
            Ok(pools)
        }
        Err(failure) => Err(link.fail(failure).await),
    }
}

fn begun(word: Ask) -> Result<Vec<String>, Failure> {
    match word {
        Ask::Bench { providers } => Ok(providers),
        other => Err(Failure::input(format!("it began with {other:?}"))),
    }
}

struct Source {
    /// Where readers reach this host.
    ip: IpAddr,
    trust: Trust,
}

/// What can be read now.
#[derive(Default)]
struct Stock {
    endpoints: Vec<Box<dyn Endpoint>>,
    plain: Option<PlainSource>,
}

impl Source {
    /// Answers until nothing more is asked for.
    async fn answer(
        &self,
        link: &mut Link<Answer, Ask>,
        mut theirs: Vec<String>,
    ) -> Result<u64, Failure> {
        theirs.retain(|name| providers::find(name).is_some());
        link.say(Answer::Welcome { providers: theirs })?;
        let (mut stock, mut pools) = (Stock::default(), 0);
        loop {
            match link.next().await? {
                Ask::Prepare(wanted) => {
                    // Both would not fit at a time.
                    drop(std::mem::take(&mut stock));
                    stock = self.fill(&wanted)?;
                    pools += 1;
                    link.say(stock.ready())?;
                }
                Ask::Usage => {
                    stock.drain();
                    link.say(Answer::Usage(Usage::take()))?;
                }
                Ask::Finish => return Ok(pools),
                Ask::Bench { .. } => {
                    let why = "the reader said what was not asked: it began twice";
                    return Err(Failure::new(Code::Peer, why));
                }
            }
        }
    }

    fn fill(&self, wanted: &Wanted) -> Result<Stock, Failure> {
        let Wanted { workload, plain, readers, .. } = wanted;
        workload.check().map_err(Failure::input)?;
        let pools = u64::from(*plain) + u64::from(!readers.is_empty());
        check_memory(&format!("the source of {}", workload.name), pools * workload.pool_bytes())?;
        let endpoints = if readers.is_empty() { Vec::new() } else { self.endpoints(wanted)? };
        let plain = plain.then(|| PlainSource::open(self.ip, workload)).transpose()?;
        Ok(Stock { endpoints, plain })
    }

    /// One for each reader, all over the same pool.
    fn endpoints(&self, wanted: &Wanted) -> Result<Vec<Box<dyn Endpoint>>, Failure> {
        let len = usize::try_from(wanted.workload.pool_bytes()).map_err(failed)?;
        let memory = Arc::new(HostMemory::new(len).map_err(failed)?);
        bytes::fill(memory.words());
        let regions = regions(&wanted.workload);
        let open = |reader| self.endpoint(reader, wanted, &memory, &regions);
        wanted.readers.iter().map(open).collect()
    }

    fn endpoint(
        &self,
        reader: &Reader,
        wanted: &Wanted,
        memory: &Arc<HostMemory>,
        regions: &[BoundRegion],
    ) -> Result<Box<dyn Endpoint>, Failure> {
        let unknown = || failed(format!("there is no provider {}", reader.provider));
        let provider = providers::find(&reader.provider).ok_or_else(unknown)?;
        let listen = SocketAddr::new(self.ip, 0);
        let opening = Opening { listen, ..Opening::here(self.trust.clone(), None) };
        let mut endpoint = provider.open(&opening)?;
        endpoint.register(Arc::clone(memory) as Arc<dyn Memory>, regions).map_err(failed)?;
        let blocks = blocks(&wanted.workload, Side::Source, wanted.seed).map_err(failed)?;
        endpoint.grant(AgentId(reader.agent), TOKEN, blocks).map_err(failed)?;
        Ok(endpoint)
    }
}

impl Stock {
    fn ready(&self) -> Answer {
        let cards = self.endpoints.iter().map(|endpoint| {
            let card = endpoint.card();
            CardWords { agent: card.agent.0, address: card.address }
        });
        Answer::Ready { cards: cards.collect(), plain: self.plain.as_ref().map(PlainSource::plain) }
    }

    /// Nothing that is told here matters to who is read, but it must not pile up.
    fn drain(&mut self) {
        let mut events = Vec::new();
        for endpoint in &mut self.endpoints {
            endpoint.poll(&mut events);
        }
    }
}

fn failed(why: impl ToString) -> Failure {
    Failure::new(Code::Failed, why)
}
