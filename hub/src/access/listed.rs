//! What all clusters are asked at once, `clusters/*/proxy`: one list. Pure.

use common::mapper::segment;
use http::header::{ACCEPT, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

/// Stands for every cluster. No cluster has this name.
pub const EVERY: &str = "*";
/// As it is written in a path: as it is, or escaped.
const WRITTEN: [&str; 3] = [EVERY, "%2A", "%2a"];

/// Objects in one page of a cluster.
const PAGE: u32 = 500;
/// Which parameters of a list each cluster is asked with, as they were sent.
const PASSED: [&str; 3] = ["labelSelector", "fieldSelector", "includeObject"];
/// Those that say something about the answer as a whole, which is one piece from no version.
const OF_ANSWER: [&str; 5] = [
    "limit",
    "timeout",
    "timeoutSeconds",
    "pretty",
    "resourceVersionMatch",
];

/// In which form objects are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Whole.
    Objects,
    /// Their metadata alone.
    Metadata,
    /// Rows for people.
    Table,
}

impl Form {
    fn accept(self) -> &'static str {
        match self {
            Self::Objects => "application/json",
            Self::Metadata => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            Self::Table => "application/json;as=Table;g=meta.k8s.io;v=v1",
        }
    }
}

/// Why it is no list that all clusters can be asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAList {
    /// It would change something, or run it.
    #[error("all clusters at once are asked for lists alone: name one cluster to {0} there")]
    Method(Method),
    /// The path is one of an object, of something of it, or of no object.
    #[error("all clusters at once are asked for lists alone, and {0:?} is none: name one cluster")]
    Path(String),
    /// A watch.
    #[error("all clusters at once are asked for lists alone, not watched: name one cluster")]
    Watch,
    /// Versions of several clusters cannot be compared.
    #[error("a list over all clusters has no version and no page: leave {0} out")]
    Versioned(String),
    /// A parameter that means something else.
    #[error("a list over all clusters knows no parameter {0:?}: name one cluster")]
    Parameter(String),
}

/// One list, as each cluster is asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    path: String,
    /// What is passed on, as it was sent.
    query: String,
    pub(super) form: Form,
}

impl Listed {
    /// Reads what is asked of the members; `onward` is path and query there.
    pub fn read(method: &Method, onward: &Uri, form: Form) -> Result<Self, NotAList> {
        if *method != Method::GET {
            return Err(NotAList::Method(method.clone()));
        }
        let path = onward.path();
        if !is_list(path) {
            return Err(NotAList::Path(path.to_owned()));
        }
        let mut passed = Vec::new();
        let pairs = onward.query().unwrap_or_default().split('&');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (key, value) {
                (key, _) if PASSED.contains(&key) => passed.push(pair),
                (key, _) if OF_ANSWER.contains(&key) => {}
                ("watch", "0" | "false") => {}
                ("watch", _) => return Err(NotAList::Watch),
                ("resourceVersion", "" | "0") | ("continue", "") => {}
                ("resourceVersion" | "continue", _) => {
                    return Err(NotAList::Versioned(key.to_owned()));
                }
                (other, _) => return Err(NotAList::Parameter(other.to_owned())),
            }
        }
        Ok(Self {
            path: path.to_owned(),
            query: passed.join("&"),
            form,
        })
    }

    /// Path and query in a member: of the first page, or of the one that a token leads to.
    pub(super) fn uri(&self, token: Option<&str>) -> Option<Uri> {
        let (path, query) = (&self.path, &self.query);
        let token = token.map(|it| format!("&continue={}", segment(it)));
        let token = token.unwrap_or_default();
        let with = if query.is_empty() { "" } else { "&" };
        format!("{path}?limit={PAGE}{with}{query}{token}")
            .parse()
            .ok()
    }

    /// What a member is told beside it: in which form to answer, and of the headers that came, who asks in its log.
    pub fn headers(&self, came: &HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in [USER_AGENT, HeaderName::from_static("audit-id")] {
            let value = came.get(&name).cloned();
            headers.extend(value.map(|value| (name, value)));
        }
        headers.insert(ACCEPT, HeaderValue::from_static(self.form.accept()));
        headers
    }
}

/// What stands before the path of the members, where all clusters below `clusters` are asked.
pub fn every(path: &str, clusters: &str) -> Option<String> {
    let prefixes = WRITTEN.map(|name| format!("{clusters}/{name}/proxy"));
    prefixes.into_iter().find(|prefix| {
        let rest = path.strip_prefix(prefix.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Whether a path, one that is passed on to members, is a collection's.
fn is_list(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    if segments.iter().any(|segment| segment.is_empty()) {
        return false;
    }
    let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = segments.as_slice() else {
        return false;
    };
    match rest {
        [_] => true,
        ["namespaces", _, "status" | "finalize"] => false,
        ["namespaces", _, _] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: Method, onward: &str) -> Result<Listed, NotAList> {
        Listed::read(&method, &onward.parse().expect("an address"), Form::Objects)
    }

    #[test]
    fn lists_are_passed_on_page_by_page() {
        let uri = |onward: &str, token| {
            let listed = read(Method::GET, onward).expect(onward);
            listed.uri(token).expect("an address").to_string()
        };
        for (onward, passed) in [
            ("/api/v1/pods", "/api/v1/pods?limit=500"),
            (
                "/api/v1/namespaces/shop/pods?limit=7&labelSelector=app%3Dweb&resourceVersion=0",
                "/api/v1/namespaces/shop/pods?limit=500&labelSelector=app%3Dweb",
            ),
            ("/api/v1/namespaces", "/api/v1/namespaces?limit=500"),
            (
                "/apis/apps/v1/deployments?timeout=32s&watch=false&fieldSelector=a%3Db&includeObject=Object",
                "/apis/apps/v1/deployments?limit=500&fieldSelector=a%3Db&includeObject=Object",
            ),
        ] {
            assert_eq!(uri(onward, None), passed);
        }
        assert_eq!(
            uri("/api/v1/pods", Some("a/b=")),
            "/api/v1/pods?limit=500&continue=a%2Fb%3D"
        );
    }

    #[test]
    fn every_cluster_is_written_in_two_ways() {
        let to = "/apis/proxy.towline.dev/v1alpha1/clusters";
        for (path, every_one) in [
            ("/*/proxy/api/v1/pods", true),
            ("/%2A/proxy/api/v1/pods", true),
            ("/%2a/proxy", true),
            ("/*/proxyapi", false),
            ("/m1/proxy/api/v1/pods", false),
            ("/**/proxy", false),
            ("/*/status", false),
        ] {
            let found = every(&format!("{to}{path}"), to);
            assert_eq!(found.is_some(), every_one, "{path}");
        }
    }

    #[test]
    fn nothing_else_is_asked_of_all() {
        let path = |path: &str| NotAList::Path(path.to_owned());
        for (method, onward, why) in [
            (Method::POST, "/api/v1/pods", NotAList::Method(Method::POST)),
            (
                Method::DELETE,
                "/api/v1/namespaces/a/pods",
                NotAList::Method(Method::DELETE),
            ),
            (Method::HEAD, "/api/v1/pods", NotAList::Method(Method::HEAD)),
            (Method::GET, "/", path("/")),
            (Method::GET, "/version", path("/version")),
            (Method::GET, "/api", path("/api")),
            (Method::GET, "/apis/apps/v1", path("/apis/apps/v1")),
            (Method::GET, "/api/v1/", path("/api/v1/")),
            (Method::GET, "/apis//v1/pods", path("/apis//v1/pods")),
            (Method::GET, "/apis/apps//pods", path("/apis/apps//pods")),
            (Method::GET, "/api/v1/nodes/n", path("/api/v1/nodes/n")),
            (
                Method::GET,
                "/api/v1/namespaces/a",
                path("/api/v1/namespaces/a"),
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/status",
                path("/api/v1/namespaces/a/status"),
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods/",
                path("/api/v1/namespaces/a/pods/"),
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods/p",
                path("/api/v1/namespaces/a/pods/p"),
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods/p/log",
                path("/api/v1/namespaces/a/pods/p/log"),
            ),
            (
                Method::GET,
                "/api/v1/watch/pods",
                path("/api/v1/watch/pods"),
            ),
            (Method::GET, "/api/v1/pods?watch=1", NotAList::Watch),
            (Method::GET, "/api/v1/pods?watch", NotAList::Watch),
            (
                Method::GET,
                "/api/v1/pods?resourceVersion=7",
                NotAList::Versioned("resourceVersion".into()),
            ),
            (
                Method::GET,
                "/api/v1/pods?continue=x",
                NotAList::Versioned("continue".into()),
            ),
            // A name that is hidden would be a selector that nobody sees.
            (
                Method::GET,
                "/api/v1/pods?%6cabelSelector=a",
                NotAList::Parameter("%6cabelSelector".into()),
            ),
        ] {
            assert_eq!(
                read(method.clone(), onward).expect_err(onward),
                why,
                "{method} {onward}"
            );
        }
    }
}
