//! The relay and the proxy that the tests of networks stand on.

use anyhow::{Context as _, Result};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::env::{ConnectProxy, Relay};

const SOON: Duration = Duration::from_secs(120);
/// Long enough for an echo on loopback, were there one.
const QUIET: Duration = Duration::from_millis(300);

/// Sends back what it gets, on every connection.
async fn echo() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
        }
    });
    Ok(address)
}

/// Whether an echo comes in time.
async fn echoes_within(stream: &mut TcpStream, within: Duration) -> Result<bool> {
    stream.write_all(b"x").await?;
    let mut answer = [0];
    match timeout(within, stream.read(&mut answer)).await {
        Ok(count) => Ok(count? == 1),
        Err(_) => Ok(false),
    }
}

async fn echoes(stream: &mut TcpStream) -> Result<bool> {
    echoes_within(stream, SOON).await
}

async fn is_silent(stream: &mut TcpStream) -> Result<bool> {
    Ok(!echoes_within(stream, QUIET).await?)
}

/// What was sent meanwhile arrives, on connections of before and of meanwhile.
#[tokio::test]
async fn a_relay_keeps_back_what_it_carries_and_loses_nothing() -> Result<()> {
    let relay = Relay::start(&echo().await?).await?;
    let mut old = TcpStream::connect(relay.address()).await?;
    assert!(echoes(&mut old).await?);
    relay.hold(true);
    let mut new = TcpStream::connect(relay.address()).await?;
    for stream in [&mut old, &mut new] {
        assert!(is_silent(stream).await?, "it goes on");
    }
    relay.hold(false);
    for stream in [&mut old, &mut new] {
        let mut answer = [0];
        let count = timeout(SOON, stream.read(&mut answer)).await??;
        assert_eq!((count, &answer), (1, b"x"), "what was kept back is lost");
        assert!(echoes(stream).await?);
    }
    Ok(())
}

#[tokio::test]
async fn a_relay_silences_what_is_established_and_lets_new_ones_through() -> Result<()> {
    let relay = Relay::start(&echo().await?).await?;
    let mut old = TcpStream::connect(relay.address()).await?;
    assert!(echoes(&mut old).await?);
    relay.silence_established();
    assert!(is_silent(&mut old).await?, "an old connection still works");
    let mut new = TcpStream::connect(relay.address()).await?;
    assert!(echoes(&mut new).await?, "a new connection does not work");

    relay.black_hole(true);
    let mut lost = TcpStream::connect(relay.address()).await?;
    assert!(is_silent(&mut lost).await?);
    relay.black_hole(false);
    let mut new = TcpStream::connect(relay.address()).await?;
    assert!(echoes(&mut new).await?);

    relay.close_established();
    let mut buffer = [0];
    let closed = timeout(SOON, new.read(&mut buffer)).await?;
    assert!(matches!(closed, Ok(0) | Err(_)), "it is still open");

    relay.refuse(true);
    let mut refused = TcpStream::connect(relay.address()).await?;
    let ended = timeout(SOON, refused.read(&mut buffer)).await?;
    assert!(matches!(ended, Ok(0) | Err(_)), "it was taken");
    Ok(())
}

#[tokio::test]
async fn a_proxy_asks_for_credentials_and_tunnels() -> Result<()> {
    let target = echo().await?;
    let proxy = ConnectProxy::start(Some("ann:secret")).await?;
    for (header, want) in [
        ("", "407"),
        ("Proxy-Authorization: Basic d3Jvbmc=\r\n", "407"),
        ("Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n", "200"),
    ] {
        let mut stream = TcpStream::connect(proxy.address()).await?;
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{header}\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(SOON, stream.read_u8()).await??);
        }
        let head = String::from_utf8(head)?;
        assert_eq!(head.split(' ').nth(1).context("no status")?, want);
        if want == "200" {
            assert!(echoes(&mut stream).await?);
        }
    }
    assert_eq!((proxy.tunnels(), proxy.refused()), (1, 2));
    Ok(())
}
