//! Free TCP ports that stay free until they are used, also while what listened on one is down.
//!
//! They lie below those that the kernel gives to outgoing connections: a server that is killed and started
//! again on its port would else now and then find somebody's connection on it, and a client that dials a
//! port where nobody listens may be connected to itself. No port is handed out twice by one program; another
//! program may still take one, and a plane that finds its port taken starts again with new ones.

use anyhow::{Context as _, Result, bail};
use rand::Rng as _;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Below are those that people know by heart.
const LOWEST: u16 = 12_000;
/// Fewer than that are not worth choosing from.
const ENOUGH: usize = 4_000;
/// How many ports in a row may be taken.
const TRIES: usize = 1_000;

static HANDED_OUT: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Several ports that are free now and differ from each other.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut ports = [0; N];
    for port in &mut ports {
        *port = free_port()?;
    }
    Ok(ports)
}

/// One port that is free now.
pub(crate) fn free_port() -> Result<u16> {
    let range = apart_from_outgoing();
    for _ in 0..TRIES {
        // Where the kernel's own range leaves no room, it says itself what is free.
        let wanted = match &range {
            Some(range) => common::chance::secret::rng().random_range(range.clone()),
            None => 0,
        };
        let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted)) else {
            continue;
        };
        let port = listener.local_addr().context("failed to read a port")?;
        let port = port.port();
        let mut taken = HANDED_OUT.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.insert(port) {
            return Ok(port);
        }
    }
    bail!("no free port after {TRIES} tries")
}

/// Ports that the kernel gives to no outgoing connection.
fn apart_from_outgoing() -> Option<Range<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let first: u16 = text.split_whitespace().next()?.parse().ok()?;
    let range = LOWEST..first;
    (range.len() >= ENOUGH).then_some(range)
}
