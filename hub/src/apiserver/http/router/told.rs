//! What the audit log is told.

use super::proxy::is_proxied;
use super::{READS, Router};
use crate::apiserver::audit::Entry;
use crate::apiserver::backup;
use crate::apiserver::caller::Caller;
use crate::apiserver::request::RequestInfo;
use crate::install::proof;
use std::net::IpAddr;

impl Router {
    /// Tells the audit log of a request, with its id and where it came from.
    pub(super) fn audit(
        &self,
        (id, source): (&str, Option<IpAddr>),
        info: &RequestInfo,
        (real, caller): (&Caller, &Caller),
        dry_run: bool,
        code: u16,
    ) {
        if !is_told(info, real, caller, code) {
            return;
        }
        self.parts.audit.write(&Entry {
            id,
            now: self.parts.clock.now(),
            info,
            user: real,
            acting: (real != caller).then_some(caller),
            source,
            dry_run,
            code,
        });
    }
}

/// Whether a request is one for the audit log: what is written, refused, or done as somebody else, and what
/// gives Secrets away. The hub itself reads them all the time.
fn is_told(info: &RequestInfo, real: &Caller, caller: &Caller, code: u16) -> bool {
    if !info.is_resource {
        return info.path == backup::PAGE;
    }
    if is_proxied(info) {
        return true;
    }
    let refused = matches!(code, 401 | 403);
    // The hub asks every minute whether its own rules hold, as users that nobody can be. A no says nothing;
    // a yes would.
    let proof = [proof::AGENT_USER, proof::TOKEN_USER].contains(&caller.user.as_str());
    if refused && proof && *real == Caller::system() {
        return false;
    }
    if !READS.contains(&info.verb.as_str()) || refused {
        return true;
    }
    let secrets = info.group.is_empty() && info.resource == "secrets";
    (secrets || real != caller) && *real != Caller::system()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::Query;
    use http::Method;

    #[test]
    fn what_is_written_refused_or_secret_is_told() {
        let hub = Caller::system();
        let bob = Caller {
            user: "bob".to_owned(),
            ..Caller::default()
        };
        let proof = Caller {
            user: proof::AGENT_USER.to_owned(),
            ..Caller::default()
        };
        let map = "/api/v1/namespaces/a/configmaps/b";
        let secret = "/api/v1/namespaces/a/secrets/b";
        for (method, path, real, caller, code, told) in [
            (Method::GET, map, &bob, &bob, 200, false),
            (Method::GET, map, &bob, &bob, 403, true),
            (Method::GET, map, &bob, &proof, 200, true),
            (Method::PUT, map, &bob, &bob, 200, true),
            (Method::GET, secret, &bob, &bob, 200, true),
            (Method::GET, secret, &hub, &hub, 200, false),
            (Method::PUT, map, &hub, &proof, 403, false),
            (Method::PUT, map, &hub, &proof, 200, true),
            (Method::GET, "/version", &bob, &bob, 403, false),
            (Method::POST, backup::PAGE, &bob, &bob, 200, true),
        ] {
            let info = RequestInfo::read(&method, path, &Query::default()).expect("a path");
            let got = is_told(&info, real, caller, code);
            assert_eq!(got, told, "{method} {path} {} {}", real.user, caller.user);
        }
    }
}
