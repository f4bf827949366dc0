//! Addresses as people write them: `host:port`, `[::1]:6443`, `https://hub.example`.

use std::fmt;

/// The port of an API server when none is written.
const DEFAULT_PORT: u16 = 6443;

/// A host and a port. An IPv6 address is kept without brackets and shown with them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostPort {
    host: String,
    port: u16,
}

/// Why a text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("address {0:?} must be host:port, with an IPv6 address in brackets")]
pub struct InvalidHostPort(String);

impl HostPort {
    /// An address of its parts; brackets around an IPv6 address may be there.
    pub fn new(host: &str, port: u16) -> Self {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self {
            host: host.to_owned(),
            port,
        }
    }

    /// Reads an address. `https://` before it and one `/` behind it are accepted; without a port it
    /// is 6443, or 443 after `https://`.
    pub fn parse(text: &str) -> Result<Self, InvalidHostPort> {
        let invalid = || InvalidHostPort(text.to_owned());
        let (rest, default) = match text.strip_prefix("https://") {
            Some(rest) => (rest.strip_suffix('/').unwrap_or(rest), 443),
            None => (text, DEFAULT_PORT),
        };
        if rest.parse::<std::net::Ipv6Addr>().is_ok() {
            return Ok(Self::new(rest, default));
        }
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, tail) = rest.split_once(']').ok_or_else(invalid)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| invalid())?;
                (host, tail)
            }
            None => rest.find(':').map_or((rest, ""), |at| rest.split_at(at)),
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|&p| p > 0).ok_or_else(invalid)?,
            None if port.is_empty() => default,
            None => return Err(invalid()),
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
        if host.is_empty() || !host.bytes().all(plain) {
            return Err(invalid());
        }
        Ok(Self::new(host, port))
    }

    /// The host, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// `https://host:port`.
    pub fn url(&self) -> String {
        format!("https://{self}")
    }

    pub(crate) fn uri(&self) -> http::Uri {
        http::Uri::builder()
            .scheme("https")
            .authority(self.to_string())
            .path_and_query("/")
            .build()
            .unwrap_or_default()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for HostPort {
    type Err = InvalidHostPort;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::parse(s)
    }
}

#[cfg(test)]
mod tests {
    use super::HostPort;

    #[test]
    fn addresses_are_read() {
        let cases = [
            ("hub.test:6443", "hub.test:6443"),
            ("hub.test", "hub.test:6443"),
            ("https://hub.test", "hub.test:443"),
            ("https://hub.test:8443/", "hub.test:8443"),
            ("[::1]:6443", "[::1]:6443"),
            ("[fd00::1]", "[fd00::1]:6443"),
            ("::1", "[::1]:6443"),
            ("https://[::1]", "[::1]:443"),
            ("10.0.0.1:443", "10.0.0.1:443"),
        ];
        for (text, want) in cases {
            let address = HostPort::parse(text).expect(text);
            assert_eq!(address.to_string(), want);
            assert_eq!(HostPort::parse(want), Ok(address.clone()));
            assert_eq!(address.uri().to_string(), format!("https://{want}/"));
        }
    }

    #[test]
    fn junk_is_refused() {
        for text in [
            "",
            ":6443",
            "hub:",
            "hub:0",
            "hub:70000",
            "hub:x",
            "[::1",
            "[hub]:1",
            "http://hub:1",
            "https://hub/api",
            "hub test:1",
            "user@hub:1",
        ] {
            assert!(HostPort::parse(text).is_err(), "{text}");
        }
    }
}
