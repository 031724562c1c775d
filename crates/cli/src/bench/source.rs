//! The side whose blocks are read, in a process of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kvferry::Config;
use kvferry::transport::memory::{HostMemory, SharedMemory};
use kvferry::transport::session::Trust;
use kvferry::transport::{AgentId, Endpoint, Memory};

use super::bytes;
use super::plain::source::PlainSource;
use super::provided::{TOKEN, blocks, regions};
use super::providers::{self, Opening, Provider};
use super::usage::{Usage, check_memory};
use super::words::{Answer, Ask, Bare, CardWords, READER, Reader, Wanted};
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
    bare: Option<Arc<HostMemory>>,
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
        wanted.workload.check().map_err(Failure::input)?;
        let pools = Pools::open(wanted)?;
        let endpoint = |reader| self.endpoint(reader, wanted, &pools);
        let endpoints = wanted.readers.iter().map(endpoint).collect::<Result<_, _>>()?;
        let plain = wanted.plain.then(|| PlainSource::open(self.ip, &wanted.workload));
        Ok(Stock { endpoints, plain: plain.transpose()?, bare: pools.host.filter(|_| wanted.bare) })
    }

    fn endpoint(
        &self,
        reader: &Reader,
        wanted: &Wanted,
        pools: &Pools,
    ) -> Result<Box<dyn Endpoint>, Failure> {
        let unknown = || failed(format!("there is no provider {}", reader.provider));
        let provider = providers::find(&reader.provider).ok_or_else(unknown)?;
        let listen = SocketAddr::new(self.ip, 0);
        let opening = Opening { listen, ..Opening::here(self.trust.clone(), None) };
        let mut endpoint = provider.open(&opening)?;
        let memory = pools.of(provider).ok_or_else(unknown)?;
        endpoint.register(memory, &regions(&wanted.workload)).map_err(failed)?;
        let ids = wanted.workload.ids(Side::Source, wanted.seed).into();
        let blocks = blocks(&wanted.workload, &ids).map_err(failed)?;
        endpoint.grant(AgentId(reader.agent), TOKEN, blocks).map_err(failed)?;
        Ok(endpoint)
    }
}

/// One pool for all endpoints that read the same kind of memory.
struct Pools {
    host: Option<Arc<HostMemory>>,
    shared: Option<Arc<SharedMemory>>,
}

impl Pools {
    /// Those that are wanted, filled.
    fn open(wanted: &Wanted) -> Result<Self, Failure> {
        let any = |shared| {
            let providers = wanted.readers.iter().filter_map(|one| providers::find(&one.provider));
            providers.into_iter().any(|provider| provider.shared == shared)
        };
        let (host, shared) = (any(false) || wanted.bare, any(true));
        let pools = [host, shared, wanted.plain].map(u64::from).iter().sum::<u64>();
        let bytes = wanted.workload.pool_bytes();
        check_memory(&format!("the source of {}", wanted.workload.name), pools * bytes)?;
        let len = usize::try_from(bytes).map_err(failed)?;
        let host = host.then(|| HostMemory::new(len)).transpose().map_err(failed)?;
        let shared = shared.then(|| SharedMemory::new(len)).transpose().map_err(failed)?;
        host.iter().for_each(|memory| bytes::fill(memory.words()));
        shared.iter().for_each(|memory| bytes::fill(memory.words()));
        Ok(Self { host: host.map(Arc::new), shared: shared.map(Arc::new) })
    }

    fn of(&self, provider: &Provider) -> Option<Arc<dyn Memory>> {
        if provider.shared {
            return Some(Arc::clone(self.shared.as_ref()?) as _);
        }
        Some(Arc::clone(self.host.as_ref()?) as _)
    }
}

impl Stock {
    fn ready(&self) -> Answer {
        let cards = self.endpoints.iter().map(|endpoint| {
            let card = endpoint.card();
            CardWords { agent: card.agent.0, address: card.address }
        });
        let bare = self.bare.as_ref().map(|memory| Bare {
            process: std::process::id(),
            base: memory.base().as_ptr().addr() as u64,
        });
        let plain = self.plain.as_ref().map(PlainSource::plain);
        Answer::Ready { cards: cards.collect(), plain, bare }
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
