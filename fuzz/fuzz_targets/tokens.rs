//! Tokens as bytes, whole or with claims that are rightly signed, and Secrets of bootstrap tokens.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use common::time::{SharedClock, SimClock};
use common::token::BootstrapToken;
use http::{HeaderMap, HeaderValue};
use hub::apiserver::authn::{API_AUDIENCE, Authenticator, Claims, Peer, judge_bootstrap};
use hub::apiserver::caller::{ANONYMOUS, MASTERS};
use hub::apiserver::keys::Keys;
use hub::apiserver::store::{Change, Class, Expect, Key, Options, Store, Write};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

const TOKEN: &str = "abcdef.0123456789abcdef";
const ACCOUNT: &str = "system:serviceaccount:a:s";

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).expect("in range")
}

/// A hub with one bootstrap token and one ServiceAccount.
struct Rig {
    keys: Keys,
    authenticator: Authenticator,
    rightful: String,
}

static RIG: LazyLock<Rig> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("towline-fuzz-tokens-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let clock: SharedClock = Arc::new(SimClock::starting_at(now()));
    let keys = Keys::open(&folder, &clock).expect("keys");
    let store = Store::open(&folder, Options::default()).expect("a store");
    let put = |resource: &str, namespace: &str, name: &str, object: Value| {
        let write = Write {
            resource: resource.into(),
            key: Key::new(namespace, name),
            expect: Expect::Absent,
            change: Change::Put(object),
            class: Class::Durable,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let done = runtime.expect("a runtime").block_on(store.commit(write));
        done.expect("written");
    };
    put(
        "/secrets",
        "kube-system",
        "bootstrap-token-abcdef",
        secret(&[]),
    );
    put(
        "/serviceaccounts",
        "a",
        "s",
        json!({"metadata": {"namespace": "a", "name": "s", "uid": "u"}}),
    );
    let authenticator = Authenticator::new(keys.clone(), store, clock);
    let rightful = authenticator.sign(&Claims {
        namespace: "a",
        name: "s",
        uid: "u",
        audiences: &[API_AUDIENCE.to_owned()],
        bound: None,
        now: now(),
        seconds: 600,
        id: "i",
    });
    std::fs::remove_dir_all(&folder).expect("a folder");
    Rig {
        keys,
        authenticator,
        rightful: rightful.expect("signed"),
    }
});

/// The Secret of the token, with values changed.
fn secret(changes: &[(&str, &[u8])]) -> Value {
    let mut data = json!({
        "token-id": STANDARD.encode("abcdef"),
        "token-secret": STANDARD.encode("0123456789abcdef"),
        "usage-bootstrap-authentication": STANDARD.encode("true"),
    });
    for (key, value) in changes {
        data[*key] = json!(STANDARD.encode(value));
    }
    json!({
        "metadata": {"namespace": "kube-system", "name": "bootstrap-token-abcdef", "uid": "t"},
        "type": "bootstrap.kubernetes.io/token",
        "data": data,
    })
}

// The first byte chooses: an Authorization header, a token, claims, a Secret's groups and its end.
fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = data.split_first() else {
        return;
    };
    let rig = &*RIG;
    match choice % 4 {
        0 => header(rig, rest),
        1 => {
            let Ok(token) = std::str::from_utf8(rest) else {
                return;
            };
            let known = token.trim() == TOKEN || token == rig.rightful;
            assert_eq!(found(rig, token).is_some(), known, "{token}");
        }
        2 => claims(rig, rest),
        _ => groups(rest),
    }
});

fn found(rig: &Rig, token: &str) -> Option<String> {
    let here = [API_AUDIENCE.to_owned()];
    let (caller, meant) = rig.authenticator.token(token, &here)?.ok()?;
    assert_eq!(meant, here);
    assert!(!caller.is_in(MASTERS));
    Some(caller.user)
}

fn header(rig: &Rig, value: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(value) else {
        return;
    };
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
    if let Ok(caller) = rig.authenticator.authenticate(&Peer::Unknown, &headers) {
        let rightful = ["system:bootstrap:abcdef", ACCOUNT].contains(&caller.user.as_str());
        let text = headers["authorization"].to_str().unwrap_or_default();
        assert!(
            caller.user == ANONYMOUS
                || rightful && (text.contains(TOKEN) || text.contains(&rig.rightful))
        );
    }
}

fn claims(rig: &Rig, text: &[u8]) {
    let Ok(claims) = serde_json::from_slice::<Value>(text) else {
        return;
    };
    let token = rig.keys.account().sign(&claims).expect("signed");
    if let Some(user) = found(rig, &token) {
        // Even the key's holder can only speak for an account that is there.
        assert_eq!(user, ACCOUNT);
        assert_eq!(claims["kubernetes.io"]["serviceaccount"]["uid"], "u");
        assert!(
            claims["exp"]
                .as_i64()
                .is_some_and(|end| end > now().timestamp())
        );
    }
}

fn groups(text: &[u8]) {
    let mut parts = text.splitn(2, |byte| *byte == b'\n');
    let groups = parts.next().unwrap_or_default();
    let mut changes = vec![("auth-extra-groups", groups)];
    changes.extend(parts.next().map(|end| ("expiration", end)));
    let token = BootstrapToken::parse(TOKEN).expect("a token");
    if let Some(caller) = judge_bootstrap(&secret(&changes), &token, now()) {
        let of_tokens = |group: &String| group.starts_with("system:bootstrappers");
        assert!(caller.groups.iter().all(of_tokens), "{:?}", caller.groups);
    }
}
