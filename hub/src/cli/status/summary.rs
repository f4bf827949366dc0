//! A fleet in numbers and lines, the worst first. Pure.

use crate::cli::check::Finding;
use crate::cli::check::clusters::{Found, Ready};
use crate::cli::get::answer::Answer;
use crate::cli::get::share::Share;
use crate::cli::get::works::Delivery;
use crate::token_secret::Token;
use chrono::{DateTime, Duration, Utc};
use common::api::work::ResourceHealth;
use k8s_openapi::api::core::v1::Secret;
use serde::Serialize;

/// A token is about to end when it has so many hours left.
const TOKEN_HOURS: i64 = 24;

/// What was read of a hub.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Of its API server and its controllers.
    pub(super) hub: Vec<Finding>,
    /// Of its clusters.
    pub(super) clusters: Vec<Found>,
    /// What is propagated.
    pub(super) templates: Vec<Answer>,
    /// Works that no template stands for.
    pub(super) works: Vec<Delivery>,
    /// Secrets of tokens.
    pub(super) tokens: Vec<Secret>,
    /// What this kubeconfig may not see.
    pub(super) hidden: Vec<String>,
}

/// How a template is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum State {
    /// No cluster has it, or not as its policy wants it.
    NotPlaced,
    /// A member did not take it, or the hub cannot make what it should take.
    NotApplied,
    /// A member says that it does not do what it should.
    Unhealthy,
    /// It is in a cluster of which nobody hears.
    Unheard,
    /// Somebody suspended it.
    Suspended,
    /// Members have not answered yet.
    Pending,
    /// All is as it should be.
    Running,
}

impl State {
    pub(super) const ALL: [Self; 7] = [
        Self::NotPlaced,
        Self::NotApplied,
        Self::Unhealthy,
        Self::Unheard,
        Self::Suspended,
        Self::Pending,
        Self::Running,
    ];

    /// As people read it.
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::NotPlaced => "not placed",
            Self::NotApplied => "not applied",
            Self::Unhealthy => "unhealthy",
            Self::Unheard => "unheard",
            Self::Suspended => "suspended",
            Self::Pending => "pending",
            Self::Running => "running",
        }
    }

    fn of(answer: &Answer) -> Self {
        let any = |is: &dyn Fn(&Share) -> bool| answer.clusters.iter().any(is);
        if answer.scheduled == Some(false) || answer.waiting {
            Self::NotPlaced
        } else if answer.degraded || any(&|it| it.applied == Some(false)) {
            Self::NotApplied
        } else if any(&|it| it.health == Some(ResourceHealth::Unhealthy)) {
            Self::Unhealthy
        } else if any(&|it| it.silent.is_some()) {
            Self::Unheard
        } else if any(&|it| it.held_back) {
            Self::Suspended
        } else if answer.scheduled.is_none() && answer.policy.is_some()
            || any(&|it| it.applied.is_none())
        {
            Self::Pending
        } else {
            Self::Running
        }
    }
}

/// Something of the hub itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Part {
    pub(super) part: String,
    pub(super) ok: bool,
    pub(super) message: String,
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cluster {
    pub(super) name: String,
    pub(super) ready: Ready,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since: Option<DateTime<Utc>>,
    /// Everything that is wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<String>,
    pub(super) orphans: i64,
}

impl Cluster {
    pub(super) fn is_well(&self) -> bool {
        self.problems.is_empty() && self.ready == Ready::True
    }
}

/// A template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Template {
    /// `TYPE/NAME`, as commands take it.
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) namespace: Option<String>,
    pub(super) state: State,
    pub(super) clusters: usize,
    /// Everything that is wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) problems: Vec<String>,
}

/// A Work that no template stands for, and of which something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Work {
    pub(super) name: String,
    pub(super) cluster: String,
    pub(super) state: State,
    /// The member's words, or who has them.
    pub(super) message: String,
}

/// Something that ends soon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Ending {
    pub(super) what: String,
    pub(super) ends: DateTime<Utc>,
}

/// A fleet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) hub: Vec<Part>,
    pub(super) clusters: Vec<Cluster>,
    pub(super) templates: Vec<Template>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) works: Vec<Work>,
    pub(super) ending: Vec<Ending>,
    /// What this kubeconfig may not see.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) hidden: Vec<String>,
}

impl Status {
    /// What was seen, in order.
    pub(super) fn of(seen: &Seen, now: DateTime<Utc>) -> Self {
        let mut clusters: Vec<Cluster> = seen.clusters.iter().map(cluster).collect();
        clusters
            .sort_by(|a, b| (a.is_well(), a.ready, &a.name).cmp(&(b.is_well(), b.ready, &b.name)));
        let mut templates: Vec<Template> = seen.templates.iter().map(template).collect();
        templates.sort_by(|a, b| {
            (a.state, &a.namespace, &a.name).cmp(&(b.state, &b.namespace, &b.name))
        });
        let mut works: Vec<Work> = seen.works.iter().filter_map(work).collect();
        works.sort_by(|a, b| (a.state, &a.cluster, &a.name).cmp(&(b.state, &b.cluster, &b.name)));
        let certificates = seen.clusters.iter().filter_map(|it| {
            let what = format!("certificate of cluster {}", it.name);
            let ends = it.certificate.filter(|_| it.is_certificate_late())?;
            Some(Ending { what, ends })
        });
        let tokens = seen.tokens.iter().filter_map(|it| token(it, now));
        let mut ending: Vec<Ending> = certificates.chain(tokens).collect();
        ending.sort_by(|a, b| (a.ends, &a.what).cmp(&(b.ends, &b.what)));
        Self {
            hub: seen.hub.iter().map(part).collect(),
            clusters,
            templates,
            works,
            ending,
            hidden: seen.hidden.clone(),
        }
    }

    /// What is wrong, by name.
    pub(super) fn wrong(&self) -> Vec<String> {
        let clusters = self.clusters.iter().filter(|it| !it.is_well());
        let clusters = clusters.map(|it| format!("cluster.cluster.karmada.io/{}", it.name));
        let templates = self
            .templates
            .iter()
            .filter(|it| it.state < State::Suspended);
        let works = self.works.iter();
        clusters
            .chain(templates.map(|it| it.name.clone()))
            .chain(works.map(|it| format!("work.work.karmada.io/{}", it.name)))
            .collect()
    }

    /// Clusters that are so.
    pub(super) fn ready(&self, ready: Ready) -> usize {
        self.clusters.iter().filter(|it| it.ready == ready).count()
    }

    /// Templates that are so.
    pub(super) fn state(&self, state: State) -> usize {
        self.templates.iter().filter(|it| it.state == state).count()
    }
}

fn part(finding: &Finding) -> Part {
    let (ok, message) = match &finding.seen {
        Ok(seen) => (true, seen.clone()),
        Err(wrong) => (false, format!("{}. {}", wrong.what, wrong.hint)),
    };
    Part {
        part: finding.step.clone(),
        ok,
        message,
    }
}

fn cluster(found: &Found) -> Cluster {
    let wrong = found.findings.iter().filter_map(|it| {
        let wrong = it.seen.as_ref().err()?;
        Some(format!("{}: {}", it.step, wrong.what))
    });
    Cluster {
        name: found.name.clone(),
        ready: found.ready,
        since: found.since,
        problems: wrong.collect(),
        orphans: found.orphans,
    }
}

fn template(answer: &Answer) -> Template {
    Template {
        name: format!("{}/{}", answer.resource(), answer.name),
        namespace: answer.namespace.clone(),
        state: State::of(answer),
        clusters: answer.clusters.iter().filter(|it| !it.leaving).count(),
        problems: answer.problems.iter().map(|it| it.what.clone()).collect(),
    }
}

/// A Work of which its member said that something is wrong.
fn work(delivery: &Delivery) -> Option<Work> {
    let state = if delivery.applied == Some(false) {
        State::NotApplied
    } else if delivery.health == Some(ResourceHealth::Unhealthy) {
        State::Unhealthy
    } else {
        return None;
    };
    Some(Work {
        name: delivery.name.clone(),
        cluster: delivery.cluster.clone(),
        state,
        message: match delivery.message.as_str() {
            "" => format!(
                "`towline why work/{} -C {}` says why",
                delivery.name, delivery.cluster
            ),
            message => message.to_owned(),
        },
    })
}

/// A token with which somebody may still want to register.
fn token(secret: &Secret, now: DateTime<Utc>) -> Option<Ending> {
    let name = secret.metadata.name.as_deref()?;
    let id = name.strip_prefix("bootstrap-token-")?;
    let token = Token::read(secret).ok()?;
    let ends = token.expires?;
    let soon = ends > now && ends - now < Duration::hours(TOKEN_HOURS);
    (soon && !token.is_spent()).then(|| Ending {
        what: format!("token {id}"),
        ends,
    })
}
