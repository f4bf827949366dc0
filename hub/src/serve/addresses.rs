//! Where a hub is: what it listens on, how agents reach it, and the names in its certificate.

use common::client::HostPort;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Addresses of a hub.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    listen: SocketAddr,
    advertise: Vec<HostPort>,
}

impl Addresses {
    pub(super) fn new(listen: SocketAddr, advertise: &[HostPort]) -> Self {
        Self {
            listen,
            advertise: advertise.to_vec(),
        }
    }

    /// The same with the port that it got.
    pub(super) fn listening(self, listen: SocketAddr) -> Self {
        Self { listen, ..self }
    }

    /// How agents reach it, in the order in which they try.
    pub(super) fn servers(&self) -> Vec<String> {
        if self.advertise.is_empty() {
            let host = self.reachable().to_string();
            return vec![HostPort::new(&host, self.listen.port()).url()];
        }
        self.advertise.iter().map(HostPort::url).collect()
    }

    /// The first of them as `host:port`; empty until the port is known.
    pub(super) fn first(&self) -> String {
        if self.advertise.is_empty() && self.listen.port() == 0 {
            return String::new();
        }
        let first = self.servers().swap_remove(0);
        first.trim_start_matches("https://").to_owned()
    }

    /// How this machine itself reaches it.
    pub(super) fn local(&self) -> String {
        let ip = match self.listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        HostPort::new(&ip.to_string(), self.listen.port()).url()
    }

    /// Every name under which somebody may call it.
    pub(super) fn names(&self, more: &[String]) -> BTreeSet<String> {
        let known = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
        ];
        let mut names: BTreeSet<String> = known.into_iter().map(str::to_owned).collect();
        names.extend(hostname());
        names.insert(self.reachable().to_string());
        names.extend(self.advertise.iter().map(|to| to.host().to_owned()));
        names.extend(more.iter().cloned());
        names
    }

    /// The address of this machine that others see.
    fn reachable(&self) -> IpAddr {
        if !self.listen.ip().is_unspecified() {
            return self.listen.ip();
        }
        route_out().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }
}

/// Reads an address by which agents are to reach the hub.
pub(super) fn advertised(text: &str) -> Result<HostPort, String> {
    let found = HostPort::parse(text).map_err(|error| error.to_string())?;
    let ip = found.host().parse::<IpAddr>();
    if ip.is_ok_and(|ip| ip.is_unspecified()) {
        return Err(
            "it stands for every address of a machine, and agents would look on their own; name one of this machine"
                .to_owned(),
        );
    }
    Ok(found)
}

/// The address from which this machine would send; nothing is sent.
fn route_out() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address for documentation: the route is looked up, nobody is asked.
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

fn hostname() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_lowercase();
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_from_what_is_given() {
        let listen: SocketAddr = "0.0.0.0:6443".parse().expect("an address");
        let hub = HostPort::parse("hub.example:443").expect("an address");
        let told = Addresses::new(listen, &[hub]);
        assert_eq!(told.servers(), ["https://hub.example:443"]);
        assert_eq!(told.first(), "hub.example:443");
        assert_eq!(told.local(), "https://127.0.0.1:6443");
        let names = told.names(&["other".to_owned()]);
        for name in ["hub.example", "other", "localhost", "127.0.0.1"] {
            assert!(names.contains(name), "{name}");
        }
        for text in ["0.0.0.0:6443", "[::]:6443"] {
            let refused = advertised(text).expect_err("refused");
            assert!(refused.contains("every address"), "{refused}");
        }
        assert!(advertised("hub.example:6443").is_ok());
        let listen: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let chosen = Addresses::new(listen, &[]);
        assert_eq!(chosen.first(), "");
        let listen: SocketAddr = "127.0.0.1:7000".parse().expect("an address");
        assert_eq!(
            chosen.listening(listen).servers(),
            ["https://127.0.0.1:7000"]
        );
    }
}
