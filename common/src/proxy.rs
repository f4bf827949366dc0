//! The way out: whether a connection goes through an HTTP proxy, and the CONNECT that opens it.

use crate::client::HostPort;
use http::{HeaderName, HeaderValue, header};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use std::fmt;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Longest answer to a CONNECT that is read.
const ANSWER_MAX: usize = 16 * 1024;

/// Which connections go through which proxy. `Debug` hides its password.
#[derive(Clone, Default)]
pub struct ProxyChoice {
    rules: Option<Arc<Matcher>>,
    headers: Headers,
}

/// What a CONNECT says besides.
type Headers = Option<Arc<[(HeaderName, HeaderValue)]>>;

/// Headers that a CONNECT has anyway, or that would make another request of it.
const OWN_HEADERS: [&str; 4] = ["host", "content-length", "transfer-encoding", "connection"];

/// A proxy that a connection has to go through.
#[derive(Clone)]
pub struct Proxy {
    /// Where it listens.
    pub address: HostPort,
    authorization: Option<HeaderValue>,
    headers: Headers,
}

/// Why a proxy cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProxy {
    /// Not a URL with host and port. The text is not repeated: it may hold a password.
    #[error("the proxy must be given as http://[user:password@]host:port")]
    Syntax,
    /// A scheme that is not spoken.
    #[error("proxy scheme {0:?} is not supported; use an http:// proxy")]
    Scheme(String),
    /// A header that cannot be sent. Its value is not repeated.
    #[error("{0:?} is no header that can be sent to a proxy")]
    Header(String),
}

/// Why a proxy did not open a tunnel.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The connection to the proxy broke.
    #[error("failed to talk to the proxy")]
    Io(#[source] std::io::Error),
    /// It answered no.
    #[error("the proxy answered {status} {reason}")]
    Refused {
        /// Its status.
        status: u16,
        /// Its words.
        reason: String,
    },
    /// It did not answer in HTTP.
    #[error("the proxy's answer is not HTTP")]
    NotHttp,
}

impl ProxyChoice {
    /// No proxy, whatever the environment says.
    pub const fn direct() -> Self {
        Self {
            rules: None,
            headers: None,
        }
    }

    fn by(rules: Matcher) -> Self {
        Self {
            rules: Some(Arc::new(rules)),
            headers: None,
        }
    }

    /// The same, with these headers in each CONNECT.
    pub fn with_headers<'a>(
        self,
        headers: impl IntoIterator<Item = (&'a String, &'a String)>,
    ) -> Result<Self, InvalidProxy> {
        let one = |(name, value): (&String, &String)| {
            let invalid = || InvalidProxy::Header(name.clone());
            let parsed = HeaderName::try_from(name).map_err(|_| invalid())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| invalid())?;
            if OWN_HEADERS.contains(&parsed.as_str()) {
                return Err(invalid());
            }
            value.set_sensitive(true);
            Ok((parsed, value))
        };
        let headers: Vec<_> = headers.into_iter().map(one).collect::<Result<_, _>>()?;
        Ok(Self {
            headers: (!headers.is_empty()).then(|| headers.into()),
            ..self
        })
    }

    /// The same, with the headers of another choice.
    #[must_use]
    pub fn with_headers_of(self, other: &Self) -> Self {
        Self {
            headers: other.headers.clone(),
            ..self
        }
    }

    /// `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` of the process, in either case of letters.
    pub fn environment() -> Self {
        Self::by(Matcher::from_env())
    }

    /// What an environment with these values would choose.
    pub fn from_values(https_proxy: &str, no_proxy: &str) -> Self {
        Self::by(Matcher::builder().https(https_proxy).no(no_proxy).build())
    }

    /// This proxy, for every connection.
    pub fn explicit(url: &str) -> Result<Self, InvalidProxy> {
        let choice = Self::by(Matcher::builder().all(url).build());
        let probe = HostPort::new("hub.invalid", 443);
        let intercept = choice.intercept(&probe).ok_or(InvalidProxy::Syntax)?;
        endpoint(&intercept).map(|_| choice)
    }

    /// The flag's proxy when it is given, else the environment's.
    pub fn from_flag(url: Option<&str>) -> Result<Self, InvalidProxy> {
        url.map_or_else(|| Ok(Self::environment()), Self::explicit)
    }

    /// The proxy to reach `target` through, if any.
    pub fn proxy_for(&self, target: &HostPort) -> Result<Option<Proxy>, InvalidProxy> {
        let found = self.intercept(target).as_ref().map(endpoint).transpose()?;
        Ok(found.map(|proxy| Proxy {
            headers: self.headers.clone(),
            ..proxy
        }))
    }

    fn intercept(&self, target: &HostPort) -> Option<Intercept> {
        let uri = target.url().parse().ok()?;
        self.rules.as_ref()?.intercept(&uri)
    }
}

fn endpoint(intercept: &Intercept) -> Result<Proxy, InvalidProxy> {
    let uri = intercept.uri();
    let scheme = uri.scheme_str().unwrap_or_default();
    if scheme != "http" {
        return Err(InvalidProxy::Scheme(scheme.to_owned()));
    }
    let host = uri.host().ok_or(InvalidProxy::Syntax)?;
    Ok(Proxy {
        address: HostPort::new(host, uri.port_u16().unwrap_or(80)),
        authorization: intercept.basic_auth().cloned(),
        headers: None,
    })
}

impl fmt::Debug for ProxyChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.rules.is_some() {
            "ProxyChoice(by rule)"
        } else {
            "ProxyChoice(direct)"
        })
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({})", self.address)
    }
}

impl Proxy {
    /// Asks the proxy at the other end of `stream` for a tunnel to `target`.
    pub async fn connect<S>(&self, stream: &mut S, target: &HostPort) -> Result<(), TunnelError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
        let more = self.headers.as_deref().unwrap_or_default();
        let given = more
            .iter()
            .any(|(name, _)| name == header::PROXY_AUTHORIZATION);
        if let Some(value) = self.authorization.as_ref().filter(|_| !given) {
            request.extend_from_slice(b"Proxy-Authorization: ");
            request.extend_from_slice(value.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        for (name, value) in more {
            request.extend_from_slice(name.as_str().as_bytes());
            request.extend_from_slice(b": ");
            request.extend_from_slice(value.as_bytes());
            request.extend_from_slice(b"\r\n");
        }
        request.extend_from_slice(b"\r\n");
        stream.write_all(&request).await.map_err(TunnelError::Io)?;

        // Nothing of the tunnel can follow the answer: in TLS the client speaks first.
        let mut answer = Vec::with_capacity(512);
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            if answer.len() >= ANSWER_MAX {
                return Err(TunnelError::NotHttp);
            }
            if stream
                .read_buf(&mut answer)
                .await
                .map_err(TunnelError::Io)?
                == 0
            {
                return Err(TunnelError::Io(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
        let (status, reason) = status_line(&answer).ok_or(TunnelError::NotHttp)?;
        if (200..300).contains(&status) {
            return Ok(());
        }
        Err(TunnelError::Refused { status, reason })
    }
}

fn status_line(answer: &[u8]) -> Option<(u16, String)> {
    let line = answer.split(|&b| b == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix("HTTP/1.")?;
    let mut words = rest.splitn(3, ' ').skip(1);
    let status = words.next()?.parse().ok()?;
    Some((status, words.next().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(https: &str, no: &str, target: &str) -> Option<String> {
        let target = HostPort::parse(target).expect("valid");
        let proxy = ProxyChoice::from_values(https, no)
            .proxy_for(&target)
            .expect("usable");
        proxy.map(|p| p.address.to_string())
    }

    #[test]
    fn the_environment_decides_by_target() {
        let proxy = "http://proxy.test:3128";
        let some = Some("proxy.test:3128".to_owned());
        assert_eq!(choose(proxy, "", "hub.test:6443"), some);
        assert_eq!(choose(proxy, "hub.test", "hub.test:6443"), None);
        assert_eq!(choose(proxy, ".test", "hub.test:6443"), None);
        assert_eq!(choose(proxy, "10.0.0.0/8,::1", "10.1.2.3:6443"), None);
        assert_eq!(choose(proxy, "10.0.0.0/8,::1", "[::1]:6443"), None);
        assert_eq!(choose(proxy, "10.0.0.0/8", "11.1.2.3:6443"), some);
        assert_eq!(choose("", "", "hub.test:6443"), None);
    }

    #[test]
    fn flags_are_judged_and_hidden() {
        assert_eq!(ProxyChoice::explicit("").err(), Some(InvalidProxy::Syntax));
        assert!(matches!(
            ProxyChoice::explicit("socks5://p:1").err(),
            Some(InvalidProxy::Scheme(_))
        ));
        let choice = ProxyChoice::explicit("http://me:hunter2@p:3128").expect("valid");
        let proxy = choice
            .proxy_for(&HostPort::new("::1", 1))
            .expect("usable")
            .expect("one");
        assert!(!format!("{choice:?}{proxy:?}").contains("hunter2"));
        assert_eq!(
            proxy.authorization.expect("given"),
            "Basic bWU6aHVudGVyMg=="
        );
    }

    #[test]
    fn headers_are_judged_and_hidden() {
        let with = |name: &str, value: &str| {
            let (name, value) = (name.to_owned(), value.to_owned());
            ProxyChoice::direct().with_headers([(&name, &value)])
        };
        let choice = with("X-Team", "hunter2").expect("valid");
        let explicit = ProxyChoice::explicit("http://p:1").expect("valid");
        let proxy = explicit.with_headers_of(&choice);
        let proxy = proxy.proxy_for(&HostPort::new("m", 1)).expect("usable");
        assert!(!format!("{choice:?}{proxy:?}").contains("hunter2"));
        assert_eq!(proxy.and_then(|it| it.headers).map(|it| it.len()), Some(1));
        for (name, value) in [
            ("Host", "x"),
            ("content-length", "1"),
            ("a b", "x"),
            ("a", "x\r\nHost: y"),
        ] {
            let refused = with(name, value).err();
            assert_eq!(refused, Some(InvalidProxy::Header(name.to_owned())));
        }
    }

    #[tokio::test]
    async fn tunnels_are_asked_for() {
        let (mut client, mut server) = tokio::io::duplex(4096);
        let (name, value) = ("X-Team".to_owned(), "red".to_owned());
        let proxy = ProxyChoice::explicit("http://me:pw@p:1")
            .and_then(|c| c.with_headers([(&name, &value)]))
            .and_then(|c| c.proxy_for(&HostPort::new("::1", 6443)))
            .expect("usable")
            .expect("one");
        let target = HostPort::new("::1", 6443);
        let asked = async {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                server.read_buf(&mut request).await.expect("reads");
            }
            let answer = b"HTTP/1.1 407 Who are you\r\nX: y\r\n\r\n";
            server.write_all(answer).await.expect("writes");
            String::from_utf8(request).expect("text")
        };
        let (result, request) = tokio::join!(proxy.connect(&mut client, &target), asked);
        assert!(request.starts_with("CONNECT [::1]:6443 HTTP/1.1\r\nHost: [::1]:6443\r\n"));
        assert!(request.contains("Proxy-Authorization: Basic bWU6cHc=\r\nx-team: red\r\n"));
        assert!(matches!(
            result,
            Err(TunnelError::Refused { status: 407, .. })
        ));
    }
}
