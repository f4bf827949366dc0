//! Whatever comes between two commands' reads and writes, the right is as the grants are in the end.

use super::super::grant::tests::{grant, user};
use super::*;
use crate::cli::error::scripted;
use common::lock::lock;
use http::Method;
use serde_json::{Value, json};
use std::sync::Mutex;

/// What the hub has, in so far as the commands write it; versions count its writes.
#[derive(Debug, Clone, Default)]
struct There {
    role: Option<ClusterRole>,
    binding: Option<ClusterRoleBinding>,
    works: BTreeSet<&'static str>,
    version: u64,
}

/// One command: what it read of the right, and then what it is about to write.
#[derive(Debug, Clone)]
enum At {
    /// It makes or deletes its Work.
    Work {
        cluster: &'static str,
        is_granted: bool,
    },
    Reads,
    ReadBinding(Box<Option<ClusterRole>>),
    ReadWorks(Box<(Option<ClusterRole>, Option<ClusterRoleBinding>)>),
    Writes(Box<Step>),
    Ended,
}

impl There {
    fn wanted(&self) -> Option<(ClusterRole, ClusterRoleBinding)> {
        user("ann").reach(self.works.iter().map(|cluster| (*cluster, "view")))
    }

    fn next_version(&mut self) -> Option<String> {
        self.version += 1;
        Some(self.version.to_string())
    }

    fn write(&mut self, step: Step) {
        let same = |metadata: Option<&ObjectMeta>, params: &DeleteParams| {
            let version = params.preconditions.as_ref();
            let version = version.and_then(|it| it.resource_version.as_ref());
            metadata.is_some_and(|it| it.resource_version.as_ref() == version)
        };
        match step {
            Step::Done => {}
            Step::Unbind(this) => {
                if same(self.binding.as_ref().map(|it| &it.metadata), &this) {
                    self.binding = None;
                }
            }
            Step::Delete(this) => {
                if same(self.role.as_ref().map(|it| &it.metadata), &this) {
                    self.role = None;
                }
            }
            Step::Create(mut role) => {
                if self.role.is_none() {
                    role.metadata.resource_version = self.next_version();
                    self.role = Some(role);
                }
            }
            Step::Replace(mut role) => {
                let there = self.role.as_ref().map(|it| &it.metadata.resource_version);
                if there == Some(&role.metadata.resource_version) {
                    role.metadata.resource_version = self.next_version();
                    self.role = Some(role);
                }
            }
            Step::Bind(mut binding) => {
                if self.binding.is_none() {
                    binding.metadata.resource_version = self.next_version();
                    self.binding = Some(binding);
                }
            }
        }
    }

    /// One read or write of a command.
    fn goes_on(&mut self, at: At) -> At {
        match at {
            At::Work {
                cluster,
                is_granted,
            } => {
                match is_granted {
                    true => self.works.insert(cluster),
                    false => self.works.remove(cluster),
                };
                At::Reads
            }
            At::Reads => At::ReadBinding(Box::new(self.role.clone())),
            At::ReadBinding(role) => At::ReadWorks(Box::new((*role, self.binding.clone()))),
            At::ReadWorks(read) => {
                let (role, binding) = *read;
                match step(role.as_ref(), binding.as_ref(), self.wanted()) {
                    Step::Done => At::Ended,
                    step => At::Writes(Box::new(step)),
                }
            }
            At::Writes(step) => {
                self.write(*step);
                At::Reads
            }
            At::Ended => At::Ended,
        }
    }

    fn is_as_granted(&self) -> bool {
        let step = step(self.role.as_ref(), self.binding.as_ref(), self.wanted());
        matches!(step, Step::Done)
    }
}

/// Every order in which two commands may go on; returns in how many ways both end.
fn orders(there: &There, one: At, other: At) -> usize {
    let mut seen = BTreeSet::new();
    let mut open = vec![(there.clone(), [one, other])];
    let mut ended = 0;
    while let Some((there, commands)) = open.pop() {
        if !seen.insert(format!("{there:?} {commands:?}")) {
            continue;
        }
        assert!(seen.len() < 20_000, "commands end");
        if let [At::Ended, At::Ended] = commands {
            assert!(there.is_as_granted(), "{there:?}");
            ended += 1;
            continue;
        }
        for which in 0..2 {
            let (mut there, mut commands) = (there.clone(), commands.clone());
            commands[which] = there.goes_on(commands[which].clone());
            open.push((there, commands));
        }
    }
    ended
}

#[test]
fn a_right_is_written_step_by_step() {
    let mut there = There::default();
    there.works.insert("m1");
    for wanted in ["Create", "Bind", "Done"] {
        let step = step(there.role.as_ref(), there.binding.as_ref(), there.wanted());
        assert!(format!("{step:?}").starts_with(wanted), "{step:?}");
        there.write(step);
    }
    there.binding.as_mut().expect("bound").subjects = None;
    there.works.insert("m2");
    for wanted in ["Replace", "Unbind", "Bind", "Done"] {
        let step = step(there.role.as_ref(), there.binding.as_ref(), there.wanted());
        assert!(format!("{step:?}").starts_with(wanted), "{step:?}");
        there.write(step);
    }
    there.works.clear();
    for wanted in ["Unbind", "Delete", "Done"] {
        let step = step(there.role.as_ref(), there.binding.as_ref(), there.wanted());
        assert!(format!("{step:?}").starts_with(wanted), "{step:?}");
        there.write(step);
    }
}

#[test]
fn no_order_of_a_grant_and_a_revocation_loses_either() {
    let mut there = There::default();
    there.works.insert("m1");
    while !there.is_as_granted() {
        let step = step(there.role.as_ref(), there.binding.as_ref(), there.wanted());
        there.write(step);
    }
    let work = |cluster, is_granted| At::Work {
        cluster,
        is_granted,
    };
    // The same cluster, by another role or for another namespace: the rules are equal.
    for (granted, revoked) in [("m1", "m1"), ("m2", "m1")] {
        let ended = orders(&there, work(granted, true), work(revoked, false));
        assert!(ended > 0, "{granted} {revoked}");
    }
}

#[test]
fn a_role_that_names_a_cluster_is_known() {
    let (role, binding) = user("ann")
        .reach([("m1", "view")].into_iter())
        .expect("rights");
    assert!(reaches(&role, "m1") && !reaches(&role, "m2"));
    assert_eq!(Named::bound(&binding), Some(user("ann")));
    let mut other = binding;
    other.metadata.name = Some("somebody-else's".to_owned());
    assert_eq!(Named::bound(&other), None);
}

#[test]
fn what_is_being_revoked_is_not_granted() {
    let cluster = ClusterName::parse("m1").expect("a name");
    let grant = grant(user("ann"), "view", None);
    let mut work = grant.work(&cluster);
    assert!(stays(Some(&work), &grant, &cluster).is_ok());
    work.metadata.deletion_timestamp =
        serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).expect("a time");
    for there in [Some(&work), None] {
        let error = stays(there, &grant, &cluster).expect_err("it goes");
        assert!(
            error
                .to_string()
                .contains("a revocation of the same grant is under way")
        );
    }
}

/// A hub that keeps what is made on it, but in the second of its clusters.
fn hub_without_m2() -> (Hub, scripted::Asked) {
    let there: Mutex<BTreeMap<String, Value>> = Mutex::default();
    let (client, asked) = scripted::hub(move |ask| {
        let mut there = lock(&there);
        if ask.method == Method::POST {
            if ask.path.contains("/karmada-es-m2/") {
                return scripted::refusal(403, "the namespace is being terminated");
            }
            let name = ask.body["metadata"]["name"].as_str().unwrap_or_default();
            there.insert(format!("{}/{name}", ask.path), ask.body.clone());
            return Some((201, ask.body.clone()));
        }
        if ask.path.ends_with("/works") {
            let works = there.iter().filter(|(path, _)| path.contains("/works/"));
            let items: Vec<&Value> = works.map(|(_, work)| work).collect();
            let list = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "WorkList", "metadata": {}, "items": items});
            return Some((200, list));
        }
        match there.get(&ask.path) {
            Some(found) => Some((200, found.clone())),
            None => scripted::refusal(404, "not found"),
        }
    });
    (Hub::new(client), asked)
}

#[tokio::test]
async fn a_cluster_that_refuses_keeps_no_other_from_a_grant() {
    let (hub, asked) = hub_without_m2();
    let ann = user("ann");
    let given = grant(ann.clone(), "view", None);
    let clusters = ["m1", "m2", "m3"];
    let grants = clusters.map(|cluster| (cluster.to_owned(), given.clone()));
    let put = hub.put_each(grants.into(), &ann).await;
    let have: Vec<&str> = put.grants.keys().map(String::as_str).collect();
    assert_eq!(have, ["m1", "m3"]);
    assert_eq!(put.new.len(), 2);
    let [error] = put.failed.as_slice() else {
        panic!("{:?}", put.failed);
    };
    assert_eq!(error.kind, Kind::Denied);
    assert!(error.to_string().contains("for cluster m2"), "{error}");
    let posts = scripted::by(&asked, &Method::POST);
    let role = posts.iter().find(|it| it.path.ends_with("/clusterroles"));
    let names = role.map(|it| &it.body["rules"][0]["resourceNames"]);
    assert_eq!(names, Some(&json!(["m1", "m3"])));
    assert!(
        posts
            .iter()
            .any(|it| it.path.ends_with("/clusterrolebindings"))
    );
}

/// Agents write the statuses of grants too, on a hub of kube-apiserver as deep as they like.
#[tokio::test]
async fn a_status_that_cannot_be_read_keeps_no_grant_from_being_revoked() {
    let ann = user("ann");
    let given = grant(ann.clone(), "view", None);
    let clusters = ["m1", "m2"].map(|name| ClusterName::parse(name).expect("a name"));
    let deep = (0..124).fold(json!(0), |it, _| json!([it]));
    let identifier =
        json!({"ordinal": 0, "version": "v1", "kind": "K", "resource": "", "name": "n"});
    let works = clusters.each_ref().map(|cluster| {
        let mut work = serde_json::to_value(given.work(cluster)).expect("encodes");
        let told = json!({"identifier": identifier, "status": deep});
        work["status"] = json!({"conditions": [], "manifestStatuses": [told]});
        work
    });
    let there = works.to_vec();
    let (client, asked) = scripted::hub(move |ask| {
        let found = there.iter().find(|work| {
            let text = |key: &str| work["metadata"][key].as_str().unwrap_or_default();
            let path = format!("/namespaces/{}/works/{}", text("namespace"), text("name"));
            ask.path.ends_with(&path)
        });
        match found {
            Some(work) => Some((200, work.clone())),
            None if ask.method == Method::POST => scripted::refusal(409, "it exists"),
            None if ask.path.ends_with("/works") => Some((200, json!({"items": there}))),
            None => scripted::refusal(404, "not found"),
        }
    });
    let hub = Hub::new(client);
    let found = hub.works(Some(&ann)).await.expect("listed");
    assert_eq!(found.iter().filter_map(Grant::of).count(), 2);
    let is_new = hub.put(&given, &clusters[0]).await.expect("it is there");
    assert!(!is_new);
    for work in &found {
        hub.delete(work).await.expect("deleted");
    }
    assert_eq!(scripted::by(&asked, &Method::DELETE).len(), 2);
}
