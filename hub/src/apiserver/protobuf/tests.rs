//! Objects of every kind as Go writes them, and bodies that are none.

use super::*;
use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;
use std::sync::LazyLock;

#[derive(Deserialize)]
struct Sample {
    #[serde(rename = "p")]
    protobuf: String,
    #[serde(rename = "j")]
    json: Value,
}

/// What `e2e/modules/facts/protobuf` wrote.
fn samples() -> Vec<(Vec<u8>, Value)> {
    use base64::Engine as _;
    let packed: &[u8] = include_bytes!("samples.json.gz");
    let samples: Vec<Sample> = serde_json::from_reader(GzDecoder::new(packed)).unwrap();
    let decoder = base64::engine::general_purpose::STANDARD;
    samples
        .into_iter()
        .map(|sample| (decoder.decode(sample.protobuf).unwrap(), sample.json))
        .collect()
}

/// The first path at which two values differ.
fn differ(path: &str, a: &Value, b: &Value) -> Option<String> {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let keys = x.keys().chain(y.keys());
            keys.filter_map(|key| {
                let path = format!("{path}.{key}");
                match (x.get(key), y.get(key)) {
                    (Some(a), Some(b)) => differ(&path, a, b),
                    (a, b) => Some(format!("{path}: {a:?} {b:?}")),
                }
            })
            .next()
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            let items = x.iter().zip(y).enumerate();
            items
                .filter_map(|(at, (a, b))| differ(&format!("{path}[{at}]"), a, b))
                .next()
        }
        _ if a == b => None,
        _ => Some(format!("{path}: {a} {b}")),
    }
}

#[test]
fn every_kind_reads_as_go_reads_it() {
    let samples = samples();
    assert!(samples.len() > 150);
    let mut wrong = Vec::new();
    for (body, json) in samples {
        let of = format!("{} {}", json["apiVersion"], json["kind"]);
        match read(&body, 0) {
            Ok(read) => wrong.extend(differ(&of, &read, &json)),
            // Kinds that are not served.
            Err(Unread::Kind { .. }) => {}
            Err(unread) => wrong.push(format!("{of}: {unread}")),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn a_small_body_by_hand() {
    let mut body = b"k8s\0".to_vec();
    // Unknown{typeMeta{v1, ConfigMap}, raw}
    body.extend_from_slice(b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap");
    // metadata{name: a}, data{k: v}
    let raw = b"\x0a\x03\x0a\x01a\x12\x06\x0a\x01k\x12\x01v";
    body.extend_from_slice(&[0x12, u8::try_from(raw.len()).unwrap()]);
    body.extend_from_slice(raw);
    assert_eq!(
        decode(&body).unwrap(),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})
    );
}

#[test]
fn what_is_no_body_is_refused() {
    let cases: [(&[u8], &str); 4] = [
        (b"{}", "expected prefix"),
        (b"k8s\0\x0a", "unexpected EOF"),
        (
            b"k8s\0\x0a\x08\x0a\x02v1\x12\x02Xy",
            "no kind \"Xy\" is registered",
        ),
        (b"k8s\0\x0b", "illegal wireType"),
    ];
    for (body, wanted) in cases {
        let refused = decode(body).unwrap_err();
        assert!(refused.to_string().contains(wanted), "{refused}");
    }
}

#[test]
fn messages_are_not_nested_without_end() {
    let schema = Schema::json_schema_props().unwrap();
    let number = schema.property("not").unwrap().proto().unwrap().numbers[0];
    let mut message = Vec::new();
    for _ in 0..200 {
        let mut outer = Vec::new();
        for mut part in [number << 3 | 2, u32::try_from(message.len()).unwrap()] {
            while part > 0x7f {
                outer.push(u8::try_from(part & 0x7f | 0x80).unwrap());
                part >>= 7;
            }
            outer.push(u8::try_from(part).unwrap());
        }
        outer.extend_from_slice(&message);
        message = outer;
    }
    let read = message::Walk::new(0).message(&message, &schema);
    assert_eq!(read.unwrap_err(), Unread::Depth);
}

proptest! {
    #[test]
    fn no_body_is_too_strange(at in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(), with in any::<u8>()) {
        static SAMPLES: LazyLock<Vec<(Vec<u8>, Value)>> = LazyLock::new(samples);
        let (mut body, _) = at.get(&SAMPLES).clone();
        let place = cut.index(body.len());
        body[place] = with;
        let _ = decode(&body);
        body.truncate(place);
        let _ = decode(&body);
    }
}
