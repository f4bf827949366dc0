//! What texts are read as, and which are refused.

use super::*;
use serde_json::json;

#[test]
fn documents_are_what_their_readers_take_them_for() {
    let cases = [
        ("", json!(null)),
        ("# nothing\n", json!(null)),
        ("a", json!("a")),
        (
            "a: yes\nb: Off\nc: true\nd: ~\ne:\n",
            json!({"a": true, "b": false, "c": true, "d": null, "e": null}),
        ),
        ("a: 'yes'\nb: \"off\"\n", json!({"a": "yes", "b": "off"})),
        (
            "mode: 0644\nother: '0600'\n",
            json!({"mode": 420, "other": "0600"}),
        ),
        (
            "a: 089\nb: 0x1F\nc: 0\nd: y\ne: [N, n]\n",
            json!({"a": 89, "b": 31, "c": 0, "d": "y", "e": ["N", "n"]}),
        ),
        (
            "1: a\ntrue: b\nnull: c\n1.5: d\non: e\nY: f\n0x1f: g\n1.0: h\n'0644': i\nFalse: j\n",
            json!({"1": "h", "true": "b", "null": "c", "1.5": "d", "on": "e", "Y": "f", "31": "g", "0644": "i",
                "false": "j"}),
        ),
        (
            "base: &base {x: 1, y: 2}\nown:\n  <<: *base\n  y: 3\n",
            json!({"base": {"x": 1, "y": 2}, "own": {"x": 1, "y": 3}}),
        ),
        (
            "a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc: {<<: [*a, *b]}\n",
            json!({"a": {"x": 1}, "b": {"x": 2, "z": 3}, "c": {"x": 1, "z": 3}}),
        ),
        (
            "a: &a no\nb: *a\n&c k: 1\nd: {*c : 2}\n",
            json!({"a": false, "b": false, "k": 1, "d": {"k": 2}}),
        ),
        (
            "- 1\n- -2\n- 1.5\n- 2026-01-01\n- 1e3\n- 1.0\n- 1_000\n",
            json!([1, -2, 1.5, "2026-01-01", 1000, 1, 1000]),
        ),
        ("a: 1\na: 2\n", json!({"a": 2})),
        ("--- {a: 1}\n...\n", json!({"a": 1})),
    ];
    for (text, want) in cases {
        assert_eq!(parse(text), Ok(want), "{text}");
    }
}

/// What a word is depends on how it stands there itself, and on nothing beside it.
#[test]
fn words_are_texts_only_where_they_have_quotes_or_say_so() {
    let cases = [
        (
            "# Whether to listen; 'yes' or 'no'\nlisten: no\nmode: fast\n",
            json!({"listen": false, "mode": "fast"}),
        ),
        (
            "# File mode, such as \"0644\"\nperm: 0644\n",
            json!({"perm": 420}),
        ),
        (
            "a: yes\nb: \"yes\"\nperm: 0644\nshown: '0644'\n",
            json!({"a": true, "b": "yes", "perm": 420, "shown": "0644"}),
        ),
        (
            "x: |-\n  no\ny: >-\n  0644\nz: !!str 0644\nw: !!str &w 0644\nv: *w\n",
            json!({"x": "no", "y": "0644", "z": "0644", "w": "0644", "v": "0644"}),
        ),
        (
            "limit: 1_000\nkey: !!binary aGk=\nl: !!str # so\n  off\n",
            json!({"limit": 1000, "key": "hi", "l": "off"}),
        ),
        (
            "a: !!int '5'\nb: !!float 1\nc: !!null ''\nd: !!bool 'on'\ne: !<tag:yaml.org,2002:str> 1\n",
            json!({"a": 5, "b": 1, "c": null, "d": true, "e": "1"}),
        ),
        (
            "a: it's no\nb: don't\nc: \"n\\x6f\"\nd: !!map {e: !!seq [on]}\n",
            json!({"a": "it's no", "b": "don't", "c": "no", "d": {"e": [true]}}),
        ),
        ("'<<': 1\n\"on\": off\n", json!({"<<": 1, "on": false})),
    ];
    for (text, want) in cases {
        assert_eq!(parse(text), Ok(want), "{text}");
    }
}

#[test]
fn what_cannot_be_kept_is_refused() {
    for text in [
        "{no",
        "a: .inf",
        "a: -.INF",
        "a: [.nan]",
        "a: !tag {b: 1}",
        "a: !tag b",
        "a: ! b",
        "a: !!int b",
        "a: !!binary /w==",
        "a: !!binary ?",
        "a: 18446744073709551616",
        "a: -9223372036854775809",
        "? [a]\n: b",
        "a: 1\n---\nb: 2\n",
        "<<: {a: 1}\nb: *c\n",
        "<<: 1\n",
        "<<: [1]\n",
        "a: &a [*a]\n",
        "a: &a {<<: *a}\n",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
    for text in ["a: 1\n---\nb: 2\n", "a: 1\n---\n", "---\n---\n"] {
        assert_eq!(parse(text), Err(YamlError::Several), "{text}");
    }
}

#[test]
fn aliases_do_not_multiply() {
    let many = |anchor: &str| format!("a: &a {anchor}\nb: [{}]\n", vec!["*a"; 2000].join(", "));
    let list = format!("[{}]", vec!["x"; 2000].join(", "));
    let keys = format!("{{{}: 1}}", "k".repeat(1000));
    for anchor in [list.as_str(), &"x".repeat(5000), &keys] {
        let error = parse(&many(anchor)).expect_err("too much");
        assert!(error.to_string().contains("too much"), "{error}");
    }
    assert!(parse(&many("x")).is_ok());
    let plain = format!("[{}]", vec!["yes"; 100_000].join(","));
    assert!(parse(&plain).is_ok());
    let comments = format!("{}a: no\n", "# 'no'\n".repeat(1000));
    assert_eq!(parse(&comments), Ok(json!({"a": false})));
}

#[test]
fn nothing_is_nested_too_deep() {
    for open in ["[", "{a: ", "- ", "? "] {
        assert!(parse(&open.repeat(100_000)).is_err(), "{open}");
    }
    let brackets = |count: usize| format!("{}{}", "[".repeat(count), "]".repeat(count));
    assert!(parse(&brackets(100)).is_ok());
    // Aliases add to it: each of these stands in the one before.
    let mut text = format!("a0: &a0 {}\n", brackets(100));
    for level in 1..50 {
        let inner = format!("{}*a{}{}", "[".repeat(100), level - 1, "]".repeat(100));
        text.push_str(&format!("a{level}: &a{level} {inner}\n"));
    }
    let error = parse(&text).expect_err("too deep");
    assert!(error.to_string().contains("too deep"), "{error}");
}

proptest::proptest! {
    #[test]
    fn what_is_written_is_read_as_it_was(
        texts in proptest::collection::vec("[ -~\\n\\té\u{85}\u{2028}]{0,12}|[0-9_:.eExo+-]{1,8}|yes|No|ON|y|null|~", 1..8),
    ) {
        let mut map = Map::new();
        for (index, text) in texts.iter().enumerate() {
            map.insert(text.clone(), json!([text, {text: index}]));
        }
        let map = Value::Object(map);
        let document = common::yaml::document(&map);
        proptest::prop_assert_eq!(parse(&document), Ok(map), "{}", document);
    }
}
