//! Which clusters are served, by what, and whose agent stops. Pure.
//!
//! A cluster is served when `towline join` made its Secret, which an annotation says, and its own Secret alone: whoever
//! may write Clusters, and not Secrets, can have no other one read, nor have it used elsewhere.

use common::joined::Way;
use common::names::CLUSTER_NAMESPACE;

/// What is known of a Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its UID.
    pub uid: String,
    /// Whether its mode is Push.
    pub push: bool,
    /// Which Secret `towline join` wrote for it, in which version.
    pub joined: Option<String>,
    /// Namespace and name of the Secret it names.
    pub secret: Option<(String, String)>,
    /// Where it says that the member is.
    pub way: Way,
    /// Whether it asks for TLS without verification.
    pub insecure: bool,
    /// Whether it is being deleted by `towline unjoin`.
    pub unregistered: bool,
}

/// By what an agent works: with another one it is started anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ground {
    /// UID of the Cluster.
    pub uid: String,
    /// The version of the Secret.
    pub joined: String,
    /// Where the Cluster says that the member is.
    pub way: Way,
}

/// How it stands with an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is at work.
    Working(Ground),
    /// Its Cluster is gone: it takes itself out of the member, if it was told to.
    Outliving,
    /// It was told to stop.
    Stopping,
}

/// What is to be done for a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Start an agent.
    Start(Ground),
    /// Stop its agent.
    Stop,
    /// Let its agent finish without its Cluster.
    Outlive,
}

/// Why a cluster that was joined is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It names another Secret, or none.
    #[error(
        "spec.secretRef names another Secret than {CLUSTER_NAMESPACE}/{0}, and no other is read for it; run `towline join` again"
    )]
    OtherSecret(String),
    /// It asks for what is not done.
    #[error(
        "spec.insecureSkipTLSVerification is set, and the member is verified always; take it out"
    )]
    Insecure,
}

/// By what the agent of a cluster is to work; none for a cluster that is not ours to serve.
pub fn ground(name: &str, seen: &Seen) -> Result<Option<Ground>, Refusal> {
    let Some(joined) = seen.joined.as_ref().filter(|_| seen.push) else {
        return Ok(None);
    };
    let named = seen.secret.as_ref();
    let named = named.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
    if named != Some((CLUSTER_NAMESPACE, name)) {
        return Err(Refusal::OtherSecret(name.to_owned()));
    }
    if seen.insecure {
        return Err(Refusal::Insecure);
    }
    Ok(Some(Ground {
        uid: seen.uid.clone(),
        joined: joined.clone(),
        way: seen.way.clone(),
    }))
}

/// Whether the agent of a cluster is to leave its member, or may have left it: its Cluster says so, or is gone.
pub fn is_to_leave(seen: Option<&Seen>) -> bool {
    seen.is_none_or(|seen| seen.unregistered)
}

/// Decides about one cluster. `left` is the UID of the Cluster whose agent has left the member.
pub fn decide(
    name: &str,
    seen: Option<&Seen>,
    standing: Option<&Standing>,
    left: Option<&str>,
) -> Option<Order> {
    let wanted = seen.map(|seen| ground(name, seen).ok().flatten());
    match (standing, wanted) {
        (Some(Standing::Stopping), _) | (Some(Standing::Outliving) | None, None) => None,
        (Some(Standing::Working(_)), None) => Some(Order::Outlive),
        (Some(Standing::Working(now)), Some(Some(wanted))) if *now == wanted => None,
        (Some(_), Some(_)) => Some(Order::Stop),
        // While its Cluster is being deleted nobody is started again.
        (None, Some(wanted)) => {
            let wanted = wanted.filter(|wanted| left != Some(wanted.uid.as_str()));
            wanted.map(Order::Start)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn joined(name: &str) -> Seen {
        Seen {
            uid: format!("uid-of-{name}"),
            push: true,
            joined: Some("1".into()),
            secret: Some((CLUSTER_NAMESPACE.into(), name.into())),
            way: Way {
                api_endpoint: Some("https://m".into()),
                proxy_url: None,
            },
            insecure: false,
            unregistered: false,
        }
    }

    fn working(seen: &Seen) -> Standing {
        let ground = ground("m1", seen).expect("served").expect("ours");
        Standing::Working(ground)
    }

    fn decided(seen: Option<&Seen>, standing: Option<Standing>) -> Option<Order> {
        decide("m1", seen, standing.as_ref(), None)
    }

    #[test]
    fn clusters_that_were_joined_are_served_and_no_others() {
        let m1 = joined("m1");
        let start = ground("m1", &m1).expect("served").expect("ours");
        assert_eq!(decided(Some(&m1), None), Some(Order::Start(start)));
        let secret = |namespace: &str, name: &str| Seen {
            secret: Some((namespace.into(), name.into())),
            ..m1.clone()
        };
        let others = [
            Seen {
                push: false,
                ..m1.clone()
            },
            Seen {
                joined: None,
                ..m1.clone()
            },
            Seen {
                secret: None,
                ..m1.clone()
            },
            // Another cluster's, and one that is no cluster's.
            secret(CLUSTER_NAMESPACE, "m2"),
            secret("kube-system", "m1"),
            Seen {
                insecure: true,
                ..m1.clone()
            },
        ];
        for other in &others {
            assert_eq!(decided(Some(other), None), None, "{other:?}");
            let stopped = decided(Some(other), Some(working(&m1)));
            assert_eq!(stopped, Some(Order::Stop), "{other:?}");
        }
    }

    #[test]
    fn an_agent_works_on_until_its_ground_changes() {
        let m1 = joined("m1");
        assert_eq!(decided(Some(&m1), Some(working(&m1))), None);
        for changed in [
            Seen {
                uid: "another".into(),
                ..m1.clone()
            },
            Seen {
                joined: Some("2".into()),
                ..m1.clone()
            },
            Seen {
                way: Way {
                    api_endpoint: Some("https://elsewhere".into()),
                    proxy_url: None,
                },
                ..m1.clone()
            },
        ] {
            let stopped = decided(Some(&changed), Some(working(&m1)));
            assert_eq!(stopped, Some(Order::Stop));
            // Not before the former has ended.
            assert_eq!(decided(Some(&changed), Some(Standing::Stopping)), None);
        }
    }

    #[test]
    fn an_agent_outlives_its_cluster_and_not_the_next_one() {
        let m1 = joined("m1");
        assert_eq!(decided(None, Some(working(&m1))), Some(Order::Outlive));
        assert_eq!(decided(None, Some(Standing::Outliving)), None);
        let next = decided(Some(&m1), Some(Standing::Outliving));
        assert_eq!(next, Some(Order::Stop));
        assert_eq!(decide("m1", Some(&m1), None, Some(&m1.uid)), None);
        assert!(decide("m1", Some(&m1), None, Some("another")).is_some());
    }

    #[test]
    fn an_agent_may_have_left_who_is_unregistered_or_whose_cluster_is_gone() {
        let m1 = joined("m1");
        let unregistered = Seen {
            unregistered: true,
            ..m1.clone()
        };
        for (seen, leaves) in [
            (Some(&m1), false),
            (Some(&unregistered), true),
            (None, true),
        ] {
            assert_eq!(is_to_leave(seen), leaves, "{seen:?}");
        }
        // It is its agent that leaves: it goes on until it has, and is started again if it is not there.
        assert_eq!(decided(Some(&unregistered), Some(working(&m1))), None);
        assert!(decided(Some(&unregistered), None).is_some());
    }

    fn any_seen() -> impl Strategy<Value = Seen> {
        let bits = (0_u8..2, any::<bool>(), any::<bool>(), any::<bool>());
        (bits, 0_u8..3).prop_map(|((uid, push, insecure, own), version)| Seen {
            uid: uid.to_string(),
            push,
            joined: (version > 0).then(|| version.to_string()),
            secret: Some((CLUSTER_NAMESPACE.into(), if own { "a" } else { "b" }.into())),
            way: Way::default(),
            insecure,
            unregistered: false,
        })
    }

    proptest! {
        /// Whatever came before, what is ordered is done in two steps at the most, and then every cluster that is to be
        /// served is, by its own ground, and no other.
        #[test]
        fn orders_lead_to_rest(rounds in proptest::collection::vec(
            proptest::collection::btree_map("[ab]", any_seen(), 0..3), 1..6)
        ) {
            let mut served: BTreeMap<&str, Standing> = BTreeMap::new();
            for seen in &rounds {
                for name in ["a", "b"] {
                    for _ in 0..2 {
                        let order = decide(name, seen.get(name), served.get(name), None);
                        match order {
                            Some(Order::Start(ground)) => {
                                let before = served.insert(name, Standing::Working(ground));
                                prop_assert!(before.is_none(), "two agents of one cluster");
                            }
                            Some(Order::Stop) => {
                                prop_assert!(served.remove(name).is_some());
                            }
                            Some(Order::Outlive) => {
                                served.insert(name, Standing::Outliving);
                            }
                            None => {}
                        }
                    }
                    prop_assert_eq!(decide(name, seen.get(name), served.get(name), None), None);
                    if let Some(cluster) = seen.get(name) {
                        let wanted = ground(name, cluster).ok().flatten().map(Standing::Working);
                        prop_assert_eq!(served.get(name), wanted.as_ref());
                    }
                }
            }
        }
    }
}
