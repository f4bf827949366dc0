//! Which members are asked, by what they said of their APIs; none is asked beforehand. Pure.

use crate::access::FROM;
use crate::cli::kubeconfig::Way;
use common::api::cluster::{ApiEnablement, COMPLETE_API_ENABLEMENTS};
use common::gvk::Gvk;
use common::mapper::Resource;
use kube::core::DynamicObject;
use serde::Deserialize as _;
use serde_json::Value;

/// What stands for the hub among clusters.
const HUB: &str = "hub";

/// A cluster of the hub, with what its agent said that it serves.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    /// All that it serves; none when that is not known.
    serves: Option<Vec<ApiEnablement>>,
}

impl Member {
    /// Reads a Cluster.
    pub(super) fn of(cluster: &DynamicObject) -> Option<Self> {
        let status = &cluster.data["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let mut complete = conditions.filter(|it| it["type"] == COMPLETE_API_ENABLEMENTS);
        let complete = complete.any(|it| it["status"] == "True");
        let said = Vec::<ApiEnablement>::deserialize(&status["apiEnablements"]);
        Some(Self {
            name: cluster.metadata.name.clone()?,
            serves: said.ok().filter(|_| complete),
        })
    }

    /// The versions of a resource that it serves, its own choice first.
    fn versions<'m>(&'m self, resource: &Resource) -> Option<impl Iterator<Item = &'m str>> {
        let (group, plural) = (resource.gvk.group.clone(), resource.plural.clone());
        let fits = move |api: &&ApiEnablement| {
            split(&api.group_version).0 == group && api.resources.iter().any(|it| it.name == plural)
        };
        let serves = self.serves.as_ref()?.iter().filter(fits);
        Some(serves.map(|api| split(&api.group_version).1))
    }
}

/// One place that is asked.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) cluster: String,
    /// What stands before the paths of its API, on the hub.
    pub(super) prefix: String,
    /// The type, in a version that is served there.
    pub(super) resource: Resource,
}

impl Target {
    /// The hub itself.
    pub(super) fn hub(resource: &Resource) -> Self {
        Self {
            cluster: HUB.to_owned(),
            prefix: String::new(),
            resource: resource.clone(),
        }
    }

    /// A member, asked for a type in the version that it serves.
    pub(super) fn member(way: Way, name: &str, resource: Resource) -> Self {
        Self {
            cluster: name.to_owned(),
            prefix: way.path(name),
            resource,
        }
    }

    /// Whether an object there is one that Works keep: of the hub's own nothing is said.
    pub(super) fn adopted(&self, managed: bool) -> &'static str {
        match (self.prefix.is_empty(), managed) {
            (true, _) => "-",
            (false, true) => "Y",
            (false, false) => "N",
        }
    }

    /// An object that was found there, and says so.
    pub(super) fn marked(&self, mut object: Value) -> Value {
        let of_list = &self.resource.gvk;
        for (key, value) in [
            ("apiVersion", of_list.api_version()),
            ("kind", of_list.kind.clone()),
        ] {
            // In a list the kind is said once.
            if object[key].is_null() {
                object[key] = value.into();
            }
        }
        if object["metadata"].is_object() {
            let annotations = &mut object["metadata"]["annotations"];
            if !annotations.is_object() {
                *annotations = Value::Object(serde_json::Map::new());
            }
            annotations[FROM] = self.cluster.clone().into();
        }
        object
    }
}

/// The members that serve a type, and those of which it is not known: in the hub's version where they have that.
pub(super) fn of(members: &[Member], way: Way, resource: &Resource) -> Vec<Target> {
    let of = |member: &Member| {
        let version = match member.versions(resource) {
            None => resource.gvk.version.clone(),
            Some(versions) => {
                let versions: Vec<&str> = versions.collect();
                let same = versions.iter().find(|it| **it == resource.gvk.version);
                (*same.or(versions.first())?).to_owned()
            }
        };
        let mut resource = resource.clone();
        resource.gvk.version = version;
        Some(Target::member(way, &member.name, resource))
    };
    members.iter().filter_map(of).collect()
}

/// The first member that says it serves something of that name: plural or kind, `.GROUP` behind where it is told. What
/// it does not say is whether that lies in namespaces.
pub(super) fn first<'m>(members: &'m [Member], word: &str) -> Option<(&'m str, Resource)> {
    let word = word.to_lowercase();
    let (name, wanted) = match word.split_once('.') {
        Some((name, group)) => (name, Some(group)),
        None => (word.as_str(), None),
    };
    let served = members.iter().flat_map(|member| {
        let apis = member.serves.iter().flatten();
        apis.map(move |api| (member.name.as_str(), api))
    });
    let mut found = served.filter_map(|(member, api)| {
        let (group, _) = split(&api.group_version);
        if wanted.is_some_and(|wanted| wanted != group) {
            return None;
        }
        let mut resources = api.resources.iter();
        let fits = resources.find(|it| it.name == name || it.kind.to_lowercase() == name)?;
        let resource = Resource {
            gvk: Gvk::new(&api.group_version, &fits.kind)?,
            plural: fits.name.clone(),
            namespaced: true,
        };
        Some((member, resource))
    });
    found.next()
}

/// Group and version of an apiVersion.
fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use kube::core::{ApiResource, GroupVersionKind};
    use serde_json::json;

    pub(in crate::cli::get::members) fn deployments(version: &str) -> Resource {
        Resource {
            gvk: Gvk::new(&format!("apps/{version}"), "Deployment").expect("a kind"),
            plural: "deployments".into(),
            namespaced: true,
        }
    }

    fn member(name: &str, complete: &str, apis: &[(&str, &str, &str)]) -> Member {
        let apis = apis.iter().map(|(version, plural, kind)| {
            json!({"groupVersion": version, "resources": [{"name": plural, "kind": kind}]})
        });
        let status = json!({
            "conditions": [{"type": "CompleteAPIEnablements", "status": complete}],
            "apiEnablements": apis.collect::<Vec<_>>(),
        });
        let gvk = GroupVersionKind::gvk("cluster.karmada.io", "v1alpha1", "Cluster");
        let mut cluster = DynamicObject::new(name, &ApiResource::from_gvk(&gvk));
        cluster.data = json!({ "status": status });
        Member::of(&cluster).expect("a member")
    }

    #[test]
    fn a_member_is_asked_in_a_version_that_it_serves() {
        let members = [
            member(
                "same",
                "True",
                &[
                    ("apps/v1beta1", "deployments", "Deployment"),
                    ("apps/v1", "deployments", "Deployment"),
                ],
            ),
            member(
                "older",
                "True",
                &[("apps/v1beta1", "deployments", "Deployment")],
            ),
            member(
                "other",
                "True",
                &[
                    ("extensions/v1", "deployments", "Deployment"),
                    ("apps/v1", "replicasets", "ReplicaSet"),
                ],
            ),
            member("unknown", "False", &[]),
        ];
        let asked = of(&members, Way::OfClusters, &deployments("v1"));
        let shown: Vec<(&str, &str)> = asked
            .iter()
            .map(|it| (it.cluster.as_str(), it.resource.gvk.version.as_str()))
            .collect();
        assert_eq!(
            shown,
            [("same", "v1"), ("older", "v1beta1"), ("unknown", "v1")]
        );
        assert_eq!(
            asked[0].prefix,
            "/apis/cluster.karmada.io/v1alpha1/clusters/same/proxy"
        );
    }

    #[test]
    fn what_the_hub_does_not_have_a_member_may() {
        let members = [
            member("m1", "True", &[("apps/v1", "deployments", "Deployment")]),
            member("m2", "True", &[("shop.io/v1", "tills", "Till")]),
        ];
        for word in ["tills", "till", "Till", "tills.shop.io"] {
            let (name, resource) = first(&members, word).expect(word);
            assert_eq!(
                (name, resource.qualified().as_str()),
                ("m2", "tills.shop.io")
            );
        }
        for word in ["tills.apps", "tillz", ""] {
            assert!(first(&members, word).is_none(), "{word}");
        }
    }

    #[test]
    fn an_object_says_where_it_was_found() {
        let target = Target::member(Way::OfClusters, "m1", deployments("v1"));
        let marked = target.marked(json!({"metadata": {"name": "web"}}));
        assert_eq!(
            marked,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
                "name": "web", "annotations": {FROM: "m1"},
            }})
        );
        let list = json!({"kind": "Odd", "metadata": {"annotations": {"a": "b"}}});
        let marked = target.marked(list);
        assert_eq!(marked["kind"], "Odd");
        assert_eq!(
            marked["metadata"]["annotations"],
            json!({"a": "b", FROM: "m1"})
        );
    }
}
