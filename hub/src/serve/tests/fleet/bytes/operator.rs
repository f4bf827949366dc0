//! Who works with the hub meanwhile, over lines of their own that nothing happens to but that hubs die; and what has to
//! hold.

use super::super::super::rig::{CLUSTERS, LEASES, Trace};
use super::super::{REQUESTS, TOLD};
use super::hosts::Ground;
use super::note;
use super::plan::{Plan, UNTIL};
use common::client::{ClientOptions, kubeconfig_client};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::sleep;

/// How often everything is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Everybody has joined within that.
const JOINED_WITHIN: Duration = Duration::from_secs(25);
/// Once nothing goes wrong any more, all is as wanted within that: a connection that stalls is found out by a ping that
/// is not answered, the longest backoff of an agent follows, and of its hub.
const CONVERGED_WITHIN: Duration = Duration::from_secs(150);
/// Certificates that live for ten minutes were renewed by then.
const RENEWED_AT: Duration = Duration::from_secs(420);
/// A cluster may be Unknown so long after something went wrong: the grace, a renewal and a new connection.
const LATELY: Duration = Duration::from_secs(90);
/// Connections that an agent may have more than before anything went wrong.
const SPARE: usize = 2;

pub(super) struct Operator {
    ground: Ground,
    plan: Plan,
    /// What the Work of each member says, as it was answered last.
    wanted: Vec<u64>,
    members: Vec<Server>,
    /// Connections of each agent before anything went wrong.
    before: Vec<usize>,
}

/// One API server, and where it is told what it answers.
struct Server {
    client: Client,
    name: String,
    trace: Trace,
}

impl Server {
    async fn at(ground: &Ground, of: &str) -> Result<Self, String> {
        let options = ClientOptions::new("operator");
        let env = ground.env(99, "the operator");
        let path = ground.admin(of);
        let made = kubeconfig_client(Some(&path), None, &options, &env).await;
        Ok(Self {
            client: made.map_err(|error| error.to_string())?.0,
            name: of.to_owned(),
            trace: ground.trace.clone(),
        })
    }

    /// The answer's code and object; none where there is none.
    async fn ask(&self, method: &str, path: &str, body: &Value) -> Option<(StatusCode, Value)> {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let bytes = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = Request::builder().method(method).uri(path);
        let request = request
            .header("content-type", content)
            .body(Body::from(bytes));
        let answer = self.client.send(request.ok()?).await.ok();
        let code = answer.as_ref().map_or(0, |it| it.status().as_u16());
        let told = format!("{} answers {method} {path} by {code}", self.name);
        note(&self.trace, &told);
        let (head, body) = answer?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        Some((
            head.status,
            serde_json::from_slice(&body).unwrap_or_default(),
        ))
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let (code, object) = self.ask("GET", path, &Value::Null).await?;
        code.is_success().then_some(object)
    }
}

fn condition<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|it| it["type"] == type_);
    found.map_or(&Value::Null, |it| &it["status"])
}

fn elapsed() -> Duration {
    turmoil::sim_elapsed().unwrap_or_default()
}

fn work(member: u8) -> String {
    format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m{member}/works")
}

fn told(value: u64) -> Value {
    let told = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "told", "namespace": "default"}, "data": {"says": value.to_string()}});
    json!({"workload": {"manifests": [told]}})
}

impl Operator {
    pub(super) fn new(ground: Ground, plan: Plan) -> Self {
        let wanted = vec![0; usize::from(plan.members)];
        Self {
            ground,
            plan,
            wanted,
            members: Vec::new(),
            before: Vec::new(),
        }
    }

    /// The whole run; what did not hold.
    pub(super) async fn work(mut self) -> Result<(), String> {
        let hub = Server::at(&self.ground, "hub").await?;
        for member in 1..=self.plan.members {
            let of = format!("member{member}");
            self.members.push(Server::at(&self.ground, &of).await?);
        }
        self.join(&hub).await?;
        if let Some(problem) = self.settled(&hub).await {
            return Err(format!("joined: {problem}"));
        }
        self.before = self.ground.connections();
        let changes: Vec<_> = self.plan.changes().collect();
        let mut changes = changes.into_iter().peekable();
        while elapsed() < UNTIL {
            while let Some((_, member)) = changes.next_if(|(at, _)| *at <= elapsed()) {
                self.change(&hub, member).await;
            }
            self.look(&hub).await?;
            sleep(LOOK).await;
        }
        let deadline = elapsed() + CONVERGED_WITHIN;
        while let Some(problem) = self.missing(&hub).await {
            if elapsed() > deadline {
                return Err(format!("converged within {CONVERGED_WITHIN:?}: {problem}"));
            }
            sleep(LOOK).await;
        }
        while elapsed() < RENEWED_AT {
            self.look(&hub).await?;
            sleep(LOOK).await;
        }
        match self.missing(&hub).await {
            Some(problem) => Err(format!("stays so: {problem}")),
            None => self.rest(&hub).await,
        }
    }

    /// What is missing once everybody had the time to join.
    async fn settled(&self, hub: &Server) -> Option<String> {
        loop {
            let missing = self.missing(hub).await;
            if missing.is_none() || elapsed() > JOINED_WITHIN {
                return missing;
            }
            sleep(LOOK / 2).await;
        }
    }

    /// Everybody joins, and gets a Work.
    async fn join(&self, hub: &Server) -> Result<(), String> {
        for member in 1..=self.plan.members {
            loop {
                let made = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                    "metadata": {"name": "told"}, "spec": told(0)});
                let path = format!("{CLUSTERS}/m{member}");
                let cluster = hub.get(&path).await.unwrap_or_default();
                if condition(&cluster, "Ready") == "True"
                    && let Some((StatusCode::CREATED, _)) =
                        hub.ask("POST", &work(member), &made).await
                {
                    break;
                }
                if elapsed() > JOINED_WITHIN {
                    return Err(format!("joined: m{member} is not Ready"));
                }
                sleep(LOOK / 2).await;
            }
        }
        Ok(())
    }

    /// Writes until it is answered: nobody else does.
    async fn change(&mut self, hub: &Server, member: u8) {
        let wanted = &mut self.wanted[usize::from(member - 1)];
        *wanted += 1;
        let path = format!("{}/told", work(member));
        let patch = json!({"spec": told(*wanted)});
        while !matches!(
            hub.ask("PATCH", &path, &patch).await,
            Some((StatusCode::OK, _))
        ) {
            sleep(LOOK).await;
        }
    }

    /// Nobody is Unknown but for a reason.
    async fn look(&self, hub: &Server) -> Result<(), String> {
        for member in 1..=self.plan.members {
            let Some(cluster) = hub.get(&format!("{CLUSTERS}/m{member}")).await else {
                continue;
            };
            let ready = condition(&cluster, "Ready");
            if ready != "True" && !self.plan.is_troubled(member, elapsed(), LATELY) {
                return Err(format!(
                    "no Unknown without a reason: m{member} is Ready={ready}"
                ));
            }
        }
        Ok(())
    }

    /// The first thing that is not as wanted.
    async fn missing(&self, hub: &Server) -> Option<String> {
        for (member, wanted) in (1..=self.plan.members).zip(&self.wanted) {
            let path = format!("{CLUSTERS}/m{member}");
            let ready = hub.get(&path).await.unwrap_or_default();
            if condition(&ready, "Ready") != "True" {
                return Some(format!(
                    "m{member} is not Ready: {}",
                    ready["status"]["conditions"]
                ));
            }
            let it = hub
                .get(&format!("{}/told", work(member)))
                .await
                .unwrap_or_default();
            if condition(&it, "Applied") != "True" {
                return Some(format!("the Work of m{member}: {}", it["status"]));
            }
            let live = self.members[usize::from(member - 1)]
                .get(TOLD)
                .await
                .unwrap_or_default();
            if live["data"]["says"].as_str() != Some(wanted.to_string().as_str()) {
                return Some(format!(
                    "m{member} has {} where {wanted} is wanted",
                    live["data"]
                ));
            }
        }
        None
    }

    /// Certificates were renewed, and connections that nobody uses are gone.
    async fn rest(&self, hub: &Server) -> Result<(), String> {
        let requests = hub.get(REQUESTS).await.unwrap_or_default();
        let items = requests["items"].as_array().map_or(&[][..], Vec::as_slice);
        for member in 1..=self.plan.members {
            let user = format!("system:karmada:agent:m{member}");
            if !items.iter().any(|it| {
                it["spec"]["username"]
                    .as_str()
                    .is_some_and(|it| it.starts_with(&user))
            }) {
                return Err(format!(
                    "certificates are renewed in time: not that of m{member}"
                ));
            }
            let lease = hub.get(&format!("{LEASES}/m{member}")).await;
            if lease.is_none() {
                return Err(format!("stays so: m{member} has no Lease"));
            }
        }
        let now = self.ground.connections();
        let more = now
            .iter()
            .zip(&self.before)
            .any(|(now, before)| *now > before + SPARE);
        if more {
            return Err(format!(
                "no connection is left: {now:?}, of {:?} before",
                self.before
            ));
        }
        Ok(())
    }
}
