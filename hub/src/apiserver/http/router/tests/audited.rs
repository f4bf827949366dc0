//! What the audit log says of where a request came from.

use super::*;
use crate::apiserver::http::connection::Connection;

#[tokio::test]
async fn a_line_says_where_the_request_came_from() {
    let rig = Rig::begin().await;
    let address = "2001:db8::7".parse().expect("an address");
    let map = json!({"metadata": {"name": "a"}}).to_string();
    for (peer, name) in [(&Peer::Itself, "hub"), (&somebody("bob", &[]), "bob")] {
        let mut request = Request::post(format!("{MAPS}?fieldManager={name}"))
            .body(Full::new(Bytes::from(map.clone())))
            .expect("a request");
        let connection = Arc::new(Connection::new(address, None));
        request.extensions_mut().insert(connection);
        let _ = rig.running.router.handle(request, peer).await;
    }
    let text = std::fs::read_to_string(rig.dir.path().join("audit.log")).expect("there");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let from: Vec<Value> = lines
        .filter(|line: &Value| line["path"] == MAPS)
        .map(|line| json!([line["code"], line["sourceIPs"]]))
        .collect();
    let wanted = json!([[201, ["2001:db8::7"]], [403, ["2001:db8::7"]]]);
    assert_eq!(Value::Array(from), wanted);
    rig.running.end().await;
}
