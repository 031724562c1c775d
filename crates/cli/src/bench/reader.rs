//! The side that reads and measures.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use indicatif::ProgressBar;
use kvferry::Config;
use kvferry::transport::Endpoint;
use kvferry::transport::memory::HostMemory;
use kvferry::transport::session::Trust;
use serde_json::json;

use super::case::Case;
use super::figures::{Measured, Round};
use super::plain::{self, Manner, Memcpy, PlainTcp};
use super::provided::{self, Provided};
use super::providers::{self, Opening, Provider};
use super::rounds::{Pools, measure};
use super::usage::{Usage, check_memory};
use super::words::{Answer, Ask, CardWords, Plain, Reader as Agent, SOURCE, Wanted};
use super::workload::Workload;
use super::{bytes, selected};
use crate::failure::{Code, Failure};
use crate::output;
use crate::pair::{FirstLoss, Link, Socket, dial};

/// What is measured, and how it is told.
#[derive(Clone, Copy)]
pub(super) struct Settings<'a> {
    /// Words of the cases' names; none means all.
    pub(super) case: &'a [String],
    pub(super) rounds: u32,
    pub(super) streams: Option<u16>,
    pub(super) seed: u64,
    pub(super) json: bool,
    /// The source is a process of this host, and takes its memory, too.
    pub(super) same_host: bool,
}

/// A case before there is anything to read.
pub(super) enum Planned {
    Memcpy,
    Plain(Manner),
    Provider(&'static Provider),
}

/// A reader that knows a source.
pub(super) struct Reader<'a> {
    link: Link<Ask, Answer>,
    /// Where the source was found.
    reached: SocketAddr,
    providers: Vec<&'static Provider>,
    trust: Trust,
    settings: Settings<'a>,
}

/// What the cases of one workload read from and write into.
struct Place<'a> {
    workload: &'a Workload,
    endpoints: Vec<(&'static Provider, Box<dyn Endpoint>)>,
    provided: Option<Arc<provided::Target>>,
    plain: Option<Rc<plain::Target>>,
    /// Whether plain sockets are to be served.
    sockets: bool,
}

impl Planned {
    /// Those of a workload, with these providers.
    pub(super) fn all(workload: &Workload, providers: &[&'static Provider]) -> Vec<Self> {
        let plain = Manner::all(workload.is_latency()).into_iter().map(Self::Plain);
        let providers = providers.iter().map(|provider| Self::Provider(provider));
        [Self::Memcpy].into_iter().chain(plain).chain(providers).collect()
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Memcpy => Memcpy::NAME.to_owned(),
            Self::Plain(manner) => manner.name(),
            Self::Provider(provider) => provider.name.to_owned(),
        }
    }
}

impl<'a> Reader<'a> {
    /// Introduces this side to the source at `address`.
    pub(super) async fn connect(
        address: &str,
        config: &Config,
        settings: Settings<'a>,
    ) -> Result<Self, Failure> {
        let (stream, reached) = dial(address, SOURCE, config).await?;
        let mut link = Link::open(Socket::new(stream, SOURCE), &FirstLoss::new());
        let ours = providers::PROVIDERS.iter().map(|provider| provider.name.to_owned());
        link.say(Ask::Bench { providers: ours.collect() })?;
        let common = match link.next().await? {
            Answer::Welcome { providers } => providers,
            other => return Err(link.fail(unexpected(&other)).await),
        };
        let providers = common.iter().filter_map(|name| providers::find(name)).collect();
        let trust = Trust { secret: config.secret.clone(), tls: config.tls.clone() };
        Ok(Self { link, reached, providers, trust, settings })
    }

    /// Measures all workloads. Each round is told as it ends where JSON is wanted.
    pub(super) async fn run(
        mut self,
        workloads: &[Workload],
        bar: &ProgressBar,
    ) -> Result<Vec<Measured>, Failure> {
        let mut all = Vec::new();
        for workload in workloads {
            match self.workload(workload, bar).await {
                Ok(measured) => all.push(measured),
                Err(failure) => return Err(self.link.fail(failure).await),
            }
        }
        self.link.say(Ask::Finish)?;
        match self.link.next().await? {
            Answer::Finished => self.link.close().await,
            other => return Err(unexpected(&other)),
        }
        Ok(all)
    }

    async fn workload(
        &mut self,
        workload: &Workload,
        bar: &ProgressBar,
    ) -> Result<Measured, Failure> {
        let planned = selected(Planned::all(workload, &self.providers), self.settings.case);
        let pools = Pools::of(&planned, workload);
        let here = if self.settings.same_host { pools.reader + pools.source } else { pools.reader };
        check_memory(&workload.name, here)?;
        let place = self.place(workload, &planned)?;
        let (cards, plain) = self.prepare(&place).await?;
        let mut cases = self.cases(&planned, place, cards, plain)?;
        let settings = self.settings;
        let tell = |round: &Round| {
            if settings.json {
                output::line(json!(round));
            }
            bar.inc(1);
        };
        bar.set_message(workload.name.clone());
        measure(workload, pools, &mut cases, settings.rounds, self, tell).await
    }

    /// What the source has used up to now.
    pub(super) async fn source_usage(&mut self) -> Result<Usage, Failure> {
        self.link.say(Ask::Usage)?;
        match self.link.next().await? {
            Answer::Usage(usage) => Ok(usage),
            other => Err(unexpected(&other)),
        }
    }

    fn place<'w>(&self, workload: &'w Workload, planned: &[Planned]) -> Result<Place<'w>, Failure> {
        let moves = workload.moves(self.settings.seed).into();
        let block = workload.block as usize;
        let len = usize::try_from(workload.pool_bytes()).map_err(failed)?;
        let sockets = planned.iter().any(|planned| matches!(planned, Planned::Plain(_)));
        let (endpoints, provided, plain) = (Vec::new(), None, None);
        let mut place = Place { workload, endpoints, provided, plain, sockets };
        for planned in planned {
            let Planned::Provider(provider) = planned else { continue };
            let opening = Opening::here(self.trust.clone(), self.settings.streams);
            place.endpoints.push((provider, provider.open(&opening)?));
        }
        if !place.endpoints.is_empty() {
            let memory = Arc::new(HostMemory::new(len).map_err(failed)?);
            bytes::touch(memory.words());
            let moves = Arc::clone(&moves);
            place.provided = Some(Arc::new(provided::Target { memory, moves, block }));
        }
        if place.endpoints.len() < planned.len() {
            let pool = RefCell::new(bytes::touched(len));
            place.plain = Some(Rc::new(plain::Target { pool, moves, block }));
        }
        Ok(place)
    }

    /// Lets the source fill its pools.
    async fn prepare(
        &mut self,
        place: &Place<'_>,
    ) -> Result<(Vec<CardWords>, Option<Plain>), Failure> {
        let agent = |(provider, endpoint): &(&'static Provider, Box<dyn Endpoint>)| Agent {
            provider: provider.name.to_owned(),
            agent: endpoint.card().agent.0,
        };
        self.link.say(Ask::Prepare(Wanted {
            workload: place.workload.clone(),
            seed: self.settings.seed,
            plain: place.sockets,
            readers: place.endpoints.iter().map(agent).collect(),
        }))?;
        match self.link.next().await? {
            Answer::Ready { cards, plain } if cards.len() == place.endpoints.len() => {
                Ok((cards, plain))
            }
            other => Err(unexpected(&other)),
        }
    }

    fn cases(
        &self,
        planned: &[Planned],
        place: Place<'_>,
        cards: Vec<CardWords>,
        plain: Option<Plain>,
    ) -> Result<Vec<Box<dyn Case>>, Failure> {
        let Place { workload, endpoints, provided, plain: target, .. } = place;
        let mut endpoints = endpoints.into_iter().zip(cards);
        let missing = || failed("the source serves less than was asked for");
        let case = |planned: &Planned| -> Result<Box<dyn Case>, Failure> {
            let target = target.as_ref().ok_or_else(missing);
            Ok(match planned {
                Planned::Memcpy => Box::new(Memcpy::new(target?)),
                Planned::Plain(manner) => {
                    let plain = plain.ok_or_else(missing)?;
                    Box::new(PlainTcp::new(*manner, plain, self.reached, target?)?)
                }
                Planned::Provider(_) => {
                    let ((provider, endpoint), card) = endpoints.next().ok_or_else(missing)?;
                    let target = provided.as_ref().ok_or_else(missing)?;
                    let of = (workload, self.settings.seed);
                    Box::new(Provided::new(provider, endpoint, card, of, target)?)
                }
            })
        };
        planned.iter().map(case).collect()
    }
}

fn unexpected(answer: &Answer) -> Failure {
    Failure::new(Code::Peer, format!("the source said what was not asked: {answer:?}"))
}

fn failed(why: impl ToString) -> Failure {
    Failure::new(Code::Failed, why)
}
