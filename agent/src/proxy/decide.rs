//! Whether a request of a user of the hub is passed on to the member.

use common::tunnel::{Mode, asks_of_oneself};
use http::Method;

/// What is asked of the member.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The method that the member would see.
    pub method: &'a Method,
    /// The path, as [`common::tunnel::forwarded`] lets it pass.
    pub path: &'a str,
    /// Whether the connection is to be taken over.
    pub takes_over: bool,
}

/// What is more than reading although its method is GET: it runs something, or reaches further.
const REACHES: [&str; 4] = ["attach", "exec", "portforward", "proxy"];

/// Why a request is not passed on; none when it is.
pub fn refused(mode: Mode, asked: &Asked<'_>) -> Option<&'static str> {
    match mode {
        Mode::Off => Some("the owner of this cluster opens it to no user of the hub"),
        Mode::Impersonate => None,
        Mode::ReadOnly if is_reading(asked) => None,
        Mode::ReadOnly => Some(
            "the owner of this cluster opens it for reading alone; `towline register --proxy impersonate`, run on it, \
             opens it for more (a joined one: `towline join NAME --cluster-kubeconfig FILE --proxy impersonate`)",
        ),
    }
}

fn is_reading(asked: &Asked<'_>) -> bool {
    let reads = match *asked.method {
        Method::GET | Method::HEAD => true,
        Method::POST => asks_of_oneself(asked.path),
        _ => false,
    };
    let reaches = subresource(asked.path).is_some_and(|name| REACHES.contains(&name));
    reads && !asked.takes_over && !reaches
}

/// The subresource that a path names; `proxy` also for the old form of it, where it stands first.
fn subresource(path: &str) -> Option<&str> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let skipped = match parts.next()? {
        "api" => 1,
        "apis" => 2,
        _ => return None,
    };
    let mut parts = parts.skip(skipped).peekable();
    match *parts.peek()? {
        "proxy" => return Some("proxy"),
        "watch" => drop(parts.next()),
        _ => {}
    }
    if parts.peek() == Some(&"namespaces") {
        // Of a Namespace itself there is nothing that reaches; within it stand kind, name and subresource.
        parts.nth(1);
    }
    parts.nth(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::tunnel::forwarded;
    use proptest::prelude::*;

    const SELF: &str = "/apis/authorization.k8s.io/v1/selfsubject";
    const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

    fn is_refused(mode: Mode, method: &Method, path: &str, takes_over: bool) -> bool {
        let asked = Asked {
            method,
            path,
            takes_over,
        };
        refused(mode, &asked).is_some()
    }

    #[test]
    fn reading_is_getting_and_nothing_that_reaches_further() {
        let of = "/api/v1/namespaces/d";
        for (method, path, takes_over, passes) in [
            (Method::GET, format!("{of}/pods"), false, true),
            (Method::HEAD, format!("{of}/pods/a"), false, true),
            (Method::GET, format!("{of}/pods/a/log"), false, true),
            (Method::GET, format!("{of}/pods/proxy"), false, true),
            (Method::GET, format!("{of}/pods/exec/log"), false, true),
            (
                Method::GET,
                "/api/v1/namespaces/proxy".to_owned(),
                false,
                true,
            ),
            (
                Method::GET,
                "/api/v1/watch/namespaces/d/pods/a".to_owned(),
                false,
                true,
            ),
            (Method::GET, "/version".to_owned(), false, true),
            (
                Method::GET,
                "/apis/apps/v1/namespaces/d/deployments/a/scale".to_owned(),
                false,
                true,
            ),
            (Method::GET, format!("{of}/pods"), true, false),
            (Method::GET, format!("{of}/pods/a/exec"), false, false),
            (Method::GET, format!("{of}/pods/a/exec"), true, false),
            (Method::GET, format!("{of}/pods/a/attach"), false, false),
            (
                Method::GET,
                format!("{of}/pods/a/portforward"),
                false,
                false,
            ),
            (Method::GET, format!("{of}/pods/a/proxy/x"), false, false),
            (Method::GET, format!("{of}/services/a/proxy"), false, false),
            (
                Method::GET,
                "/api/v1/nodes/a/proxy/metrics".to_owned(),
                false,
                false,
            ),
            (
                Method::GET,
                "/api/v1/proxy/nodes/a".to_owned(),
                false,
                false,
            ),
            (
                Method::GET,
                "/apis/cluster.karmada.io/v1alpha1/clusters/a/proxy/".to_owned(),
                false,
                false,
            ),
            (Method::POST, format!("{of}/pods"), false, false),
            (Method::DELETE, format!("{of}/pods/a"), false, false),
            (Method::PATCH, format!("{of}/pods/a"), false, false),
            (Method::OPTIONS, format!("{of}/pods"), false, false),
            (Method::POST, format!("{SELF}accessreviews"), false, true),
            (Method::POST, format!("{SELF}rulesreviews"), false, true),
            (Method::POST, WHOAMI.to_owned(), false, true),
            (Method::POST, WHOAMI.to_owned(), true, false),
            (Method::POST, format!("{WHOAMI}/a"), false, false),
            (Method::POST, format!("{WHOAMI}/"), false, false),
            (Method::PUT, WHOAMI.to_owned(), false, false),
            (Method::DELETE, WHOAMI.to_owned(), false, false),
            (Method::POST, WHOAMI.replace("self", ""), false, false),
            (
                Method::POST,
                "/apis/authorization.k8s.io/v1/subjectaccessreviews".to_owned(),
                false,
                false,
            ),
            (
                Method::POST,
                "/apis/authentication.k8s.io/v1/tokenreviews".to_owned(),
                false,
                false,
            ),
            (
                Method::POST,
                "/apis/example.com/v1/selfsubjectaccessreviews".to_owned(),
                false,
                false,
            ),
        ] {
            assert_eq!(forwarded(&path), Ok(path.as_str()));
            let refused = is_refused(Mode::ReadOnly, &method, &path, takes_over);
            assert_eq!(!refused, passes, "{method} {path}");
            assert!(is_refused(Mode::Off, &method, &path, takes_over));
            assert!(!is_refused(Mode::Impersonate, &method, &path, takes_over));
        }
    }

    proptest! {
        #[test]
        fn only_getting_reads(method in "[A-Z]{1,7}", path in "(/[a-z]{1,5}){1,6}") {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let reads = [Method::GET, Method::HEAD].contains(&method);
            prop_assert!(reads || is_refused(Mode::ReadOnly, &method, &path, false));
        }

        #[test]
        fn no_way_of_writing_it_hides_what_reaches(
            escaped in prop::collection::vec(any::<bool>(), 4),
            slash in any::<bool>(),
        ) {
            let letters = "exec".chars().zip(&escaped);
            let name: String = letters
                .map(|(letter, escaped)| match escaped {
                    true => format!("%{:02x}", u32::from(letter)),
                    false => letter.to_string(),
                })
                .collect();
            let end = if slash { "/" } else { "" };
            let path = format!("/api/v1/namespaces/d/pods/a/{name}{end}");
            let passes = forwarded(&path).is_ok();
            prop_assert!(
                !passes || is_refused(Mode::ReadOnly, &Method::GET, &path, false),
                "{}",
                path
            );
        }
    }
}
