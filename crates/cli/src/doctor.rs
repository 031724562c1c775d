//! `kvferry doctor`: what this host offers and lacks for each provider, and what mends it.

mod cuda;
mod finding;
mod libfabric;
mod limits;
mod shm;
mod tcp;

use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::json;

use crate::failure::{Code, Failure};
use crate::output;
use finding::{Finding, Status, Subject};

#[derive(Clone, Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Fail, with exit code 3, where these cannot be used here; several between commas.
    #[arg(long, value_enum, value_name = "PROVIDER[,PROVIDER…]", value_delimiter = ',')]
    require: Vec<Subject>,
}

/// All findings about one subject.
struct Diagnosis {
    subject: Subject,
    findings: Vec<Finding>,
}

/// Looks at this host.
type Look = fn() -> Vec<Finding>;

pub(crate) fn run(arguments: &DoctorArgs, json: bool) -> Result<(), Failure> {
    let looks: [(Subject, Look); 5] = [
        (Subject::Tcp, tcp::look),
        (Subject::Shm, shm::look),
        (Subject::Libfabric, libfabric::look),
        (Subject::Cuda, cuda::look),
        (Subject::Limits, limits::look),
    ];
    let all = looks.map(|(subject, look)| Diagnosis { subject, findings: look() });
    if json {
        output::line(told(&all));
    } else {
        all.iter().for_each(Diagnosis::print);
    }
    require(&all, &arguments.require)
}

fn told(all: &[Diagnosis]) -> serde_json::Value {
    let each = |diagnosis: &Diagnosis| {
        json!({
            "subject": diagnosis.subject,
            "usable": diagnosis.is_usable(),
            "findings": diagnosis.findings,
        })
    };
    json!(all.iter().map(each).collect::<Vec<_>>())
}

/// Refuses a host on which one of these cannot be used.
fn require(all: &[Diagnosis], required: &[Subject]) -> Result<(), Failure> {
    let is_required = |diagnosis: &&Diagnosis| required.contains(&diagnosis.subject);
    let lacking = |diagnosis: &&Diagnosis| !diagnosis.is_usable();
    let Some(diagnosis) = all.iter().filter(is_required).find(lacking) else { return Ok(()) };
    let missing = diagnosis.missing();
    let whats: Vec<&str> = missing.clone().map(|finding| finding.what.as_str()).collect();
    let mends: Vec<&str> = missing.filter_map(|finding| finding.mend.as_deref()).collect();
    let why = format!("{} cannot be used here: {}", diagnosis.subject, whats.join("; "));
    Err(Failure::new(Code::Unsupported, why).hint(mends.join("; ")))
}

impl Diagnosis {
    fn missing(&self) -> impl Iterator<Item = &Finding> + Clone {
        self.findings.iter().filter(|finding| finding.status == Status::Missing)
    }

    fn is_usable(&self) -> bool {
        self.missing().next().is_none()
    }

    fn print(&self) {
        output::title(&self.subject.to_string());
        for finding in &self.findings {
            let (mark, colour) = match finding.status {
                Status::Ok => ("✓", AnsiColor::Green),
                Status::Warn => ("!", AnsiColor::Yellow),
                Status::Missing => ("✗", AnsiColor::Red),
            };
            let style = Style::new().bold().fg_color(Some(colour.into()));
            output::line(format_args!("  {style}{mark}{style:#} {}", finding.what));
            if let Some(mend) = &finding.mend {
                output::line(format_args!("      → {mend}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> [Diagnosis; 2] {
        let warned = Finding::warn("slow", "hurry");
        let lacks = [Finding::missing("no a", "get a"), Finding::missing("no b", "get b")];
        [
            Diagnosis { subject: Subject::Tcp, findings: vec![Finding::ok("fine"), warned] },
            Diagnosis { subject: Subject::Shm, findings: lacks.to_vec() },
        ]
    }

    #[test]
    fn what_is_required_must_be_usable() {
        assert!(require(&host(), &[]).is_ok());
        assert!(require(&host(), &[Subject::Tcp]).is_ok());
        let failure = require(&host(), &[Subject::Tcp, Subject::Shm]).unwrap_err();
        assert_eq!(failure.code, Code::Unsupported);
        assert_eq!(failure.message, "shm cannot be used here: no a; no b");
        assert_eq!(failure.hint.as_deref(), Some("get a; get b"));
    }

    #[test]
    fn what_a_script_reads() {
        let told = told(&host());
        assert_eq!(told[0]["subject"], "tcp");
        assert_eq!((&told[0]["usable"], &told[1]["usable"]), (&json!(true), &json!(false)));
        let finding = json!({ "status": "warn", "what": "slow", "mend": "hurry" });
        assert_eq!(told[0]["findings"][1], finding);
    }
}
