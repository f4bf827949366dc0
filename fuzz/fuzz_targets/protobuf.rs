//! The body of a request in protobuf, as it comes and in an envelope of every kind.
#![no_main]

use hub::apiserver::protobuf;
use hub::apiserver::schema::builtin::schemas;
use libfuzzer_sys::fuzz_target;

/// A length-delimited field of less than 2 MiB.
fn field(number: u8, content: &[u8], into: &mut Vec<u8>) {
    into.push(number << 3 | 2);
    let mut length = content.len();
    while length > 0x7f {
        into.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    into.push(length as u8);
    into.extend_from_slice(content);
}

fuzz_target!(|data: &[u8]| {
    let _ = protobuf::decode(data);
    let [kind, raw @ ..] = data else { return };
    let kinds = &schemas().kinds;
    let kind = &kinds[usize::from(*kind) % kinds.len()];
    let version = if kind.group.is_empty() {
        kind.version.clone()
    } else {
        format!("{}/{}", kind.group, kind.version)
    };
    let (mut types, mut body) = (Vec::new(), b"k8s\0".to_vec());
    field(1, version.as_bytes(), &mut types);
    field(2, kind.kind.as_bytes(), &mut types);
    field(1, &types, &mut body);
    field(2, raw, &mut body);
    if let Ok(object) = protobuf::decode(&body) {
        assert_eq!(object["kind"], kind.kind.as_str());
        assert!(serde_json::to_vec(&object).is_ok());
    }
});
