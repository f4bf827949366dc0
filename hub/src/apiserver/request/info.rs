//! What a request is about, read from method, path and query. Pure.
//!
//! The path is read once, and who may and what happens are both decided by this reading, so that no
//! trick with a path can make the two differ.

use crate::apiserver::request::FieldSelector;
use http::Method;
use percent::decode;

/// Subresources of a Namespace itself; anything else behind a namespace's name is a kind in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

/// What a request is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The path as it was asked, decoded.
    pub path: String,
    /// Whether it is about objects; otherwise only `path` and `verb` mean something.
    pub is_resource: bool,
    /// Verb of the API, or the method in lower case.
    pub verb: String,
    /// API group.
    pub group: String,
    /// Version of the group, as it stands in the path.
    pub version: String,
    /// Namespace; empty when the request is for the whole server.
    pub namespace: String,
    /// Plural name of the kind.
    pub resource: String,
    /// What of the object.
    pub subresource: String,
    /// Name of the object, also when a field selector names it.
    pub name: String,
    /// Whether the name stands in the path.
    pub name_in_path: bool,
    /// Whether there is more behind the subresource.
    pub has_rest: bool,
    /// Whether it is about what the namespace is called by, and not about something in it.
    pub of_namespace: bool,
}

/// A path that no kind of the API can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Malformed {
    /// A name that points elsewhere.
    Dots(String),
    /// A namespace that points elsewhere, with what was asked for in it.
    DotsBefore(String),
    /// A part that is empty, or hides something.
    Other,
}

impl RequestInfo {
    /// Reads a request line.
    pub fn read(method: &Method, path: &str, query: &Query) -> Result<Self, Malformed> {
        let segments = segments(path).map_err(|why| namespace_of_dots(path).unwrap_or(why))?;
        let mut info = Self {
            path: format!("/{}", segments.join("/")),
            verb: method.as_str().to_lowercase(),
            ..Self::default()
        };
        if path.ends_with('/') && path.len() > 1 {
            info.path.push('/');
        }
        let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
        let rest = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => {
                info.version = (*version).to_owned();
                rest
            }
            ["apis", group, version, rest @ ..] if !rest.is_empty() => {
                info.group = (*group).to_owned();
                info.version = (*version).to_owned();
                rest
            }
            _ => return visible(info, &parts),
        };
        info.is_resource = true;
        let rest = match rest {
            // The old form of a watch: a prefix of its own.
            ["watch", rest @ ..] if !rest.is_empty() => {
                "watch".clone_into(&mut info.verb);
                rest
            }
            _ => {
                info.verb = verb(method).to_owned();
                rest
            }
        };
        let rest = match rest {
            ["namespaces", namespace, kind, ..] if !NAMESPACE_SUBRESOURCES.contains(kind) => {
                info.namespace = (*namespace).to_owned();
                &rest[2..]
            }
            // For rights, a Namespace lies in itself.
            ["namespaces", namespace, ..] => {
                info.namespace = (*namespace).to_owned();
                info.of_namespace = true;
                rest
            }
            _ => rest,
        };
        // A name that nothing can have is not found; elsewhere such characters only hide something.
        let kept = parts.len() - rest.len();
        let mut around = parts.iter().enumerate();
        if around.any(|(at, part)| at != kept + 1 && has_control(part)) {
            return Err(Malformed::Other);
        }
        let mut rest = rest.iter().map(|part| (*part).to_owned());
        info.resource = rest.next().unwrap_or_default();
        info.name = rest.next().unwrap_or_default();
        info.subresource = rest.next().unwrap_or_default();
        info.has_rest = rest.next().is_some();
        info.name_in_path = !info.name.is_empty();
        info.collection_verb(query);
        Ok(info)
    }

    /// A get or a deletion without a name is about the collection.
    fn collection_verb(&mut self, query: &Query) {
        if !self.name.is_empty() {
            return;
        }
        match self.verb.as_str() {
            "get" => {
                let verb = if query.flag("watch") { "watch" } else { "list" };
                verb.clone_into(&mut self.verb);
            }
            "delete" => "deletecollection".clone_into(&mut self.verb),
            _ => {}
        }
        if matches!(self.verb.as_str(), "list" | "watch" | "deletecollection")
            && let Some(name) = query.get("fieldSelector").and_then(named_by)
        {
            self.name = name;
        }
    }
}

fn verb(method: &Method) -> &'static str {
    match method.as_str() {
        "POST" => "create",
        "GET" | "HEAD" => "get",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The name that a field selector allows alone; rights may be given for that name.
fn named_by(selector: &str) -> Option<String> {
    // Read by whoever selects, or one of them finds a name where the other finds none.
    let selector = FieldSelector::parse(selector).ok()?;
    let name = selector.exact("metadata.name")?;
    is_plain(name).then(|| name.to_owned())
}

/// A name that can stand in a path.
fn is_plain(value: &str) -> bool {
    let odd = |c: char| matches!(c, '\\' | '/' | '%' | '!') || c.is_control();
    !value.is_empty() && !matches!(value, "." | "..") && !value.contains(odd)
}

fn has_control(part: &str) -> bool {
    part.chars().any(char::is_control)
}

/// A path that is about no object is compared as it is written.
fn visible(info: RequestInfo, parts: &[&str]) -> Result<RequestInfo, Malformed> {
    match parts.iter().any(|part| has_control(part)) {
        true => Err(Malformed::Other),
        false => Ok(info),
    }
}

/// The key under which nothing is kept: what stands behind a namespace of dots.
fn namespace_of_dots(path: &str) -> Option<Malformed> {
    let parts: Vec<String> = path
        .split('/')
        .map(|part| decode(part, false))
        .collect::<Option<_>>()?;
    let (_, behind) = parts.split_at(parts.iter().position(|part| part == "namespaces")? + 1);
    match behind {
        [dots, kind, name @ ..] if matches!(dots.as_str(), ".." | ".") && !kind.is_empty() => {
            let mut key = format!("/{kind}/{dots}");
            if let Some(name) = name.first() {
                key = format!("{key}/{name}");
            }
            Some(Malformed::DotsBefore(key))
        }
        _ => None,
    }
}

fn segments(path: &str) -> Result<Vec<String>, Malformed> {
    let trimmed = path.strip_prefix('/').ok_or(Malformed::Other)?;
    let trimmed = if is_of_objects(path) {
        trimmed.trim_end_matches('/')
    } else {
        trimmed.strip_suffix('/').unwrap_or(trimmed)
    };
    if trimmed.is_empty() {
        return Ok(Vec::new());
    }
    let parts: Vec<&str> = trimmed.split('/').collect();
    let parts = without_empty_namespace(&parts);
    parts.into_iter().map(segment).collect()
}

fn is_of_objects(path: &str) -> bool {
    path.starts_with("/api/") || path.starts_with("/apis/")
}

/// A namespace that is empty is none: the collection is that of all.
fn without_empty_namespace<'p>(parts: &[&'p str]) -> Vec<&'p str> {
    match parts {
        ["api", version, "namespaces", "", kind] if is_kind(kind) => vec!["api", *version, *kind],
        ["apis", group, version, "namespaces", "", kind] if is_kind(kind) => {
            vec!["apis", *group, *version, *kind]
        }
        _ => parts.to_vec(),
    }
}

/// What follows a namespace and is neither a part of it nor a way of asking.
fn is_kind(part: &str) -> bool {
    !NAMESPACE_SUBRESOURCES.contains(&part) && !matches!(part, "namespaces" | "watch")
}

/// Whether every percent sign stands before two digits.
pub fn is_escaped(path: &str) -> bool {
    let digits = |part: &str| {
        let digits = part.get(..2).unwrap_or_default();
        digits.len() == 2 && digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    path.split('%').skip(1).all(digits)
}

/// One part of a path: no part may be empty, point elsewhere, or hide a slash.
fn segment(raw: &str) -> Result<String, Malformed> {
    let part = decode(raw, false).ok_or(Malformed::Other)?;
    if matches!(part.as_str(), "." | "..") {
        return Err(Malformed::Dots(part));
    }
    if part.is_empty() || part.contains(['/', '\\', '%']) {
        Err(Malformed::Other)
    } else {
        Ok(part)
    }
}

/// The parameters of a request, decoded, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what stands behind the question mark; pairs that cannot be decoded are left out.
    pub fn read(raw: Option<&str>) -> Self {
        let pairs = raw.unwrap_or_default().split('&');
        let pairs = pairs.filter(|pair| !pair.is_empty()).filter_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(key, true)?, decode(value, true)?))
        });
        Self(pairs.collect())
    }

    /// The first value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// All of them.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Every value of a parameter.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        let of_key = self.0.iter().filter(move |(name, _)| name == key);
        of_key.map(|(_, value)| value.as_str())
    }

    /// Whether a switch is on, as the API reads it: only `0` and `false` turn a present one off.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|value| !matches!(value.to_lowercase().as_str(), "0" | "false"))
    }
}

/// Undoes percent-encoding.
pub fn unescape(text: &str) -> Option<String> {
    decode(text, false)
}

mod percent {
    /// Undoes percent-encoding; `plus` also reads `+` as a blank.
    pub(super) fn decode(text: &str, plus: bool) -> Option<String> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            match byte {
                b'%' => {
                    let (high, low) = (rest.next()?, rest.next()?);
                    let digit = |b: u8| char::from(b).to_digit(16);
                    let value = digit(high)? * 16 + digit(low)?;
                    bytes.push(u8::try_from(value).ok()?);
                }
                b'+' if plus => bytes.push(b' '),
                other => bytes.push(other),
            }
        }
        String::from_utf8(bytes).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, target: &str) -> Result<RequestInfo, Malformed> {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        RequestInfo::read(&method, path, &Query::read(query))
    }

    #[test]
    fn requests_are_read_as_kubernetes_reads_them() {
        // method, path: verb group/version namespace resource name subresource
        let cases = [
            ("GET", "/api/v1/namespaces", "list /v1 - namespaces - -"),
            ("GET", "/api/v1/namespaces/a", "get /v1 a namespaces a -"),
            (
                "PUT",
                "/api/v1/namespaces/a/finalize",
                "update /v1 a namespaces a finalize",
            ),
            ("GET", "/api/v1/namespaces/a/pods", "list /v1 a pods - -"),
            (
                "PATCH",
                "/api/v1/namespaces/a/pods/p/status",
                "patch /v1 a pods p status",
            ),
            (
                "DELETE",
                "/apis/apps/v1/namespaces/a/deployments",
                "deletecollection apps/v1 a deployments - -",
            ),
            (
                "GET",
                "/apis/a.io/v1/things?watch",
                "watch a.io/v1 - things - -",
            ),
            (
                "GET",
                "/apis/a.io/v1/things?watch=false",
                "list a.io/v1 - things - -",
            ),
            (
                "GET",
                "/api/v1/watch/namespaces/a/pods/p",
                "watch /v1 a pods p -",
            ),
            (
                "GET",
                "/api/v1/secrets?fieldSelector=metadata.name%3Dx.y",
                "list /v1 - secrets x.y -",
            ),
            (
                "GET",
                "/api/v1/secrets?fieldSelector=metadata.name%21%3Dx",
                "list /v1 - secrets - -",
            ),
            (
                "GET",
                "/api/v1/secrets?fieldSelector=metadata.name%3Dx%00",
                "list /v1 - secrets - -",
            ),
            // A comma that is part of a value separates nothing.
            (
                "GET",
                "/api/v1/secrets?fieldSelector=type!%3Dz%5C,metadata.name%3Dx",
                "list /v1 - secrets - -",
            ),
            (
                "GET",
                "/api/v1/secrets?fieldSelector=type%3Dz,metadata.name%3D%3Dx",
                "list /v1 - secrets x -",
            ),
            ("HEAD", "/api/v1/secrets", "list /v1 - secrets - -"),
            (
                "GET",
                "/api/v1/namespaces//secrets",
                "list /v1 - secrets - -",
            ),
            (
                "GET",
                "/api/v1/namespaces/a/secrets//",
                "list /v1 a secrets - -",
            ),
            (
                "GET",
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                "get rbac.authorization.k8s.io/v1 - clusterroles system:node -",
            ),
        ];
        let dash = |text: String| {
            if text.is_empty() {
                "-".to_owned()
            } else {
                text
            }
        };
        for (method, target, want) in cases {
            let info = read(method, target).expect(target);
            assert!(info.is_resource, "{target}");
            let got = format!(
                "{} {}/{} {} {} {} {}",
                info.verb,
                info.group,
                info.version,
                dash(info.namespace),
                dash(info.resource),
                dash(info.name),
                dash(info.subresource),
            );
            assert_eq!(got, want, "{target}");
        }
    }

    #[test]
    fn paths_that_are_no_objects_keep_path_and_method() {
        for (target, path) in [
            ("/", "/"),
            ("/version", "/version"),
            ("/api", "/api"),
            ("/api/v1", "/api/v1"),
            ("/apis/apps/v1/", "/apis/apps/v1/"),
            ("/readyz/ping", "/readyz/ping"),
        ] {
            let info = read("GET", target).expect(target);
            assert!(!info.is_resource);
            assert_eq!((info.path.as_str(), info.verb.as_str()), (path, "get"));
        }
    }

    #[test]
    fn tricks_with_paths_are_refused() {
        for target in [
            "api",
            "/api/v1//secrets",
            "/api/v1/namespaces/a/../b/secrets",
            "/api/v1/namespaces/%2e%2e/secrets",
            "/api/v1/namespaces/a%2Fsecrets/x",
            "/api/v1/namespaces/a%252Fb",
            "/api/v1/namespaces/a%00/secrets",
            "/api/v1/secrets%00",
            "/api/v1/secrets/a/status%00",
            "/version%00",
            "/api/v1/secrets/%zz",
            "/api/v1/secrets/a\\b",
            "//api/v1/secrets",
            "/api/v1/namespaces//status",
            "/api/v1/namespaces//secrets/a",
        ] {
            assert!(read("GET", target).is_err(), "{target}");
        }
        assert_eq!(
            read("GET", "/api/v1/namespaces/%2e%2e/secrets"),
            Err(Malformed::DotsBefore("/secrets/..".to_owned()))
        );
    }

    #[test]
    fn a_name_that_nothing_has_is_read() {
        let info = read("GET", "/api/v1/namespaces/a/secrets/b%00c").expect("a path");
        assert_eq!(
            (info.resource.as_str(), info.name.as_str()),
            ("secrets", "b\0c")
        );
    }
}
