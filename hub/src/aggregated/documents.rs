//! What is said of [`GROUP`] to whoever asks what is served. Pure.

use super::{GROUP, VERSION};
use serde_json::{Value, json};

/// The page at a path; none where there is none.
pub fn page(path: &str) -> Option<Value> {
    let version = json!({"groupVersion": format!("{GROUP}/{VERSION}"), "version": VERSION});
    let group = json!({"name": GROUP, "versions": [version], "preferredVersion": version});
    let with = |mut value: Value, kind: &str| {
        value["kind"] = json!(kind);
        value["apiVersion"] = json!("v1");
        value
    };
    let info = json!({"title": "Towline", "version": VERSION});
    let pages = [
        (
            "/apis".to_owned(),
            with(json!({"groups": [group]}), "APIGroupList"),
        ),
        (format!("/apis/{GROUP}"), with(group.clone(), "APIGroup")),
        (
            format!("/apis/{GROUP}/{VERSION}"),
            with(
                json!({"groupVersion": format!("{GROUP}/{VERSION}"), "resources": [resource()]}),
                "APIResourceList",
            ),
        ),
        (
            "/openapi/v2".to_owned(),
            json!({"swagger": "2.0", "info": info, "paths": {}}),
        ),
        (
            "/openapi/v3".to_owned(),
            json!({"paths": {format!("apis/{GROUP}/{VERSION}"): {
                "serverRelativeURL": format!("/openapi/v3/apis/{GROUP}/{VERSION}"),
            }}}),
        ),
        (
            format!("/openapi/v3/apis/{GROUP}/{VERSION}"),
            json!({"openapi": "3.0.0", "info": info, "paths": {}}),
        ),
    ];
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut pages = pages.into_iter();
    pages.find(|(at, _)| at == path).map(|(_, page)| page)
}

fn resource() -> Value {
    json!({
        "name": "clusters/proxy",
        "singularName": "",
        "namespaced": false,
        "kind": "ClusterProxyOptions",
        "verbs": ["create", "delete", "get", "patch", "update"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIGroupList, APIResourceList};

    #[test]
    fn clients_of_the_api_read_what_is_served() {
        fn read<T: serde::de::DeserializeOwned>(path: &str) -> T {
            serde_json::from_value(page(path).expect("a page")).expect("what it should be")
        }
        let groups: APIGroupList = read("/apis");
        let group: APIGroup = read("/apis/proxy.towline.dev");
        let resources: APIResourceList = read("/apis/proxy.towline.dev/v1alpha1/");
        assert_eq!(groups.groups, [group]);
        assert_eq!(resources.resources[0].name, "clusters/proxy");
        assert_eq!(page("/apis/proxy.towline.dev/v1"), None);
        assert_eq!(page("/api"), None);
        let root = page("/openapi/v3").expect("a page");
        let at = root["paths"]["apis/proxy.towline.dev/v1alpha1"]["serverRelativeURL"].as_str();
        assert!(page(at.expect("an address")).is_some());
    }
}
