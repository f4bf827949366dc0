//! Bodies that are too long, too slow, too deep, or much more than they look like.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::wire::{connect, exchange, told};
use super::{Rig, SOON, Told};
use crate::env::{APPLY, JSON, JSON_PATCH, MERGE, ask};

const MAPS: &str = "/api/v1/namespaces/mine/configmaps";
const MAP: &str = "/api/v1/namespaces/mine/configmaps/a";
const YAML: &str = "application/yaml";
const MIB: usize = 1024 * 1024;

fn post(more: &str) -> Vec<u8> {
    format!(
        "POST {MAPS} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\
         Content-Type: application/json\r\n{more}\r\n\r\n"
    )
    .into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_bounded() -> Result<()> {
    let rig = Rig::begin("serve-attack-bodies").await?;
    let map = |name: &str, size: usize| {
        json!({"metadata": {"name": name}, "data": {"a": "x".repeat(size)}}).to_string()
    };
    // The twin: as much as a ConfigMap may hold.
    let large = map("large", MIB - 1024);
    rig.bob("POST", MAPS, Some((JSON, &large)))
        .await?
        .is(&[201])?;
    let larger = map("larger", 4 * MIB);
    rig.bob("POST", MAPS, Some((JSON, &larger)))
        .await?
        .is(&[413])?;
    // Without saying how long it is, and without end.
    let mut endless = post("Transfer-Encoding: chunked");
    let chunk = format!("{MIB:x}\r\n{}\r\n", "x".repeat(MIB));
    for _ in 0..16 {
        endless.extend_from_slice(chunk.as_bytes());
    }
    exchange(&rig.plane, false, &endless).await?.is(&[0, 413])?;
    let lies = post("Content-Length: 99999999999");
    let slow = [lies, b"{}".to_vec()].concat();
    patience(&rig, slow).await?;
    // What is packed is not unpacked.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut packed, map("bomb", 64 * MIB).as_bytes())?;
    let packed = packed.finish()?;
    let head = format!("Content-Encoding: gzip\r\nContent-Length: {}", packed.len());
    let sent = [post(&head), packed].concat();
    exchange(&rig.plane, false, &sent)
        .await?
        .is(&[400, 413, 415])?;
    // Who may not write is refused before anything of a body comes.
    let stranger = post("Content-Length: 1000000");
    exchange(&rig.plane, true, &stranger).await?.is(&[403])?;
    rig.end().await
}

/// A body that never comes ends with the time that its request may take; meanwhile others are served.
async fn patience(rig: &Rig, lies: Vec<u8>) -> Result<()> {
    let lies = String::from_utf8(lies)?.replacen(MAPS, &format!("{MAPS}?timeout=1s"), 1);
    let slow = lies.replace("99999999999", "100");
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let mut stream = connect(&rig.plane, false, "http/1.1").await?;
        stream.write_all(slow.as_bytes()).await?;
        waiting.push(stream);
    }
    rig.bob("GET", MAP, None).await?.is(&[200])?;
    for mut stream in waiting {
        let (code, body) = timeout(SOON, told(&mut stream)).await.context("no end")??;
        let what = "a body that does not come".to_owned();
        Told { what, code, body }.is(&[0, 408, 504])?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_body_unfolds_to_is_bounded() -> Result<()> {
    let rig = Rig::begin("serve-attack-nesting").await?;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let members = r#"{"a":"#.repeat(100_000);
    let wide = format!(
        "a: &a [{}0]\ndata: [{}*a]\n",
        "0,".repeat(20_000),
        "*a,".repeat(20_000)
    );
    let mut laughs = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..20 {
        let below = format!("*a{},", level - 1).repeat(10);
        laughs.push_str(&format!("a{level}: &a{level} [{below}x]\n"));
    }
    for (media, body) in [
        (JSON, &deep),
        (JSON, &members),
        (YAML, &deep),
        (YAML, &wide),
        (YAML, &laughs),
    ] {
        rig.bob("POST", MAPS, Some((media, body)))
            .await?
            .is(&[400, 413, 422])?;
    }
    let path = format!("{MAPS}/x?fieldManager=x");
    for body in [&wide, &laughs] {
        rig.bob("PATCH", &path, Some((APPLY, body)))
            .await?
            .is(&[400, 413, 422])?;
    }
    // The twin: an alias that is used.
    let few = "metadata: {name: few}\ndata: {a: &a x, b: *a}\n";
    rig.bob("POST", MAPS, Some((YAML, few))).await?.is(&[201])?;
    // Fields that are there twice, each with a long path: some are told, none takes the server with it.
    let twice = format!(
        r#"{{"metadata":{{"name":"twice"}},"data":{{"{}":{{{}"a":"b"}}}}}}"#,
        "x".repeat(MIB),
        r#""a":"b","#.repeat(150_000)
    );
    rig.bob("POST", MAPS, Some((JSON, &twice)))
        .await?
        .is(&[400, 413, 422])?;
    let unknown: Vec<String> = (0..100_000).map(|n| format!(r#""f{n}":0"#)).collect();
    let unknown = format!(r#"{{"metadata":{{"name":"odd"}},{}}}"#, unknown.join(","));
    let told = rig
        .bob(
            "POST",
            &format!("{MAPS}?dryRun=All"),
            Some((JSON, &unknown)),
        )
        .await?;
    told.is(&[201, 400, 413, 422])?;
    rig.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_patch_makes_is_bounded() -> Result<()> {
    let rig = Rig::begin("serve-attack-patches").await?;
    open_kind(&rig).await?;
    let things = "/apis/lab.towline.dev/v1/namespaces/mine/things";
    let thing = |name: &str, inner: Value| {
        json!({"apiVersion": "lab.towline.dev/v1", "kind": "Thing",
            "metadata": {"name": name}, "spec": inner})
    };
    let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
    rig.create(things, &thing("t", nested(40))).await?;
    let own = format!("{things}/t");
    let patch = async |operations: Vec<Value>| {
        let body = Value::Array(operations).to_string();
        let path = own.clone();
        ask(&rig.admin, "PATCH", &path, Some((JSON_PATCH, &body))).await
    };
    // Copies that double, and moves that nest: 2^40 members, 60,000 levels.
    let mut doubling =
        vec![json!({"op": "add", "path": "/spec/x", "value": {"k": "v".repeat(1000)}})];
    for level in 0..40 {
        let path = format!("/spec/x/c{level}");
        doubling.push(json!({"op": "copy", "from": "/spec/x", "path": path}));
    }
    let mut nesting = Vec::new();
    let part = nested(100);
    let leaf = format!("/spec/y{}", "/a".repeat(100));
    for _ in 0..600 {
        nesting.push(json!({"op": "move", "from": "/spec/x", "path": "/spec/z"}));
        nesting.push(json!({"op": "add", "path": "/spec/y", "value": part}));
        nesting.push(json!({"op": "move", "from": "/spec/z", "path": leaf}));
        nesting.push(json!({"op": "move", "from": "/spec/y", "path": "/spec/x"}));
    }
    nesting.insert(0, json!({"op": "add", "path": "/spec/x", "value": {}}));
    let many = vec![json!({"op": "test", "path": "/kind", "value": "Thing"}); 20_000];
    for operations in [doubling, nesting, many] {
        let answer = patch(operations).await?;
        ensure!(
            matches!(answer.code, 413 | 422),
            "{} {}",
            answer.code,
            answer.body
        );
    }
    // The twin: an operation of each kind.
    patch(vec![
        json!({"op": "add", "path": "/spec/n", "value": {"k": "v"}}),
        json!({"op": "copy", "from": "/spec/n", "path": "/spec/m"}),
        json!({"op": "move", "from": "/spec/n", "path": "/spec/o"}),
        json!({"op": "remove", "path": "/spec/o"}),
    ])
    .await?
    .ok()?;
    // What could be written but not be read again is not written: lists go on being lists.
    for (levels, fits) in [(40, true), (90, true), (120, false)] {
        let body = thing(&format!("t{levels}"), nested(levels)).to_string();
        let answer = ask(&rig.admin, "POST", things, Some((JSON, &body))).await?;
        ensure!(
            (answer.code == 201) == fits && answer.code < 500,
            "{levels}: {}",
            answer.code
        );
        let body = json!({"spec": nested(levels)}).to_string();
        let answer = ask(&rig.admin, "PATCH", &own, Some((MERGE, &body))).await?;
        ensure!(
            (answer.code == 200) == fits && answer.code < 500,
            "{levels}: {}",
            answer.code
        );
        ask(&rig.admin, "GET", things, None).await?.ok()?;
    }
    rig.end().await
}

/// A kind whose objects may hold anything.
pub(super) async fn open_kind(rig: &Rig) -> Result<()> {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
    super::rules::define(rig, "things", "Thing", schema).await
}
