//! Bodies as such: JSON, YAML and protobuf, of any form.

use super::{Ask, JSON, Shape, YAML, dry, map_of, post, shape, yaml};
use crate::bodies::{list, map, nested, object, protobuf};
use serde_json::json;

pub(super) fn all() -> Vec<Shape> {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let zeros = |n: usize| map_of(json!({"a": list(n, |_| json!(0))}));
    vec![
        shape(
            "a list where a text should be",
            1_400_000,
            400,
            post(MAPS, zeros),
        ),
        shape(
            "many entries",
            100_000,
            201,
            post(MAPS, |n| map_of(map(n, |_| json!("v")))),
        ),
        shape(
            "one long text",
            1_000_000,
            201,
            post(MAPS, |n| map_of(json!({"a": "x".repeat(n)}))),
        ),
        shape(
            "a text of escapes",
            400_000,
            201,
            post(MAPS, |n| map_of(json!({"a": "\u{1}\"<".repeat(n / 8)}))),
        ),
        shape(
            "keys that are wrong",
            60_000,
            422,
            post(MAPS, |n| {
                map_of((0..n).map(|at| (format!("!{at}"), json!("v"))).collect())
            }),
        ),
        shape(
            "unknown fields",
            60_000,
            201,
            post(MAPS, |n| {
                object("v1", "ConfigMap", "b", map(n, |_| json!(1)))
            }),
        ),
        shape("unknown fields, refused", 60_000, 400, |n| {
            let body = object("v1", "ConfigMap", "b", map(n, |_| json!(1)));
            let path = format!("{}&fieldValidation=Strict", dry(MAPS));
            Ask::new("POST", &path, JSON, body.to_string().into_bytes())
        }),
        shape("a key many times", 100_000, 201, |n| {
            let keys = "\"a\":\"b\",".repeat(n);
            let body =
                format!("{{\"metadata\":{{\"name\":\"b\"}},\"data\":{{{keys}\"c\":\"d\"}}}}");
            Ask::new("POST", &dry(MAPS), JSON, body.into_bytes())
        }),
        shape("many keys twice", 50_000, 201, |n| {
            let once: String = (0..n).map(|at| format!("\"k{at}\":\"b\",")).collect();
            let body =
                format!("{{\"metadata\":{{\"name\":\"b\"}},\"data\":{{{once}{once}\"c\":\"d\"}}}}");
            Ask::new("POST", &dry(MAPS), JSON, body.into_bytes())
        }),
        shape("deep lists", 1_000_000, 400, |n| {
            let body = format!(
                "{{\"metadata\":{{\"name\":\"b\"}},\"x\":{}}}",
                nested("[", "]", n)
            );
            Ask::new("POST", &dry(MAPS), JSON, body.into_bytes())
        }),
        shape("deep objects", 400_000, 400, |n| {
            Ask::new(
                "POST",
                &dry(MAPS),
                JSON,
                nested("{\"a\":", "}", n).into_bytes(),
            )
        }),
        shape("no JSON", 2_000_000, 400, |n| {
            Ask::new("POST", &dry(MAPS), JSON, "x".repeat(n).into_bytes())
        }),
        shape(
            "YAML",
            60_000,
            201,
            yaml(|n| {
                let lines: String = (0..n).map(|at| format!("  k{at}: \"v\"\n")).collect();
                format!("metadata:\n  name: b\ndata:\n{lines}")
            }),
        ),
        shape(
            "YAML with aliases",
            60_000,
            None,
            yaml(|n| {
                format!(
                    "metadata: {{name: b}}\nx: &a [1, 2, 3]\ny: [{}]\n",
                    "*a, ".repeat(n)
                )
            }),
        ),
        shape(
            "YAML with anchors",
            60_000,
            None,
            yaml(|n| {
                let all: String = (0..n).map(|at| format!("&a{at} 1, ")).collect();
                format!("metadata: {{name: b}}\ny: [{all}]\n")
            }),
        ),
        shape(
            "YAML with aliases of aliases",
            800,
            None,
            yaml(|n| {
                let all: String = (1..n)
                    .map(|at| format!("k{at}: &a{at} [*a{0}, *a{0}]\n", at - 1))
                    .collect();
                format!("metadata: {{name: b}}\nk0: &a0 [1]\n{all}")
            }),
        ),
        shape("YAML, deep", 200_000, 400, yaml(|n| nested("[", "]", n))),
        shape(
            "YAML, indented",
            1_200,
            None,
            yaml(|n| (0..n).map(|at| format!("{}a:\n", " ".repeat(at))).collect()),
        ),
        shape(
            "YAML keys twice",
            50_000,
            None,
            yaml(|n| {
                let once: String = (0..n).map(|at| format!("  k{at}: v\n")).collect();
                format!("metadata:\n  name: b\ndata:\n{once}{once}")
            }),
        ),
        shape("protobuf", 100_000, 201, |n| {
            let mut ask = Ask::new("POST", &dry(MAPS), JSON, protobuf(n));
            ask.headers = vec![("content-type", "application/vnd.kubernetes.protobuf")];
            ask
        }),
        shape("protobuf cut short", 100_000, 400, |n| {
            let mut body = protobuf(n);
            body.pop();
            let mut ask = Ask::new("POST", &dry(MAPS), JSON, body);
            ask.headers = vec![("content-type", "application/vnd.kubernetes.protobuf")];
            ask
        }),
        shape("as YAML", 100_000, 201, |n| {
            let body = map_of(map(n, |_| json!("yes")));
            let mut ask = Ask::new("POST", &dry(MAPS), JSON, body.to_string().into_bytes());
            ask.headers.push(("accept", YAML));
            ask
        }),
        shape("as a table", 100_000, 201, |n| {
            let body = map_of(map(n, |_| json!("yes")));
            let mut ask = Ask::new("POST", &dry(MAPS), JSON, body.to_string().into_bytes());
            ask.headers
                .push(("accept", "application/json;as=Table;g=meta.k8s.io;v=v1"));
            ask
        }),
    ]
}
