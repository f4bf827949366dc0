//! Flags of the port by which members are reached.

use super::Error;
use clap::Args;
use common::client::HostPort;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// What the flags are called in errors.
const BIND: &str = "--access-bind-address";

/// The flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reaching members")]
pub struct AccessArgs {
    /// Where tunnels of agents and the API proxy.towline.dev are served, so that users of the hub can reach members; 0 for
    /// nowhere
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0",
        env = "TOWLINE_HUB_ACCESS_BIND_ADDRESS"
    )]
    access_bind_address: String,
    /// Address by which agents reach it; repeat for several. Default: where it is served
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        env = "TOWLINE_HUB_ACCESS_ADVERTISE"
    )]
    access_advertise: Vec<HostPort>,
    /// Address by which the hub's API server reaches it. Default: the first by which agents do
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "TOWLINE_HUB_ACCESS_SERVICE_ADDRESS"
    )]
    access_service_address: Option<HostPort>,
    /// Address by which other replicas of towline-hub reach this one. Default: where it is served, or, if that is all
    /// addresses, where the hub's API server reaches it
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "TOWLINE_HUB_ACCESS_PEER_ADDRESS"
    )]
    access_peer_address: Option<HostPort>,
    /// CA certificates of agents. Default: those that the hub's API server names in
    /// kube-system/extension-apiserver-authentication
    #[arg(long, value_name = "FILE", env = "TOWLINE_HUB_ACCESS_CLIENT_CA_FILE")]
    access_client_ca_file: Option<PathBuf>,
}

/// The flags, validated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Where to listen.
    pub address: SocketAddr,
    /// Where agents dial; never empty.
    pub advertise: Vec<HostPort>,
    /// Where the hub's API server dials.
    pub service: HostPort,
    /// Where other replicas dial.
    pub peer: HostPort,
    /// In the place of what that says of its clients' authorities.
    pub client_ca: Option<PathBuf>,
}

impl AccessArgs {
    /// Checks the flags; none where nothing is served.
    pub(super) fn into_config(self) -> Result<Option<Access>, Error> {
        let Self {
            access_bind_address,
            access_advertise,
            access_service_address,
            access_peer_address,
            access_client_ca_file,
        } = self;
        let Some(address) = super::address(BIND, &access_bind_address)? else {
            let told = access_service_address.or(access_peer_address);
            return match access_advertise.is_empty() && told.is_none() {
                true => Ok(None),
                false => Err(Error::Access(
                    "--access-advertise, --access-service-address and --access-peer-address need --access-bind-address",
                )),
            };
        };
        let own = (!address.ip().is_unspecified())
            .then(|| HostPort::new(&address.ip().to_string(), address.port()));
        let mut advertise = access_advertise;
        if advertise.is_empty() {
            let own = own.clone().ok_or(Error::Access(
                "--access-advertise HOST:PORT must say by which address agents reach what listens on all of them",
            ))?;
            advertise.push(own);
        }
        let service = access_service_address.or_else(|| advertise.first().cloned());
        let service = service.filter(|service| {
            let ip = service.host().parse::<IpAddr>();
            !matches!(ip, Ok(IpAddr::V6(_)))
        });
        let service = service.ok_or(Error::Access(
            "--access-service-address must be a name or an address of IPv4: a Service can name no other",
        ))?;
        Ok(Some(Access {
            address,
            advertise,
            peer: access_peer_address
                .or(own)
                .unwrap_or_else(|| service.clone()),
            service,
            client_ca: access_client_ca_file,
        }))
    }
}

impl Access {
    /// The hosts by which it is called.
    pub fn names(&self) -> BTreeSet<String> {
        let all = self.advertise.iter().chain([&self.service, &self.peer]);
        all.map(|address| address.host().to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        access: AccessArgs,
    }

    fn config(args: &[&str]) -> Result<Option<Access>, String> {
        let cli = Cli::try_parse_from([&["towline-hub"], args].concat());
        let cli = cli.map_err(|error| error.to_string())?;
        cli.access.into_config().map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_served_unless_it_is_asked_for() {
        assert_eq!(config(&[]), Ok(None));
        assert_eq!(config(&["--access-bind-address=0"]), Ok(None));
        let all = config(&["--access-bind-address=192.0.2.1:10443"]);
        let all = all.expect("valid").expect("served");
        let own = HostPort::new("192.0.2.1", 10443);
        assert_eq!(
            (&all.advertise[..], &all.service, &all.peer),
            (&[own.clone()][..], &own, &own)
        );
        let told = config(&[
            "--access-bind-address=:10443",
            "--access-advertise=hub.example:443,192.0.2.7:10443",
            "--access-service-address=10.0.0.7:10443",
        ]);
        let told = told.expect("valid").expect("served");
        let names: Vec<String> = told.names().into_iter().collect();
        assert_eq!(names, ["10.0.0.7", "192.0.2.7", "hub.example"]);
        assert_eq!(told.peer, told.service);
        let common = config(&[
            "--access-bind-address=:10443",
            "--access-advertise=hub.example:443",
            "--access-peer-address=10.0.0.7:10443",
        ]);
        let common = common.expect("valid").expect("served");
        assert_eq!(common.peer, HostPort::new("10.0.0.7", 10443));
        assert!(common.names().contains("10.0.0.7"));
        for (bad, why) in [
            (&["--access-bind-address=:10443"][..], "--access-advertise"),
            (&["--access-advertise=a:1"], "--access-bind-address"),
            (&["--access-peer-address=a:1"], "--access-bind-address"),
            (&["--access-bind-address=[::1]:10443"], "IPv4"),
            (&["--access-bind-address=x"], "HOST:PORT"),
        ] {
            let error = config(bad).expect_err(why);
            assert!(error.contains(why), "{bad:?}: {error}");
        }
    }
}
