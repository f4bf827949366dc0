//! Acting as somebody else, for those who may.

use super::account::groups;
use crate::apiserver::authz::{Attributes, Authorizer};
use crate::apiserver::caller::{ANONYMOUS, AUTHENTICATED, Caller, UNAUTHENTICATED};
use crate::apiserver::error::ApiError;
use crate::apiserver::names::subdomain;
use crate::go::quote;
use common::names::is_dns_label;
use http::{HeaderMap, HeaderValue};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// How many users are remembered.
const KNOWN_MAX: usize = 1024;

/// Users who have acted as others by the plain rights: what they lack is told in the words of these,
/// and not of the narrower rights that are tried first.
#[derive(Debug, Default)]
pub struct Impersonators(Mutex<BTreeSet<String>>);

impl Impersonators {
    fn knows(&self, user: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(user)
    }

    fn learn(&self, user: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(user) {
            return;
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(user.to_owned());
    }
}

/// Whom a caller acts as; `None` when nobody is named.
pub fn impersonated(
    caller: &Caller,
    headers: &HeaderMap,
    authorizer: &Authorizer,
    known: &Impersonators,
    wanted: &Attributes,
) -> Result<Option<Caller>, ApiError> {
    let first = |key: &str| headers.get(key).map_or(Ok(""), text);
    let user = first(USER)?;
    let named_groups = headers.get_all(GROUP).iter();
    let named_groups = named_groups
        .map(|value| text(value).map(str::to_owned))
        .collect::<Result<Vec<String>, _>>()?;
    let uid = first(UID)?;
    let extra = extra(headers)?;
    if user.is_empty() {
        if named_groups.is_empty() && uid.is_empty() && extra.is_empty() {
            return Ok(None);
        }
        return Err(ApiError::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:{}, Extra:{}}} \
             without impersonating a user name",
            quote(uid),
            shown_list(&named_groups),
            shown_extra(extra),
        )));
    }
    let alone = named_groups.is_empty() && uid.is_empty() && extra.is_empty();
    let check = |group: &str, resource: &str, subresource: &str, namespace: &str, name: &str| {
        let asked = Attributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            path: None,
        };
        let decision = authorizer.decide(caller, &asked);
        if decision.allowed {
            return Ok(());
        }
        if known.knows(&caller.user) {
            return Err(asked.forbidden(caller, &decision.reason));
        }
        // What is told is that not even this one request may be made as somebody else.
        let mode = match (service_account(user), alone) {
            (None, _) => "user-info",
            (Some(_), true) => "serviceaccount",
            // No narrower right is one for an account with groups of somebody's choice.
            (Some(_), false) => return Err(asked.forbidden(caller, &decision.reason)),
        };
        let narrow = Attributes {
            verb: format!("impersonate-on:{mode}:{}", wanted.verb),
            ..wanted.clone()
        };
        Err(narrow.forbidden(caller, &decision.reason))
    };
    let mut acting = Caller {
        user: user.to_owned(),
        uid: uid.to_owned(),
        ..Caller::default()
    };
    match service_account(user) {
        Some((namespace, name)) => {
            check("", "serviceaccounts", "", namespace, name)?;
            if named_groups.is_empty() {
                acting.groups = groups(namespace);
            }
        }
        None => check("", "users", "", "", user)?,
    }
    for group in named_groups {
        check("", "groups", "", "", &group)?;
        acting.groups.push(group);
    }
    for (key, value) in extra {
        check(AUTHENTICATION, "userextras", &key, "", &value)?;
        acting.extra.entry(key).or_default().push(value);
    }
    if !uid.is_empty() {
        check(AUTHENTICATION, "uids", "", "", uid)?;
    }
    let implied = if user == ANONYMOUS {
        UNAUTHENTICATED
    } else {
        AUTHENTICATED
    };
    if !acting.is_in(implied) && !acting.is_in(UNAUTHENTICATED) {
        acting.groups.push(implied.to_owned());
    }
    known.learn(&caller.user);
    Ok(Some(acting))
}

/// A list of texts as Go source.
fn shown_list(texts: &[String]) -> String {
    if texts.is_empty() {
        return "[]string(nil)".to_owned();
    }
    let texts: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[]string{{{}}}", texts.join(", "))
}

/// The extra values as Go source.
fn shown_extra(extra: Vec<(String, String)>) -> String {
    if extra.is_empty() {
        return "map[string][]string(nil)".to_owned();
    }
    let mut by_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in extra {
        by_key.entry(key).or_default().push(value);
    }
    let shown: Vec<String> = by_key
        .iter()
        .map(|(key, values)| format!("{}:{}", quote(key), shown_list(values)))
        .collect();
    format!("map[string][]string{{{}}}", shown.join(", "))
}

fn service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    let is_name = |name: &str| subdomain(name).is_empty();
    (is_dns_label(namespace) && is_name(name)).then_some((namespace, name))
}

/// What a header says. One that cannot be read must not be taken for one that is not there: the caller
/// asked for fewer rights than its own.
fn text(value: &HeaderValue) -> Result<&str, ApiError> {
    std::str::from_utf8(value.as_bytes())
        .map_err(|_| ApiError::bad_request("an impersonation header is not text"))
}

/// The extra values, their keys in lower case and without percent-encoding.
fn extra(headers: &HeaderMap) -> Result<Vec<(String, String)>, ApiError> {
    let mut extra = Vec::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(EXTRA) else {
            continue;
        };
        let key = crate::apiserver::request::unescape(key).unwrap_or_else(|| key.to_owned());
        extra.push((key.to_lowercase(), text(value)?.to_owned()));
    }
    Ok(extra)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::caller::MASTERS;

    fn act(groups: &[&str], headers: &[(&'static str, &str)]) -> Result<Option<Caller>, ApiError> {
        let caller = Caller {
            user: "admin".to_owned(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..Caller::default()
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes());
            map.append(*name, value.expect("a header"));
        }
        let wanted = Attributes {
            verb: "list".to_owned(),
            resource: "configmaps".to_owned(),
            ..Attributes::default()
        };
        impersonated(
            &caller,
            &map,
            &Authorizer::default(),
            &Impersonators::default(),
            &wanted,
        )
    }

    #[test]
    fn masters_act_as_anybody() {
        let acted = |headers: &[(&'static str, &str)]| {
            let acting = act(&[MASTERS], headers).expect("may").expect("acts");
            (acting.user, acting.groups)
        };
        let texts = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(act(&[MASTERS], &[]), Ok(None));
        assert_eq!(
            acted(&[(USER, "bob"), (GROUP, "a")]),
            ("bob".to_owned(), texts(&["a", AUTHENTICATED]))
        );
        assert_eq!(
            acted(&[(USER, "system:serviceaccount:n:s")]).1,
            texts(&[
                "system:serviceaccounts",
                "system:serviceaccounts:n",
                AUTHENTICATED
            ])
        );
        assert_eq!(
            acted(&[(USER, "jürgen"), (GROUP, "開発")]),
            ("jürgen".to_owned(), texts(&["開発", AUTHENTICATED]))
        );
        assert_eq!(acted(&[(USER, ANONYMOUS)]).1, texts(&[UNAUTHENTICATED]));
        let extra = act(&[MASTERS], &[(USER, "b"), ("impersonate-extra-a%2fb", "v")]);
        let extra = extra.expect("may").expect("acts").extra;
        assert_eq!(extra["a/b"], ["v"]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_rather_than_left_out() {
        let caller = Caller {
            groups: vec![MASTERS.to_owned()],
            ..Caller::default()
        };
        for name in [USER, GROUP, UID, "impersonate-extra-a"] {
            let mut map = HeaderMap::new();
            if name != USER {
                map.insert(USER, HeaderValue::from_static("bob"));
            }
            map.insert(name, HeaderValue::from_bytes(b"b\xffb").expect("a header"));
            let acting = impersonated(
                &caller,
                &map,
                &Authorizer::default(),
                &Impersonators::default(),
                &Attributes::default(),
            );
            assert_eq!(acting.map_err(|error| error.code), Err(400), "{name}");
        }
    }

    #[test]
    fn others_do_not() {
        let refused = act(&[], &[(USER, "bob")]).expect_err("no right");
        assert_eq!(
            (refused.code, refused.message.as_str()),
            (
                403,
                "configmaps is forbidden: User \"admin\" cannot impersonate-on:user-info:list resource \
                 \"configmaps\" in API group \"\" at the cluster scope"
            )
        );
        assert_eq!(
            act(&[MASTERS], &[(GROUP, "a")]).map_err(|e| e.code),
            Err(400)
        );
    }

    /// As kube-apiserver 1.36 tells it: an account alone, one with groups that somebody chose, and what is none.
    #[test]
    fn an_account_is_told_as_one() {
        for (user, groups, says) in [
            (
                "n:s",
                &[][..],
                "cannot impersonate-on:serviceaccount:list resource \"configmaps\"",
            ),
            (
                "n:s",
                &["a"],
                "cannot impersonate resource \"serviceaccounts\"",
            ),
            ("n:Bad", &[], "cannot impersonate-on:user-info:list"),
            ("n:a:b", &[], "cannot impersonate-on:user-info:list"),
        ] {
            let user = format!("system:serviceaccount:{user}");
            let mut headers = vec![(USER, user.as_str())];
            headers.extend(groups.iter().map(|it| (GROUP, *it)));
            let refused = act(&[], &headers).expect_err("no right");
            assert!(refused.message.contains(says), "{}", refused.message);
        }
        let odd = act(&[MASTERS], &[(USER, "system:serviceaccount:n:Bad")]);
        let odd = odd.expect("may").expect("acts");
        assert_eq!(odd.groups, [AUTHENTICATED]);
    }
}
