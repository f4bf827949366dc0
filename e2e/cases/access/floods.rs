//! An agent that floods its hub, beside one that does not: on both kinds of hub.

use super::attacks::HERE;
use super::door::served;
use super::hostile::Hostile;
use super::rig::{Stage, to};
use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .unwrap_or_default()
        .to_be_bytes();
    let mut all = length[1..].to_vec();
    all.extend([kind, flags]);
    all.extend(stream.to_be_bytes());
    all.extend(payload);
    all
}

/// What an agent floods its hub with: what it is, and the so manyth piece of it.
type Flood = (&'static str, fn(u32) -> Vec<u8>);

const FLOODS: [Flood; 8] = [
    ("settings", |_| {
        frame(4, 0, 0, &[0, 3, 0, 0, 1, 0]).repeat(100)
    }),
    ("pings", |_| frame(6, 0, 0, &[7; 8]).repeat(100)),
    ("resets", |n| {
        (0..100)
            .flat_map(|k| frame(3, 0, 2 * (100 * n + k) + 1, &[0, 0, 0, 8]))
            .collect()
    }),
    ("promised streams", |n| {
        (1..=100)
            .flat_map(|k| frame(5, 4, 1, &(2 * (100 * n + k)).to_be_bytes()))
            .collect()
    }),
    ("headers nobody asked for", |n| {
        (0..100)
            .flat_map(|k| frame(1, 4, 2 * (100 * n + k) + 1, &[0x88]))
            .collect()
    }),
    // A head that never ends: literal fields without indexing, 16 KiB each.
    ("a head without end", |n| {
        let kind = if n == 0 { 1 } else { 9 };
        let mut field = vec![0x00, 0x01, b'a', 0x7f, 0x81, 0x7e];
        field.resize(16_000, b'b');
        frame(kind, 0, 1, &field)
    }),
    ("windows", |_| frame(8, 0, 0, &[0, 0, 0, 1]).repeat(100)),
    ("data nobody asked for", |_| frame(0, 0, 1, &[b'x'; 16_000])),
];

/// An agent that floods its hub in every way, beside one that does not.
#[tokio::test(flavor = "multi_thread")]
async fn access_serves_the_neighbour_of_an_agent_that_floods() -> Result<()> {
    let stage = Stage::set("access-floods", "impersonate").await?;
    let mut member = Hostile::start(&stage).await?;
    let ann = stage.client("ann", &[]).await?;
    member.orphan();
    for (what, piece) in FLOODS {
        let flood = async {
            loop {
                let Ok(stream) = member.dial(&stage).await else {
                    continue;
                };
                let mut stream = TokioIo::new(stream);
                let mut first = [0; 24];
                // One that is cut off comes again at once.
                if stream.read_exact(&mut first).await.is_err()
                    || stream.write_all(&frame(4, 0, 0, &[])).await.is_err()
                {
                    continue;
                }
                let (mut from, mut to) = tokio::io::split(stream);
                let reading = async {
                    let mut sink = [0; 16_384];
                    while matches!(from.read(&mut sink).await, Ok(1..)) {}
                };
                let writing = async {
                    let mut n = 0;
                    while to.write_all(&piece(n)).await.is_ok() {
                        n += 1;
                    }
                };
                tokio::select! {
                    biased;
                    () = reading => {}
                    () = writing => {}
                }
            }
        };
        let path = to("m1", HERE);
        let served = served(&ann, &path, &[], "m1");
        tokio::select! {
            biased;
            served = served => served.context(what)?,
            () = flood => {}
        }
    }
    drop(member);
    stage.passed().await;
    Ok(())
}
