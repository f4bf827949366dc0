use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("writes");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("reads");
    answer
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

#[tokio::test]
async fn checks_decide_and_paths_stay_apart() {
    let state = AdminState::default();
    let check = state.readiness.add("hub");
    let stop = CancellationToken::new();
    let (health, metrics) = (any(), SocketAddr::from(([127, 0, 0, 2], 0)));
    let serving = serve(health, metrics, state, stop.clone())
        .await
        .expect("listens");
    assert!(
        get(serving.health.expect("bound"), "/livez")
            .await
            .starts_with("HTTP/1.1 200")
    );
    let unready = get(serving.health.expect("bound"), "/readyz").await;
    assert!(unready.starts_with("HTTP/1.1 503") && unready.contains("[-]hub failed: not yet"));
    check.ok();
    assert!(
        get(serving.health.expect("bound"), "/readyz?verbose")
            .await
            .contains("[+]hub ok")
    );
    check.fail("gone");
    assert!(
        get(serving.health.expect("bound"), "/readyz")
            .await
            .contains("gone")
    );
    assert!(
        get(serving.health.expect("bound"), "/metrics")
            .await
            .starts_with("HTTP/1.1 404")
    );
    assert!(
        get(serving.metrics.expect("bound"), "/metrics")
            .await
            .contains("text/plain; version=0.0.4")
    );
    stop.cancel();
    serving.task.await.expect("ends");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_connection_makes_room_for_another() {
    let mut tasks = JoinSet::new();
    let mut open = Open::default();
    let first = tasks.spawn(std::future::pending::<()>());
    open.add(first.clone());
    // Those that ended take no place.
    for _ in 0..2 * CONNECTIONS {
        let ended = tasks.spawn(std::future::ready(()));
        open.add(ended);
        tasks.join_next().await.expect("one").expect("it ended");
    }
    for _ in 1..CONNECTIONS {
        open.add(tasks.spawn(std::future::pending()));
    }
    assert_eq!(tasks.len(), CONNECTIONS);
    open.add(tasks.spawn(std::future::pending()));
    let ended = tokio::time::timeout(HEADER_TIMEOUT, tasks.join_next()).await;
    let ended = ended.expect("one was ended").expect("one");
    assert_eq!(ended.expect_err("aborted").id(), first.id());
    assert_eq!(open.0.len(), CONNECTIONS);
}

/// As any Pod of the cluster may open them.
#[tokio::test]
async fn silent_connections_keep_nobody_out() {
    let stop = CancellationToken::new();
    let serving = serve(
        any(),
        None::<SocketAddr>,
        AdminState::default(),
        stop.clone(),
    );
    let serving = serving.await.expect("listens");
    let address = serving.health.expect("bound");
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS {
        silent.push(TcpStream::connect(address).await.expect("connects"));
    }
    // Before a silent one is given up by itself.
    let answer = tokio::time::timeout(HEADER_TIMEOUT * 4 / 5, get(address, "/livez")).await;
    let answer = answer.expect("it is not kept out");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let end = silent[0].read(&mut [0]).await;
    assert_eq!(end.expect("an end in order"), 0);
    stop.cancel();
}

#[tokio::test]
async fn one_address_serves_both() {
    let stop = CancellationToken::new();
    let serving = serve(any(), any(), AdminState::default(), stop.clone())
        .await
        .expect("listens");
    assert_eq!(serving.health, serving.metrics);
    assert!(
        get(serving.health.expect("bound"), "/metrics")
            .await
            .contains("text/plain; version=0.0.4")
    );
    assert!(
        get(serving.health.expect("bound"), "/healthz")
            .await
            .contains("200")
    );
    stop.cancel();
}
