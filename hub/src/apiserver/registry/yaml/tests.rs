//! YAML in the words of Go, and how much of it is read.

use super::*;
use serde_json::json;

fn value(yaml: &str) -> Value {
    read(yaml.as_bytes()).expect(yaml).value
}

#[test]
fn words_mean_what_they_mean_to_servers() {
    assert_eq!(
        value(
            "a: y\nb: 'y'\nc: \"no\"\nd: [off, 010, 1_000, 0x1F, '010']\ne: |\n  yes\nn: {on: x}\n"
        ),
        json!({
            "a": true, "b": "y", "c": "no", "d": [false, 8, 1000, 31, "010"], "e": "yes\n",
            "false": {"true": "x"},
        })
    );
    assert_eq!(
        value(
            "a: !!str 5\nb: !!binary AAEC\nc: 123456789012345678901234567890\nd: [1.0, -0]\n1.5: x\n"
        ),
        json!({"a": "5", "b": "\u{0}\u{1}\u{2}", "c": 1.2345678901234568e29, "d": [1, 0], "1.5": "x"})
    );
    assert_eq!(value("a: 1\n---\n{"), json!({"a": 1}));
    assert_eq!(value("[0X1F, 1_0.5, 089]"), json!([31, 10.5, 89]));
}

#[test]
fn maps_are_merged() {
    let read = read(b"x: &x {a: 1, b: 2}\ny: &y\n  b: 3\n  c: 4\none:\n  <<: *x\n  a: 5\ntwo:\n  <<: [*x, *y]\nthree: {\"<<\": 1}\n");
    let read = read.expect("YAML");
    assert_eq!(read.value["one"], json!({"a": 5, "b": 2}));
    assert_eq!(read.value["two"], json!({"a": 1, "b": 2, "c": 4}));
    assert_eq!(read.value["three"], json!({"<<": 1}));
    assert_eq!(
        read.duplicates,
        [
            "line 7: key \"a\" already set in map",
            "line 1: key \"b\" already set in map"
        ]
    );
}

#[test]
fn problems_are_told_in_the_words_of_go() {
    for (yaml, want) in [
        ("[", "yaml: line 1: did not find expected node content"),
        (
            "a: b: c",
            "yaml: mapping values are not allowed in this context",
        ),
        (
            "a: 1\nb: c: d\n",
            "yaml: line 2: mapping values are not allowed in this context",
        ),
        (
            "a: 1\nb: \"\\q\"",
            "yaml: line 2: found unknown escape character",
        ),
        ("a: \"\u{0}\"", "yaml: control characters are not allowed"),
        ("a: 1\nb: *x", "yaml: unknown anchor 'x' referenced"),
        ("a: &x [*x]", "yaml: anchor 'x' value contains itself"),
        ("a: -.inf", "json: unsupported value: -Inf"),
        (
            "<<: 5",
            "yaml: map merge requires map or sequence of maps as the value",
        ),
        ("? [a]\n: b", "yaml: invalid map key: []interface {}{\"a\"}"),
        (
            "null: b",
            "unsupported map key of type: %!s(<nil>), key: <nil>, value: \"b\"",
        ),
    ] {
        assert_eq!(read(yaml.as_bytes()), Err(want.to_owned()), "{yaml}");
    }
}

#[test]
fn aliases_repeat_only_so_much() {
    assert_eq!(
        value("a: &a [x, z]\nb: *a\n"),
        json!({"a": ["x", "z"], "b": ["x", "z"]})
    );
    let wide = format!(
        "a: &a [{}0]\nb: [{}*a]\n",
        "0,".repeat(5000),
        "*a,".repeat(5000)
    );
    let long = format!(
        "a: &a {}\nb: [{}*a]\n",
        "x".repeat(50_000),
        "*a,".repeat(5000)
    );
    let mut deep = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    let mut merged = "a0: &a0 {b: x}\n".to_owned();
    for level in 1..12 {
        let below = format!("*a{},", level - 1).repeat(10);
        deep.push_str(&format!("a{level}: &a{level} [{below}x]\n"));
        merged.push_str(&format!("a{level}: &a{level} {{<<: [{below}]}}\n"));
    }
    for bomb in [wide, long, deep, merged] {
        assert!(read(bomb.as_bytes()).is_err());
    }
}

#[test]
fn what_is_nested_too_deep_is_refused() {
    for (open, levels) in [("[", 3_000_000), ("{\"a\":", 500_000), ("- ", 5_000)] {
        assert!(read(open.repeat(levels).as_bytes()).is_err());
    }
}

#[test]
fn a_word_that_begins_with_an_underscore_is_text() {
    let read = read(b"{a: _0, b: 1_0, c: -_1}").expect("read");
    assert_eq!(read.value, json!({"a": "_0", "b": 10, "c": -1}));
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
        let read = read(document.as_bytes());
        proptest::prop_assert_eq!(read.map(|read| read.value), Ok(map), "{}", document);
    }
}
