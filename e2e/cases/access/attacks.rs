//! What a client or a member sends that neither should, each beside its rightful twin: on both kinds of hub.

use super::door::{Door, served};
use super::hostile::{ENDLESS, Hostile, NAME};
use super::rig::{LONG, Stage, ask, is_built_in, to};
use anyhow::{Context as _, Result, ensure};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// What may lie on its way to a reader that takes nothing: windows, and what kernels buffer.
pub(super) const ON_ITS_WAY: u64 = 64 * 1024 * 1024;
pub(super) const HERE: &str = "/api/v1/namespaces/default/configmaps/here";

/// What every request of Ann's has when it arrives, however it was sent.
fn rightful(head: &str, host: &str) -> Result<()> {
    let (head, _) = head.split_once("\r\n\r\n").context("a head")?;
    let values = |name: &str| -> Vec<String> {
        let lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
        let of = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        of.map(|(_, value)| value.trim().to_owned()).collect()
    };
    ensure!(values("impersonate-user") == ["ann"], "{head}");
    ensure!(values("impersonate-group").is_empty(), "{head}");
    ensure!(values("authorization").len() == 1, "{head}");
    ensure!(values("host") == [host], "{head}");
    let framed = values("content-length").len() + values("transfer-encoding").len();
    ensure!(framed <= 1, "{head}");
    let none = ["cookie", "x-remote-user", "towline-user", "x-forwarded-for"];
    ensure!(none.iter().all(|name| values(name).is_empty()), "{head}");
    Ok(())
}

/// Bytes that two readers could take for different requests, and addresses of somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn access_takes_no_request_that_is_two() -> Result<()> {
    let stage = Stage::set("access-two", "impersonate").await?;
    let member = Hostile::start(&stage).await?;
    let elsewhere = TcpListener::bind("127.0.0.1:0").await?;
    let other = elsewhere.local_addr()?.to_string();
    let called = AbortOnDropHandle::new(tokio::spawn(async move { elsewhere.accept().await }));
    let at = |path: &str| to(NAME, path);
    let (post, get) = (at("/posted"), at("/got"));
    let hidden = "GET /smuggled HTTP/1.1\r\nHost: hub\r\nX-Remote-User: admin\r\nTowline-User: admin\r\n\
                  Impersonate-User: admin\r\nConnection: close\r\n\r\n";
    for door in Door::all(&stage).await? {
        let before = member.heard.all().len();
        // The twins: a body whose length is said, and one in pieces.
        for (framed, body) in [
            ("Content-Length: 5", "whole"),
            ("Transfer-Encoding: chunked", "5\r\nwhole\r\n0\r\n\r\n"),
        ] {
            let sent = format!(
                "POST {post} HTTP/1.1\r\nHost: hub\r\nWHO\r\nContent-Type: text/plain\r\nConnection: close\r\n{framed}\r\n\r\n{body}"
            );
            let said = door.send(&sent).await?;
            ensure!(said.starts_with("HTTP/1.1 200"), "{framed}: {said}");
        }
        let posted = member.heard.all().split_off(before);
        let wholes = posted.iter().filter(|text| text.contains("whole"));
        ensure!(
            posted.len() >= 2 && wholes.count() == posted.len(),
            "{posted:?}"
        );
        for framed in [
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
            "Content-Length: 0\r\nContent-Length: 5",
            "Content-Length: 0, 5",
            "Content-Length: +5",
            "Content-Length : 5",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: chunked, identity",
            "Transfer-Encoding:\x0bchunked",
            "Content-Length: 0\r\n Transfer-Encoding: chunked",
        ] {
            let sent = format!(
                "POST {post} HTTP/1.1\r\nHost: hub\r\nWHO\r\nContent-Type: text/plain\r\n{framed}\r\n\r\n0\r\n\r\n{hidden}"
            );
            door.send(&sent).await?;
        }
        // A line that ends in one byte, a second head in the first, and bytes after a connection that was not taken over.
        for sent in [
            format!("GET {get} HTTP/1.1\nHost: hub\nWHO\r\nConnection: close\n\n{hidden}"),
            format!(
                "GET {get} HTTP/1.1\r\nHost: hub\r\nWHO\r\nX: a\n\nGET /smuggled HTTP/1.1\r\n\r\n"
            ),
            format!(
                "GET {} HTTP/1.1\r\nHost: hub\r\nWHO\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n{hidden}",
                at("/refused")
            ),
            // Where it would lead.
            format!(
                "GET https://{other}{get} HTTP/1.1\r\nHost: {other}\r\nWHO\r\nConnection: close\r\n\r\n"
            ),
            format!(
                "GET {get} HTTP/1.1\r\nHost: {other}\r\nWHO\r\nX-Forwarded-Host: {other}\r\nConnection: close\r\n\r\n"
            ),
            format!(
                "GET {}https:{other}/x HTTP/1.1\r\nHost: hub\r\nWHO\r\nConnection: close\r\n\r\n",
                at("")
            ),
            format!(
                "GET {} HTTP/1.1\r\nHost: hub\r\nWHO\r\nConnection: close\r\n\r\n",
                at(&format!("//{other}/x"))
            ),
            format!("CONNECT {other} HTTP/1.1\r\nHost: {other}\r\nWHO\r\n\r\n"),
        ] {
            door.send(&sent).await?;
        }
        let heard = member.heard.all().split_off(before);
        for head in &heard {
            rightful(head, &member.host)?;
            let first = head.lines().next().unwrap_or_default();
            let known = ["/posted ", "/got ", "/refused "].iter();
            let mut known = known.map(|path| format!(" {path}HTTP/1.1"));
            ensure!(known.any(|it| first.ends_with(&it)), "{first} in {heard:?}");
        }
        ensure!(!member.heard.of("/refused").is_empty(), "{heard:?}");
    }
    ensure!(!called.is_finished(), "somebody else was dialled");
    let ann = stage.client("ann", &[]).await?;
    ask(&ann, "GET", &at("/plain"), &[])
        .await?
        .is(200, "plain")?;
    stage.passed().await;
    Ok(())
}

/// A member that leads elsewhere, speaks too early, for somebody else, or stops in the middle; beside what is passed on.
#[tokio::test(flavor = "multi_thread")]
async fn access_passes_on_what_a_member_may_say() -> Result<()> {
    let stage = Stage::set("access-said", "impersonate").await?;
    let _member = Hostile::start(&stage).await?;
    let ann = stage.client("ann", &[]).await?;
    let plain = stage.plain_client("ann").await?;
    let of = |path: &str| to(NAME, path);
    let socket = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    for (path, headers) in [
        ("/redirect", &[][..]),
        ("/early", &[]),
        ("/two-lengths", &[]),
        ("/early-other", &socket),
        ("/redirect", &socket),
    ] {
        let client = if headers.is_empty() { &ann } else { &plain };
        let answer = ask(client, "GET", &of(path), headers).await?;
        let refused = matches!(answer.code, 502 | 503);
        ensure!(
            refused && !answer.headers.contains_key("location"),
            "{path}: {answer:?}"
        );
        ensure!(
            !answer.body.contains("there") && !answer.body.contains("early\n"),
            "{answer:?}"
        );
    }
    for path in ["/cut", "/cut-chunks"] {
        let answer = ask(&ann, "GET", &of(path), &[]).await;
        // On the way it may be known to be broken before anything of it is passed on.
        let looks_whole = answer.as_ref().is_ok_and(|it| it.code < 500);
        ensure!(!looks_whole, "{path}: {answer:?}");
    }
    let answer = ask(&ann, "GET", &of("/headers"), &[])
        .await?
        .is(200, "headers")?;
    ensure!(
        answer
            .headers
            .get("content-type")
            .is_some_and(|it| it == "text/plain"),
        "{answer:?}"
    );
    for name in [
        "set-cookie",
        "www-authenticate",
        "access-control-allow-origin",
        "access-control-allow-credentials",
        "location",
        "strict-transport-security",
        "x-remote-user",
        "impersonate-user",
        "towline-upgrade",
        "towline-hop",
        "refresh",
    ] {
        ensure!(!answer.headers.contains_key(name), "{name}: {answer:?}");
    }
    let stands = answer
        .headers
        .get("towline-tunnel")
        .context("said by the hub")?;
    ensure!(stands.to_str()?.starts_with("seconds="), "{stands:?}");
    // One that was asked to switch and answers something else, beside one that says why it does not.
    for (path, code, text) in [
        ("/plain", 200, "plain"),
        ("/chunks", 200, "there"),
        ("/nothing", 204, ""),
    ] {
        ask(&plain, "GET", &of(path), &[]).await?.is(code, text)?;
        let answer = ask(&plain, "GET", &of(path), &socket).await?;
        answer
            .is(502, &format!("answered {code} "))?
            .is(502, "where it was asked to switch to")?;
    }
    let refused = ask(&plain, "GET", &of("/refused"), &socket).await?;
    refused.is(403, "refused")?;
    stage.passed().await;
    Ok(())
}

/// One that reads nothing of a gibibyte, beside one that reads; in the same tunnel and in another one.
#[tokio::test(flavor = "multi_thread")]
async fn access_waits_for_no_reader_but_its_own() -> Result<()> {
    let stage = Stage::set("access-slow", "impersonate").await?;
    let member = Hostile::start(&stage).await?;
    let (ann, dev) = (
        stage.client("ann", &[]).await?,
        stage.plain_client("ann").await?,
    );
    let endless = || Request::get(to(NAME, "/endless")).body(Body::empty());
    let slow = dev.send(endless()?).await?;
    ensure!(slow.status() == 200, "{}", slow.status());
    let sent = || member.heard.sent.load(Ordering::Relaxed);
    served(&ann, &to(NAME, "/plain"), &[], "plain").await?;
    served(&ann, &to("m1", HERE), &[], "m1").await?;
    ensure!(sent() < ON_ITS_WAY, "{} bytes lie somewhere", sent());
    // The twin takes what is there as fast as it can, and all of what it takes is right.
    let before = sent();
    let mut body = stage
        .plain_client("ann")
        .await?
        .send(endless()?)
        .await?
        .into_body();
    let mut read = 0;
    while read < 2 * ON_ITS_WAY {
        let frame = timeout(LONG, body.frame()).await.context("nothing comes")?;
        let frame = frame.context("it ended")??;
        let data = frame.data_ref().context("no data")?;
        ensure!(data.iter().all(|byte| *byte == b'x'), "something else came");
        read += data.len() as u64;
    }
    ensure!(sent() - before >= read && read < ENDLESS, "{read}");
    drop((slow, body));
    served(&ann, &to(NAME, "/plain"), &[], "plain").await?;
    stage.passed().await;
    Ok(())
}

/// An Audit-ID that is forged, and one that is used again, tells two requests apart all the same.
#[tokio::test(flavor = "multi_thread")]
async fn access_is_told_under_an_id_of_its_own() -> Result<()> {
    let stage = Stage::set("access-audit", "impersonate").await?;
    let member = Hostile::start(&stage).await?;
    let ann = stage.client("ann", &[]).await?;
    let forged = [("audit-id", "forged"), ("towline-stream", "forged")];
    let of_member = "/api/v1/namespaces/default/configmaps/audited";
    for _ in 0..2 {
        ask(&ann, "GET", &to(NAME, "/audited"), &forged)
            .await?
            .is(200, "audited")?;
        ask(&ann, "GET", &to("m1", of_member), &forged)
            .await?
            .is(404, "")?;
    }
    // It is passed on as what it is, beside nothing of ours that a client could have said.
    let heard = member.heard.of("/audited");
    ensure!(heard.len() == 2, "{heard:?}");
    for head in &heard {
        let head = head.to_ascii_lowercase();
        ensure!(
            head.contains("audit-id: forged") && !head.contains("\ntowline-"),
            "{head}"
        );
    }
    let hub = if is_built_in() {
        &stage.lab.hub.apiserver
    } else {
        &stage.fleet.hub
    };
    let (hub, agent) = (
        ids(&hub.log_text(), of_member),
        ids(&stage.agent.log_text(), of_member),
    );
    ensure!(hub.len() == 2 && hub == agent, "{hub:?} {agent:?}");
    ensure!(!hub.contains("forged"), "{hub:?}");
    stage.passed().await;
    Ok(())
}

/// The ids under which a log tells of requests for a path.
fn ids(log: &str, path: &str) -> BTreeSet<String> {
    let lines = log
        .lines()
        .filter(|line| line.contains(path) && line.contains("ask"));
    let ids = lines.filter_map(|line| {
        let (_, rest) = line.split_once("stream")?;
        let rest = rest.trim_start_matches(['"', '=', ':', ' ']);
        Some(rest.split(['"', ' ', ',']).next()?.to_owned())
    });
    ids.collect()
}
