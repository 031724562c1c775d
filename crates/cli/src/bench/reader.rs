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
use super::figures::{Measured, Told};
use super::plain::memory::{Memcpy, Readv};
use super::plain::{self, Manner, PlainTcp};
use super::provided::{self, Provided};
use super::providers::{self, Opening, Provider};
use super::rounds::{Pools, measure};
use super::usage::{Usage, check_memory};
use super::words::{Answer, Ask, Bare, CardWords, Plain, Reader as Agent, SOURCE, Wanted};
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
    /// By so many threads.
    Readv(usize),
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
    /// Whether the bare memory of the source is to be read.
    bare: bool,
}

/// What a source has made ready.
struct Ready {
    cards: Vec<CardWords>,
    plain: Option<Plain>,
    bare: Option<Bare>,
}

impl Planned {
    /// Those of a workload, with these providers; the memory of the source can be read without
    /// one where it is a process of this host.
    pub(super) fn all(
        workload: &Workload,
        providers: &[&'static Provider],
        same_host: bool,
    ) -> Vec<Self> {
        let latency = workload.is_latency();
        let threads = if latency { 1 } else { 2 };
        let bare = (1..=threads).map(Self::Readv).filter(|_| same_host);
        let plain = Manner::all(latency).into_iter().map(Self::Plain);
        let providers = providers.iter().map(|provider| Self::Provider(provider));
        [Self::Memcpy].into_iter().chain(bare).chain(plain).chain(providers).collect()
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Memcpy => Memcpy::NAME.to_owned(),
            Self::Readv(threads) => Readv::name_of(*threads),
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
        let all = Planned::all(workload, &self.providers, self.settings.same_host);
        let planned = selected(all, self.settings.case);
        let pools = Pools::of(&planned, workload);
        check_memory(&workload.name, self.memory_here(&planned, workload, pools))?;
        let place = self.place(workload, &planned)?;
        let ready = self.prepare(&place).await?;
        let cases = self.cases(&planned, place, ready)?;
        let settings = self.settings;
        let tell = |told: Told<'_>| match told {
            Told::Round(round) => {
                if settings.json {
                    output::line(json!(round));
                }
                bar.inc(1);
            }
            Told::Skipped(skipped) => {
                if settings.json {
                    output::line(json!({ "failed": skipped }));
                }
            }
        };
        bar.set_message(workload.name.clone());
        measure(workload, pools, cases, settings.rounds, self, tell).await
    }

    /// Bytes that the cases take of this host, with what is shared.
    fn memory_here(&self, planned: &[Planned], workload: &Workload, pools: Pools) -> u64 {
        let any = |wanted: fn(&Planned) -> bool| u64::from(planned.iter().any(wanted));
        let memcpy = any(|one| matches!(one, Planned::Memcpy));
        let mapped = any(|one| matches!(one, Planned::Provider(provider) if provider.shared));
        let pool = workload.pool_bytes();
        let of_source = if self.settings.same_host { pools.source + pool * mapped } else { 0 };
        pools.reader + pool * memcpy + of_source
    }

    /// Whether somebody has said which cases are wanted.
    pub(super) fn has_named_cases(&self) -> bool {
        !self.settings.case.is_empty()
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
        let bare = planned.iter().any(|planned| matches!(planned, Planned::Readv(_)));
        let (endpoints, provided, plain) = (Vec::new(), None, None);
        let mut place = Place { workload, endpoints, provided, plain, bare };
        for planned in planned {
            let Planned::Provider(provider) = planned else { continue };
            let opening = Opening::here(self.trust.clone(), self.settings.streams);
            place.endpoints.push((provider, provider.open(&opening)?));
        }
        let is_plain = |planned: &Planned| matches!(planned, Planned::Plain(_));
        if !planned.iter().all(is_plain) {
            let memory = Arc::new(HostMemory::new(len).map_err(failed)?);
            bytes::touch(memory.words());
            let moves = Arc::clone(&moves);
            place.provided = Some(Arc::new(provided::Target { memory, moves, block }));
        }
        if planned.iter().any(is_plain) {
            let pool = RefCell::new(bytes::touched(len));
            place.plain = Some(Rc::new(plain::Target { pool, moves, block }));
        }
        Ok(place)
    }

    /// Lets the source fill its pools.
    async fn prepare(&mut self, place: &Place<'_>) -> Result<Ready, Failure> {
        let agent = |(provider, endpoint): &(&'static Provider, Box<dyn Endpoint>)| Agent {
            provider: provider.name.to_owned(),
            agent: endpoint.card().agent.0,
        };
        self.link.say(Ask::Prepare(Wanted {
            workload: place.workload.clone(),
            seed: self.settings.seed,
            plain: place.plain.is_some(),
            bare: place.bare,
            readers: place.endpoints.iter().map(agent).collect(),
        }))?;
        match self.link.next().await? {
            Answer::Ready { cards, plain, bare } if cards.len() == place.endpoints.len() => {
                Ok(Ready { cards, plain, bare })
            }
            other => Err(unexpected(&other)),
        }
    }

    fn cases(
        &self,
        planned: &[Planned],
        place: Place<'_>,
        ready: Ready,
    ) -> Result<Vec<Box<dyn Case>>, Failure> {
        let Place { workload, endpoints, provided, plain: sockets, .. } = place;
        let mut endpoints = endpoints.into_iter().zip(ready.cards);
        let missing = || failed("the source serves less than was asked for");
        let case = |planned: &Planned| -> Result<Box<dyn Case>, Failure> {
            let target = provided.as_ref().ok_or_else(missing);
            Ok(match planned {
                Planned::Memcpy => Box::new(Memcpy::new(target?)?),
                Planned::Readv(threads) => {
                    let bare = ready.bare.ok_or_else(missing)?;
                    Box::new(Readv::new(*threads, bare, target?))
                }
                Planned::Plain(manner) => {
                    let (plain, target) = ready.plain.zip(sockets.as_ref()).ok_or_else(missing)?;
                    Box::new(PlainTcp::new(*manner, plain, self.reached, target)?)
                }
                Planned::Provider(_) => {
                    let ((provider, endpoint), card) = endpoints.next().ok_or_else(missing)?;
                    let of = (workload, self.settings.seed);
                    Box::new(Provided::new(provider, endpoint, card, of, target?)?)
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
