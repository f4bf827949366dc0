//! The line of a request and headers as bytes, as both ends of a tunnel read them: what is judged is what is sent.
#![no_main]

use agent::proxy::decide::{Asked, refused};
use common::names::is_dns_label;
use common::tunnel::{Identity, Mode, Place, forwarded, headers, service_account};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use hub::access::{onward, protocol};
use hub::apiserver::request::{Query, RequestInfo};
use libfuzzer_sys::fuzz_target;

const PREFIX: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy";
const METHODS: [Method; 7] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];
/// Subresources that are more than reading.
const REACHES: [&str; 4] = ["attach", "exec", "portforward", "proxy"];
/// What begins a header that says who somebody is, or by what they prove it.
const SECRETS: [&str; 7] = [
    "authorization",
    "cookie",
    "impersonate-",
    "proxy-authorization",
    "towline-",
    "x-forwarded-",
    "x-remote-",
];

fuzz_target!(|data: &[u8]| {
    let mut lines = data.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let head: HeaderMap = lines.filter_map(header).collect();
    if let Ok(target) = std::str::from_utf8(first) {
        path(target);
        from_the_hub(target);
        named(target, &head);
    }
    spoken(&head);
    if let Ok(text) = std::str::from_utf8(data) {
        place(text);
    }
});

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let name = HeaderName::from_bytes(&line[..colon]).ok()?;
    Some((name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?))
}

/// A path is taken as it is, and everybody who reads it reads the same.
fn path(target: &str) {
    let Ok(taken) = forwarded(target) else {
        return;
    };
    assert!(taken == target || (target.is_empty() && taken == "/"));
    let plain = decoded(taken);
    let mut segments = plain.split(|byte| *byte == b'/');
    assert!(
        segments.all(|segment| segment != b".." && segment != b"."),
        "{target}"
    );
    assert!(
        !plain.iter().any(|byte| matches!(byte, b'\\' | b'%')),
        "{target}"
    );
    for method in &METHODS {
        for takes_over in [false, true] {
            judged(method, taken, takes_over);
        }
    }
}

/// What is passed on where the owner opens it for reading alone is reading to the API server too.
fn judged(method: &Method, path: &str, takes_over: bool) {
    let asked = Asked {
        method,
        path,
        takes_over,
    };
    assert!(refused(Mode::Off, &asked).is_some());
    if refused(Mode::ReadOnly, &asked).is_some() {
        return;
    }
    assert!(!takes_over && matches!(*method, Method::GET | Method::HEAD));
    let Ok(info) = RequestInfo::read(method, path, &Query::read(None)) else {
        return;
    };
    assert!(
        !info.is_resource || !REACHES.contains(&&*info.subresource),
        "{path}: {info:?}"
    );
}

/// What follows the way to one member is that member's, unchanged.
fn from_the_hub(target: &str) {
    let Ok(uri) = format!("{PREFIX}{target}").parse::<Uri>() else {
        return;
    };
    if let Ok(sent) = onward(&uri, PREFIX) {
        let rest = uri.path().strip_prefix(PREFIX).expect("it was made so");
        assert!(sent.path() == rest || (rest.is_empty() && sent.path() == "/"));
        assert_eq!(sent.query(), uri.query());
        assert!(sent.authority().is_none() && sent.scheme().is_none());
    }
}

/// Whoever is named is one whole identity, and none of the member's own.
fn named(user: &str, head: &HeaderMap) {
    let groups = head.values().filter_map(|it| it.to_str().ok());
    let groups: Vec<String> = groups.map(str::to_owned).collect();
    accounts(user, &groups);
    if let Ok(identity) = Identity::of(user, &groups) {
        let all = identity.groups().iter().map(String::as_str);
        for name in all.chain([identity.user()]) {
            assert!(!name.starts_with("system:"), "{name}");
        }
        let mut said = head.clone();
        if identity.write(&mut said).is_ok() {
            assert_eq!(Identity::read(&said), Ok(identity));
        }
    }
    if let Ok(identity) = Identity::read(head) {
        assert!(!identity.user().is_empty() && !identity.user().starts_with("system:"));
        assert_eq!(head.get_all(headers::USER).iter().count(), 1);
    }
}

/// Whoever comes in as a ServiceAccount is one that may be, and nobody else's.
fn accounts(user: &str, others: &[String]) {
    let account = service_account(user);
    assert!(
        account.len() <= 63 && account.split('.').all(is_dns_label),
        "{account}"
    );
    for other in others.iter().filter(|it| *it != user) {
        assert_ne!(service_account(other), account, "{user:?} {other:?}");
    }
    assert!(
        account == user || service_account(&account) != account,
        "{user:?}"
    );
}

/// Nothing that says who somebody is goes from one side to the other.
fn spoken(head: &HeaderMap) {
    let takes = protocol(head);
    assert!(takes.is_none_or(|it| ["websocket", "SPDY/3.1"].contains(&it)));
    let asked = [headers::asked(head, false), headers::asked(head, true)];
    for passed in asked {
        let mut names = passed.keys().map(HeaderName::as_str);
        assert!(names.all(|name| !SECRETS.iter().any(|it| name.starts_with(it))));
    }
    let answered = headers::answered(head);
    for name in ["set-cookie", "location", "www-authenticate", "connection"] {
        assert!(!answered.contains_key(name), "{name}");
    }
}

/// Where tunnels are taken reads again as it was read.
fn place(text: &str) {
    let map = |text: String| {
        let data = serde_json::json!({ "data": { (Place::KEY): text } });
        serde_json::from_value(data).expect("a ConfigMap")
    };
    if let Ok(Some(place)) = Place::read(&map(text.to_owned())) {
        assert_eq!(Place::read(&map(place.written())), Ok(Some(place)));
    }
}

/// A path without its percent encoding.
fn decoded(path: &str) -> Vec<u8> {
    let mut bytes = path.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        let hex = |byte: Option<u8>| byte.and_then(|it| char::from(it).to_digit(16));
        match byte {
            b'%' => {
                let (high, low) = (hex(bytes.next()), hex(bytes.next()));
                let value = high.zip(low).map(|(high, low)| high * 16 + low);
                out.push(u8::try_from(value.expect("an escape is whole")).expect("two digits"));
            }
            byte => out.push(byte),
        }
    }
    out
}
