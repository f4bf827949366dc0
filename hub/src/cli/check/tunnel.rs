//! Whether a member answers through the tunnel that its agent dialled: a request to its API server, as whoever looks.

use super::Finding;
use crate::apiserver::table::age;
use crate::cli::access::asking::{Asked, Asking};
use crate::cli::access::standing::{Holds, Why};
use crate::cli::kubeconfig::way;
use common::tunnel::headers::Stands;
use kube::Client;

const STEP: &str = "tunnel";

/// Walks it; `opened` is what the member's agent says that its owner opened it for.
pub(super) async fn look(client: &Client, cluster: &str, opened: Option<&str>) -> Finding {
    match way(client, cluster).await {
        Ok(way) => judge(opened, &Asking::oneself(client, way).ask(cluster).await),
        Err(error) => no_way(opened, &error.source.to_string()),
    }
}

fn no_way(opened: Option<&str>, why: &str) -> Finding {
    match opened {
        None => Finding::right(STEP, format!("off, and {why}")),
        Some(mode) => Finding::wrong(
            STEP,
            format!("its owner opened it ({mode}), but {why}"),
            "Run `towline-hub run` with --access-bind-address; see docs/access.md.",
        ),
    }
}

fn judge(opened: Option<&str>, asked: &Asked) -> Finding {
    let stands = asked.stands.as_ref().map(shown);
    let stands = stands.unwrap_or_else(|| "open".to_owned());
    match &asked.holds {
        Holds::Yes => Finding::right(STEP, format!("{stands}; its API server answers you")),
        Holds::No(Why::NoTunnel) => match opened {
            None => Finding::right(STEP, "off: its owner opened it to no user of the hub"),
            Some(mode) => Finding::wrong(
                STEP,
                format!("its owner opened it ({mode}), but its agent has no tunnel to this hub"),
                "Look at the agent's log: it says why it cannot dial one.",
            ),
        },
        Holds::No(Why::NotLetIn) => {
            Finding::right(STEP, format!("{stands}; its owner does not let you in"))
        }
        Holds::No(why) => Finding::right(STEP, format!("{stands}; {}", why.text())),
        Holds::Unknown(why) if asked.denied => {
            Finding::right(STEP, format!("not shown to this kubeconfig: {why}"))
        }
        Holds::Unknown(why) => Finding::wrong(
            STEP,
            format!("{stands}, but it does not answer: {why}"),
            "Look at the agent's log, and whether the member's API server is well.",
        ),
    }
}

/// For how long it stands, and what else is under way in it.
fn shown(stands: &Stands) -> String {
    let seconds = stands.seconds.saturating_mul(1000);
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let others = stands.streams.saturating_sub(1);
    let others = match others {
        0 => "nothing else".to_owned(),
        1 => "1 other request".to_owned(),
        more => format!("{more} other requests"),
    };
    format!("open for {}, with {others} under way", age::shown(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_says_of_the_tunnel() {
        let stands = Stands {
            seconds: 180,
            streams: 3,
        };
        let asked = |holds| Asked {
            holds,
            again: false,
            denied: false,
            stands: Some(stands),
            comes: None,
        };
        let seen = |opened, asked: &Asked| judge(opened, asked).seen.map_err(|wrong| wrong.what);
        let on = Some("read-only");
        let open = "open for 3m, with 2 other requests under way";
        assert_eq!(
            seen(on, &asked(Holds::Yes)),
            Ok(format!("{open}; its API server answers you"))
        );
        let not_in = asked(Holds::No(Why::NotLetIn));
        assert_eq!(
            seen(on, &not_in),
            Ok(format!("{open}; its owner does not let you in"))
        );
        let none = Asked {
            stands: None,
            ..asked(Holds::No(Why::NoTunnel))
        };
        assert!(seen(None, &none).is_ok_and(|it| it.starts_with("off: ")));
        let wrong = seen(on, &none).expect_err("wrong");
        assert_eq!(
            wrong,
            "its owner opened it (read-only), but its agent has no tunnel to this hub"
        );
        let silent = asked(Holds::Unknown("it does not answer within 5 s".to_owned()));
        assert!(seen(on, &silent).is_err());
        let denied = Asked {
            denied: true,
            ..asked(Holds::Unknown("no".to_owned()))
        };
        assert!(seen(on, &denied).is_ok_and(|it| it.contains("not shown")));
        assert!(no_way(None, "x").seen.is_ok() && no_way(on, "x").seen.is_err());
        let alone = Stands {
            seconds: 5,
            streams: 1,
        };
        assert_eq!(shown(&alone), "open for 5s, with nothing else under way");
    }
}
