//! A request as bytes, before anybody knows who asks: its line, its media types, its options, its body.
#![no_main]

use bytes::Bytes;
use http::Method;
use hub::apiserver::http::negotiate;
use hub::apiserver::registry::Continue;
use hub::apiserver::request::{
    Body, DeleteOptions, FieldSelector, ListOptions, MediaType, PatchKind, Query, RequestInfo,
};
use libfuzzer_sys::fuzz_target;

const METHODS: [Method; 6] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
];
const PATCHES: [Option<PatchKind>; 3] = [None, Some(PatchKind::Apply), Some(PatchKind::Json)];

// A line with the target, one with the media type, one with those accepted; then the body.
fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(4, |byte| *byte == b'\n');
    let mut text = || std::str::from_utf8(parts.next().unwrap_or_default()).unwrap_or_default();
    let (target, content_type, accept) = (text(), text(), text());
    let body = Bytes::copy_from_slice(parts.next().unwrap_or_default());

    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let query = Query::read(query);
    for method in &METHODS {
        read_line(method, path, &query);
    }
    read_options(&query, accept);
    read_token(query.get("continue").unwrap_or(path));

    let _ = negotiate::accepted(accept, &query, content_type);
    let _ = negotiate::aggregated(accept);
    for custom in [true, false] {
        let _ = negotiate::patch_kind(content_type, custom);
        if let Ok(media) = negotiate::media_type(content_type, custom) {
            read_body(&query, media, &body);
        }
    }
});

fn read_line(method: &Method, path: &str, query: &Query) {
    let Ok(info) = RequestInfo::read(method, path, query) else {
        return;
    };
    assert!(info.path.starts_with('/'));
    let trimmed = info.path.trim_matches('/');
    assert!(
        trimmed.is_empty()
            || trimmed
                .split('/')
                .all(|part| !["", ".", ".."].contains(&part)),
        "{}",
        info.path
    );
    for part in [
        &info.group,
        &info.version,
        &info.namespace,
        &info.resource,
        &info.name,
        &info.subresource,
    ] {
        assert!(!part.contains(['/', '\\', '%']), "{info:?}");
    }
    // A right on a name selects nothing but that name.
    if !info.name_in_path && !info.name.is_empty() {
        let Ok(options) = ListOptions::parse(query.pairs()) else {
            return;
        };
        let selector = FieldSelector::parse(&options.field_selector).expect("a selector");
        assert_eq!(selector.exact("metadata.name"), Some(info.name.as_str()));
    }
    // Whoever reads what was read sees the same: nothing is hidden behind another encoding.
    let again = RequestInfo::read(method, &info.path, query);
    assert_eq!(again.as_ref(), Ok(&info));
}

fn read_options(query: &Query, user_agent: &str) {
    if let Ok(options) = ListOptions::parse(query.pairs()) {
        let _ = (options.validate(false), options.validate(true));
    }
    for patch in PATCHES {
        if let Ok(options) = negotiate::write_options("PatchOptions", query, user_agent, patch) {
            assert!(options.field_manager.len() <= 128);
        }
    }
    let _ = DeleteOptions::parse(query.pairs(), None);
}

fn read_token(text: &str) {
    if let Ok(token) = Continue::decode(text) {
        assert_eq!(Continue::decode(&token.encode()), Ok(token));
    }
}

fn read_body(query: &Query, media: MediaType, bytes: &Bytes) {
    let body = Body {
        media,
        bytes: bytes.clone(),
    };
    let read = DeleteOptions::parse(query.pairs(), Some(&body));
    if media != MediaType::Json {
        return;
    }
    // JSON is YAML; where both can be read, both say the same.
    let as_yaml = Body {
        media: MediaType::Yaml,
        ..body
    };
    if let (Ok(json), Ok(yaml)) = (read, DeleteOptions::parse(query.pairs(), Some(&as_yaml))) {
        assert_eq!(json.dry_run, yaml.dry_run);
    }
}
