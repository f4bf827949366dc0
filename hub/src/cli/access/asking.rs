//! Whether members let somebody in: asked of each through its tunnel, as that one or as oneself.

use super::grant::{Named, VIEW, Who};
use super::standing::{Holds, Why};
use crate::cli::kubeconfig::Way;
use common::errors::chain;
use common::harmless;
use common::tunnel::headers::Stands;
use common::tunnel::{Comes, cause, headers};
use http::header::{ACCEPT, CONTENT_TYPE, WARNING};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::client::Body;
use serde_json::{Value, json};
use std::time::Duration;

const USER: HeaderName = HeaderName::from_static("impersonate-user");
const GROUP: HeaderName = HeaderName::from_static("impersonate-group");
/// How long one member may take.
const WITHIN: Duration = Duration::from_secs(5);
/// Longest answer, in bytes, and characters of it that are shown.
const LONGEST: usize = 1024 * 1024;
const SHOWN: usize = 300;
/// What is asked for reading alone, and what for more: whoever has a name may ask it, and it changes nothing.
const READING: &str = "/api";
const MORE: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Who asks, and as whom.
pub(in crate::cli) struct Asking<'a> {
    client: &'a Client,
    way: Way,
    /// The group that has to come along, as members call it.
    group: Option<String>,
    /// The headers by which the hub takes a request as one of theirs.
    as_them: Vec<(HeaderName, HeaderValue)>,
    reads: bool,
}

/// What came back.
struct Answer {
    code: StatusCode,
    warnings: Vec<String>,
    stands: Option<Stands>,
    comes: Option<Comes>,
    body: Value,
}

/// What is known now, and whether asking again may say otherwise: rights that were just given count a moment later.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::cli) struct Asked {
    pub(in crate::cli) holds: Holds,
    pub(in crate::cli) again: bool,
    /// Whether the hub itself refused, for want of a right there.
    pub(in crate::cli) denied: bool,
    /// How the tunnel stands, where there is one.
    pub(in crate::cli) stands: Option<Stands>,
    /// As whom users come in there, where its agent says so.
    pub(in crate::cli) comes: Option<Comes>,
}

impl<'a> Asking<'a> {
    /// Prepares to ask as whom the hub takes the client for.
    pub(in crate::cli) fn oneself(client: &'a Client, way: Way) -> Self {
        Self {
            client,
            way,
            group: None,
            as_them: Vec::new(),
            reads: true,
        }
    }

    /// Prepares to ask for somebody with a role: of a group, as oneself in that group.
    pub(super) async fn of(
        client: &'a Client,
        way: Way,
        subject: &Named,
        role: &str,
    ) -> Result<Self, String> {
        let value = |name: &str| HeaderValue::from_bytes(name.as_bytes());
        let unfit = |_| format!("{subject} cannot be written in a header");
        let name = value(&subject.name).map_err(unfit)?;
        let as_them = match subject.kind {
            Who::User => vec![(USER, name)],
            Who::Group => {
                let own = own_name(client).await?;
                vec![(USER, value(&own).map_err(unfit)?), (GROUP, name)]
            }
        };
        Ok(Self {
            client,
            way,
            group: (subject.kind == Who::Group).then(|| subject.in_member()),
            as_them,
            reads: role == VIEW,
        })
    }

    /// Asks one member.
    pub(in crate::cli) async fn ask(&self, cluster: &str) -> Asked {
        let unknown = |why: String| Asked {
            holds: Holds::Unknown(why),
            again: true,
            denied: false,
            stands: None,
            comes: None,
        };
        match tokio::time::timeout(WITHIN, self.answer(cluster)).await {
            Err(_) => unknown(format!("it does not answer within {} s", WITHIN.as_secs())),
            Ok(Err(why)) => unknown(why),
            Ok(Ok(answer)) => judge(self.group.as_deref(), cluster, &answer),
        }
    }

    async fn answer(&self, cluster: &str) -> Result<Answer, String> {
        let prefix = self.way.path(cluster);
        let (method, path, body) = match self.reads {
            true => (Method::GET, READING, String::new()),
            false => (Method::POST, MORE, question().to_string()),
        };
        let request = Request::builder()
            .method(method)
            .uri(format!("{prefix}{path}"))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(body.into_bytes()));
        let mut request = request.map_err(|error| error.to_string())?;
        request.headers_mut().extend(self.as_them.iter().cloned());
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| chain(&error).to_string())?;
        let (head, body) = answer.into_parts();
        let warnings = head.headers.get_all(WARNING).iter();
        let warnings = warnings.filter_map(|it| it.to_str().ok().map(str::to_owned));
        let warnings = warnings.collect();
        let stands = head.headers.get(headers::TUNNEL);
        let stands = stands.and_then(|it| Stands::read(it.to_str().ok()?));
        let comes = head.headers.get(headers::COMES);
        let comes = comes.and_then(|it| Comes::named(it.to_str().ok()?));
        let body = Limited::new(body, LONGEST).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        Ok(Answer {
            code: head.status,
            warnings,
            stands,
            comes,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        })
    }
}

fn question() -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}},
    })
}

/// Who asks, by the hub's word.
async fn own_name(client: &Client) -> Result<String, String> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = SelfSubjectReview::default();
    let review = reviews.create(&PostParams::default(), &review).await;
    let review = review.map_err(|error| format!("the hub does not say who you are: {error}"))?;
    let said = review.status.and_then(|it| it.user_info?.username);
    said.ok_or_else(|| "the hub does not say who you are".to_owned())
}

/// What an answer says of whether they are let in. What the member's own API server says, it says to somebody who is.
fn judge(group: Option<&str>, cluster: &str, answer: &Answer) -> Asked {
    let said = |holds, again| Asked {
        holds,
        again,
        denied: false,
        stands: answer.stands,
        comes: answer.comes,
    };
    let details = &answer.body["details"];
    let of = details["causes"][0]["reason"].as_str().unwrap_or_default();
    let message = answer.body["message"].as_str().unwrap_or_default();
    let message = harmless::line(message, SHOWN);
    match (answer.code.as_u16(), of, details["kind"].as_str()) {
        (503, cause::NO_TUNNEL, _) => said(Holds::No(Why::NoTunnel), false),
        (403, cause::READING_ALONE, _) => said(Holds::No(Why::ReadingAlone), false),
        (403, cause::NOT_LET_IN, _) => match group {
            None => said(Holds::No(Why::NotLetIn), false),
            Some(_) => {
                let why =
                    "you are not let in there yourself, so that nobody could ask for the group";
                said(Holds::Unknown(why.to_owned()), false)
            }
        },
        (403, _, Some("clusters")) => Asked {
            denied: true,
            ..said(Holds::Unknown(message), true)
        },
        (403, _, Some("users" | "groups" | "serviceaccounts")) => {
            said(Holds::Unknown(message), false)
        }
        (403, ..) => said(Holds::Yes, false),
        _ if answer.code.is_success() => {
            let left_out = group.map(|group| cause::left_out(cluster, group));
            let stays = |it: &String| answer.warnings.iter().any(|said| said.contains(it));
            match left_out.as_ref().is_some_and(stays) {
                true => said(Holds::No(Why::NotLetIn), false),
                false => said(Holds::Yes, false),
            }
        }
        (code, ..) if message.is_empty() => {
            said(Holds::Unknown(format!("it answered {code}")), true)
        }
        _ => said(Holds::Unknown(message), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, body: Value) -> Answer {
        Answer {
            code: StatusCode::from_u16(code).expect("a code"),
            warnings: Vec::new(),
            stands: None,
            comes: Some(Comes::Groups),
            body,
        }
    }

    fn because(code: u16, reason: &str) -> Answer {
        let cause = json!({"causes": [{"reason": reason}]});
        answer(code, json!({"message": "no", "details": cause}))
    }

    fn about(kind: &str) -> Answer {
        answer(403, json!({"message": "no", "details": {"kind": kind}}))
    }

    #[test]
    fn what_answers_say_of_whom_a_member_lets_in() {
        let of = |holds| Asked {
            holds,
            again: false,
            denied: false,
            stands: None,
            comes: Some(Comes::Groups),
        };
        let unknown = |again| Asked {
            again,
            ..of(Holds::Unknown("no".to_owned()))
        };
        let denied = Asked {
            denied: true,
            ..unknown(true)
        };
        let yes = || of(Holds::Yes);
        let no = |why| of(Holds::No(why));
        for (answer, want) in [
            (answer(200, json!({})), yes()),
            (answer(201, json!({})), yes()),
            // A member that says no says it to somebody whom it let in.
            (answer(403, json!({"message": "no"})), yes()),
            (about("selfsubjectaccessreviews"), yes()),
            (because(503, cause::NO_TUNNEL), no(Why::NoTunnel)),
            (because(403, cause::NOT_LET_IN), no(Why::NotLetIn)),
            (because(403, cause::READING_ALONE), no(Why::ReadingAlone)),
            (about("clusters"), denied),
            (about("users"), unknown(false)),
            (answer(503, json!({"message": "no"})), unknown(true)),
            (answer(429, json!({"message": "no"})), unknown(true)),
        ] {
            assert_eq!(judge(None, "m1", &answer), want, "{}", answer.body);
        }
        let mut warned = answer(200, json!({}));
        warned.warnings = vec!["299 - \"cluster m1 does not let group dev in\"".to_owned()];
        assert_eq!(judge(Some("dev"), "m1", &warned), no(Why::NotLetIn));
        assert_eq!(judge(None, "m1", &warned), yes());
        warned.warnings = vec!["299 - \"cluster m1 does not let group ops in\"".to_owned()];
        assert_eq!(judge(Some("dev"), "m1", &warned), yes());
        let itself = judge(Some("dev"), "m1", &because(403, cause::NOT_LET_IN));
        assert!(matches!(itself.holds, Holds::Unknown(_)), "{itself:?}");
    }
}
