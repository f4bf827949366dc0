//! Which paths are passed on: those that every reader on the way understands alike.

/// A path that is not passed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "path {0:?} is not passed on: it must begin with one \"/\", and have no \"..\", \"//\", backslash, encoded slash or encoded letter"
)]
pub struct NotForwarded(pub String);

/// The path of a request to the member, from what follows `proxy` in that of the hub: empty stands for `/`. It is
/// taken as it is or not at all, never changed, so that what was judged is what is sent.
pub fn forwarded(rest: &str) -> Result<&str, NotForwarded> {
    if rest.is_empty() {
        return Ok("/");
    }
    let refused = || NotForwarded(rest.to_owned());
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"\\?#".contains(&byte);
    if !rest.starts_with('/') || !rest.bytes().all(plain) {
        return Err(refused());
    }
    let mut segments = rest[1..].split('/').peekable();
    while let Some(segment) = segments.next() {
        let decoded = decoded(segment).ok_or_else(refused)?;
        // Clients end a path in a slash; inside, an empty name is one that some readers leave out.
        let is_hole = decoded.is_empty() && segments.peek().is_some();
        let is_odd = |byte: &u8| matches!(byte, b'/' | b'\\' | b'%' | 0..=0x1f | 0x7f);
        if is_hole || decoded == b"." || decoded == b".." || decoded.iter().any(is_odd) {
            return Err(refused());
        }
    }
    Ok(rest)
}

/// Where somebody asks who they are and what they may: nothing is made there, and so a POST to one reads.
const OF_ONESELF: [&str; 5] = [
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/authentication.k8s.io/v1alpha1/selfsubjectreviews",
    "/apis/authentication.k8s.io/v1beta1/selfsubjectreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
];

/// Whether that is what a POST to this path of a member asks.
pub fn asks_of_oneself(path: &str) -> bool {
    OF_ONESELF.contains(&path)
}

/// A name without its percent encoding; none where that is broken, or of what needs none (RFC 3986, section 2.3).
fn decoded(segment: &str) -> Option<Vec<u8>> {
    let mut bytes = segment.bytes();
    let mut out = Vec::with_capacity(segment.len());
    while let Some(byte) = bytes.next() {
        let hex = |byte: u8| char::from(byte).to_digit(16);
        out.push(match byte {
            b'%' => {
                let value = hex(bytes.next()?)? * 16 + hex(bytes.next()?)?;
                let value = u8::try_from(value).ok()?;
                // No client encodes what needs none: it would only hide a name from who looks for it.
                let is_plain = value.is_ascii_alphanumeric() || b"-._~".contains(&value);
                (!is_plain).then_some(value)?
            }
            byte => byte,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_readers_could_take_for_another_path_is_not_passed_on() {
        for path in [
            "/../../m2/proxy/api",
            "/api/..",
            "/%2e%2e/m2",
            "/%2E%2e/m2",
            "/a/./b",
            "/a%2fb",
            "/a%5cb",
            "/a\\b",
            "//api",
            "/api//v1",
            "/%252e%252e/m2",
            "/a%00",
            "/a%0ab",
            "/a%",
            "/a%zz",
            "/api/v1/namespaces/d/pods/a/%65xec",
            "/%7ea",
            "/a b",
            "/a?b",
            "https:host/api",
            "api",
        ] {
            assert_eq!(
                forwarded(path),
                Err(NotForwarded(path.to_owned())),
                "{path}"
            );
        }
        for path in [
            "/",
            "/api/v1/namespaces/default/pods/a/log",
            "/apis/apps/v1/",
            "/api/v1/namespaces/d/services/https:web:443/proxy/x",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "/openapi/v3/apis/apps/v1",
            "/api/v1/namespaces/...",
        ] {
            assert_eq!(forwarded(path), Ok(path), "{path}");
        }
        assert_eq!(forwarded(""), Ok("/"));
    }

    proptest! {
        #[test]
        fn no_reader_leaves_the_member(path in "(/|\\.|%2[eEfF]|%5c|a|\\\\|%25){0,12}") {
            if let Ok(path) = forwarded(&path) {
                let lower = path.to_lowercase();
                prop_assert!(!lower.contains("%2f") && !lower.contains("%5c") && !lower.contains("%25"));
                let plain = lower.replace("%2e", ".");
                prop_assert!(plain.split('/').all(|segment| segment != ".." && segment != "."));
            }
        }
    }
}
