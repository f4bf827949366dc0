//! Free TCP ports, asked of the kernel.
//!
//! Between the asking and the use somebody else may take a port; a plane that finds its port taken
//! starts again with new ones.

use anyhow::{Context as _, Result};
use std::net::{Ipv4Addr, TcpListener};

/// Several ports that are free now and differ from each other.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to ask for a free port")?;
        *port = listener
            .local_addr()
            .context("failed to read a port")?
            .port();
        held.push(listener);
    }
    Ok(ports)
}

/// One port that is free now.
pub(crate) fn free_port() -> Result<u16> {
    let [port] = free_ports()?;
    Ok(port)
}
