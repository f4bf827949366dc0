//! The way to a hub: DNS, TCP, proxy, TLS, clock.
//!
//! One request is made; what it met says which steps of the way are good. An agent's way ends at the pin: a
//! token's signature is the agent's own to check.

use super::Finding;
use crate::cli::{CliError, Kind};
use chrono::{DateTime, Utc};
use common::client::{HostPort, Problem, classify};
use common::discovery::{self, CaPin};
use common::env::Env;
use common::proxy::ProxyChoice;
use common::time::{Clock as _, SystemClock};
use http::Request;
use http::header::DATE;
use kube::client::Body;
use kube::{Client, Config};

/// A clock this far off makes certificates and tokens fail sooner or later.
const SKEW: i64 = 30;

/// The steps in the order in which a connection takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Dns,
    Proxy,
    Tcp,
    Tls,
    Answer,
}

impl Step {
    const ALL: [Self; 5] = [Self::Dns, Self::Proxy, Self::Tcp, Self::Tls, Self::Answer];

    fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "DNS",
            Self::Proxy => "proxy",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Answer => "answer",
        }
    }
}

/// Where a problem lies, and what to do about it.
fn place(problem: &Problem) -> (Step, &'static str) {
    match problem {
        Problem::Dns { .. } => (
            Step::Dns,
            "Correct the host's name, or the resolver of this machine.",
        ),
        Problem::ProxyUnreachable { .. } => (
            Step::Proxy,
            "Correct the proxy's address: HTTPS_PROXY, --hub-proxy or proxy-url.",
        ),
        Problem::ProxyRefused { status: 407, .. } => (
            Step::Proxy,
            "Give the proxy's user and password: http://USER:PASSWORD@HOST:PORT.",
        ),
        Problem::ProxyRefused { .. } => (Step::Proxy, "Let the proxy tunnel to the hub's port."),
        Problem::Refused { .. } => (
            Step::Tcp,
            "Check that the API server is up, and that the port is right.",
        ),
        Problem::Unreachable { .. } | Problem::ConnectTimeout { .. } => {
            (Step::Tcp, "Open the way: route, firewall, security group.")
        }
        Problem::Certificate { .. } | Problem::Tls { .. } | Problem::Protocol { .. } => (
            Step::Tls,
            "Use the hub's own CA and one of the names in its certificate.",
        ),
        Problem::Timeout(_) => (
            Step::Answer,
            "The API server accepts connections but is stuck.",
        ),
        Problem::Api { code: 401, .. } => (
            Step::Answer,
            "Renew the credentials in the kubeconfig: the hub does not know them.",
        ),
        Problem::Api { .. } | Problem::Decode(_) | Problem::Other(_) => {
            (Step::Answer, "Look at the API server's log.")
        }
    }
}

/// Findings for the way to `address`, given what a request met.
fn steps(address: &str, proxied: bool, met: Option<&Problem>) -> Vec<Finding> {
    let failed = met.map(place);
    let mut findings = Vec::new();
    for step in Step::ALL {
        if step == Step::Proxy && !proxied {
            continue;
        }
        match (failed, met) {
            (Some((place, hint)), Some(problem)) if place == step => {
                findings.push(Finding::wrong(step.as_str(), problem.to_string(), hint));
                break;
            }
            _ => findings.push(Finding::right(step.as_str(), address)),
        }
    }
    findings
}

/// Walks to the hub of a kubeconfig.
pub(super) async fn to_hub(client: &Client, config: &Config) -> Vec<Finding> {
    let address = config.cluster_url.to_string();
    let proxied = config.proxy_url.is_some();
    let request = match Request::get("/version").body(Body::empty()) {
        Ok(request) => request,
        Err(error) => return vec![Finding::wrong("request", error.to_string(), "Report this.")],
    };
    match client.send(request).await {
        Err(error) => steps(&address, proxied, Some(&classify(&error))),
        Ok(answer) => {
            let shown = answer
                .headers()
                .get(DATE)
                .and_then(|date| date.to_str().ok());
            let shown = shown.and_then(|date| DateTime::parse_from_rfc2822(date).ok());
            let mut findings = steps(&address, proxied, None);
            findings.extend(shown.map(|hub| clock(hub.to_utc(), SystemClock.now())));
            findings
        }
    }
}

fn clock(hub: DateTime<Utc>, here: DateTime<Utc>) -> Finding {
    let ahead = (here - hub).num_seconds();
    if ahead.abs() <= SKEW {
        return Finding::right("clock", format!("within {SKEW}s of the hub's"));
    }
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    let what = format!("this machine is {}s {side} the hub", ahead.abs());
    Finding::wrong(
        "clock",
        what,
        "Set both clocks by NTP; certificates and tokens depend on them.",
    )
}

/// Walks to an address as an agent does, with a token that opens nothing.
pub(super) async fn to_address(
    server: HostPort,
    proxy: Option<&str>,
    pins: &[CaPin],
) -> Result<Vec<Finding>, CliError> {
    let proxy = ProxyChoice::from_flag(proxy).map_err(|e| CliError::new(Kind::Usage, e))?;
    let used = proxy
        .proxy_for(&server)
        .map_err(|e| CliError::new(Kind::Usage, e))?;
    let met = discovery::look(&server, &proxy, pins, &Env::system()).await;
    Ok(discovered(
        &server.to_string(),
        used.is_some(),
        !pins.is_empty(),
        met.as_deref(),
    ))
}

/// `met` are the pins of the hub's authorities, or what went wrong on the way to them.
fn discovered(
    address: &str,
    proxied: bool,
    pinned: bool,
    met: Result<&[CaPin], &discovery::Error>,
) -> Vec<Finding> {
    use discovery::Error;
    let past_tls = |last: Finding| {
        let mut findings = steps(address, proxied, None);
        findings.push(last);
        findings
    };
    let at_tls = |what: String, hint: &str| {
        let mut findings = steps(address, proxied, None);
        findings.truncate(findings.len().saturating_sub(2));
        findings.push(Finding::wrong("TLS", what, hint));
        findings
    };
    match met {
        Err(Error::Unreachable { attempts }) => steps(
            address,
            proxied,
            attempts.first().map(|attempt| &attempt.problem),
        ),
        Err(error @ (Error::ForeignIssuer { .. } | Error::WrongName { .. } | Error::Tls(_))) => {
            at_tls(
                error.to_string(),
                "Use an address that leads to the hub itself.",
            )
        }
        Err(error @ Error::ClockSkew { .. }) => {
            at_tls(error.to_string(), "Set both clocks by NTP.")
        }
        Err(error @ Error::NotAHub { .. }) => past_tls(Finding::wrong(
            "cluster-info",
            error.to_string(),
            "Correct the address, or prepare the hub by `towline init`.",
        )),
        Err(error @ Error::PinMismatch { .. }) => past_tls(Finding::wrong(
            "pin",
            error.to_string(),
            "Compare the pin with what `towline token create --print-register-command` prints.",
        )),
        Err(error) => past_tls(Finding::wrong(
            "cluster-info",
            error.to_string(),
            "Look at ConfigMap kube-public/cluster-info of the hub.",
        )),
        Ok(found) => {
            let found: Vec<String> = found.iter().map(CaPin::to_string).collect();
            let found = found.join(", ");
            past_tls(match pinned {
                true => Finding::right("pin", format!("the hub's CA has it: {found}")),
                false => Finding::right(
                    "cluster-info",
                    format!("served, and not verified without a pin; it shows {found}"),
                ),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(findings: &[Finding]) -> String {
        let show = |f: &Finding| match &f.seen {
            Ok(_) => f.step.clone(),
            Err(_) => format!("!{}", f.step),
        };
        findings.iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_first_step_that_fails_ends_the_walk() {
        let address = HostPort::new("hub", 6443);
        let cases = [
            (None, false, "DNS TCP TLS answer"),
            (
                Some(Problem::Dns {
                    host: "hub".into(),
                    reason: "x".into(),
                }),
                false,
                "!DNS",
            ),
            (
                Some(Problem::Refused {
                    address: address.clone(),
                }),
                false,
                "DNS !TCP",
            ),
            (
                Some(Problem::Tls {
                    address: address.clone(),
                    reason: "x".into(),
                }),
                false,
                "DNS TCP !TLS",
            ),
            (
                Some(Problem::ProxyRefused {
                    proxy: address.clone(),
                    address,
                    status: 407,
                    reason: "x".into(),
                }),
                true,
                "DNS !proxy",
            ),
            (
                Some(Problem::Other("x".into())),
                true,
                "DNS proxy TCP TLS !answer",
            ),
        ];
        for (problem, proxied, want) in cases {
            assert_eq!(
                shown(&steps("hub", proxied, problem.as_ref())),
                want,
                "{problem:?}"
            );
        }
    }

    #[test]
    fn an_agents_way_is_told_apart() {
        let address = HostPort::new("hub", 6443);
        let pin: CaPin = format!("sha256:{}", "0".repeat(64)).parse().expect("a pin");
        let found = [pin.clone()];
        let shown = |pinned, met| shown(&discovered("hub", false, pinned, met));
        assert_eq!(shown(false, Ok(&found)), "DNS TCP TLS answer cluster-info");
        assert_eq!(shown(true, Ok(&found)), "DNS TCP TLS answer pin");
        let mismatch = discovery::Error::PinMismatch {
            address: address.clone(),
            found: vec![pin],
        };
        assert_eq!(shown(true, Err(&mismatch)), "DNS TCP TLS answer !pin");
        let foreign = discovery::Error::ForeignIssuer {
            address,
            issuer: "proxy".into(),
        };
        assert_eq!(shown(true, Err(&foreign)), "DNS TCP !TLS");
    }

    #[test]
    fn clocks_are_compared() {
        let at =
            |seconds: i64| DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("in range");
        assert!(clock(at(0), at(29)).seen.is_ok());
        let wrong = clock(at(0), at(-90)).seen.expect_err("too far");
        assert_eq!(wrong.what, "this machine is 90s behind the hub");
    }
}
