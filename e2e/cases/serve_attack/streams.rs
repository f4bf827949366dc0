//! Connections that hold on to what others need: slow ones, crowded ones, and floods.

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::wire::{connect, exchange, told};
use super::{Rig, SOON};

const MAPS: &str = "/api/v1/namespaces/mine/configmaps";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_do_not_end_are_cut_off() -> Result<()> {
    let rig = Rig::begin("serve-attack-heads").await?;
    let mut slow = Vec::new();
    for stranger in [true, false] {
        for _ in 0..40 {
            let mut stream = connect(&rig.plane, stranger, "http/1.1").await?;
            stream
                .write_all(b"GET /api HTTP/1.1\r\nHost: hub\r\nX-Slow: ")
                .await?;
            stream.flush().await?;
            slow.push(stream);
        }
    }
    // Not even a handshake.
    let mut mute = tokio::net::TcpStream::connect(rig.plane.address()).await?;
    rig.bob("GET", MAPS, None).await?.is(&[200])?;
    for mut stream in slow {
        let (code, body) = timeout(SOON, told(&mut stream))
            .await
            .context("is not cut off")??;
        ensure!(matches!(code, 0 | 408), "{code} {body}");
    }
    let mut buffer = [0; 64];
    let read = timeout(SOON, mute.read(&mut buffer))
        .await
        .context("is not cut off")?;
    ensure!(matches!(read, Ok(0) | Err(_)), "{read:?}");

    let many: String = (0..2000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let long = format!("X-Long: {}\r\n", "x".repeat(2 * 1024 * 1024));
    for more in [&many, &long] {
        let request = super::wire::request("GET", MAPS, more);
        exchange(&rig.plane, false, &request)
            .await?
            .is(&[0, 400, 431])?;
    }
    // The twin: as many as people send.
    let few: String = (0..50).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let request = super::wire::request("GET", MAPS, &few);
    exchange(&rig.plane, false, &request).await?.is(&[200])?;
    rig.end().await
}

/// Streams that are opened and taken back as fast as they can be written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_streams_ends_its_own_connection_only() -> Result<()> {
    let rig = Rig::begin("serve-attack-flood").await?;
    let mut stream = connect(&rig.plane, true, "h2").await?;
    let mut flood = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for id in (1..200_000_u32).step_by(2) {
        // GET, https, the path /, all of the static table; then RST_STREAM with CANCEL.
        flood.extend_from_slice(b"\0\0\x03\x01\x05");
        flood.extend_from_slice(&id.to_be_bytes());
        flood.extend_from_slice(b"\x82\x87\x84");
        flood.extend_from_slice(b"\0\0\x04\x03\0");
        flood.extend_from_slice(&id.to_be_bytes());
        flood.extend_from_slice(b"\0\0\0\x08");
    }
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let write = async {
        // The server may end the connection while it is written to.
        let _ = writer.write_all(&flood).await;
        let _ = writer.shutdown().await;
    };
    let read = async {
        let mut buffer = [0; 8192];
        while matches!(reader.read(&mut buffer).await, Ok(1..)) {}
    };
    timeout(SOON, async { tokio::join!(write, read) })
        .await
        .context("the flood goes on")?;
    rig.bob("GET", MAPS, None).await?.is(&[200])?;
    rig.end().await
}
