//! Lists of many clusters, and who is named beside them.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

fn part(form: Form, pages: &[Value]) -> Part {
    let mut part = Part::default();
    for page in pages {
        part.add(form, page.to_string().as_bytes()).expect("a page");
    }
    part
}

fn pods(names: &[&str]) -> Value {
    let items: Vec<Value> = names
        .iter()
        .map(|name| json!({"metadata": {"name": name}}))
        .collect();
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items})
}

fn whole(merged: &mut Merged) -> Value {
    write(merged, usize::MAX);
    serde_json::from_slice(&merged.text()).expect("JSON")
}

fn write(merged: &mut Merged, room: usize) {
    let clusters: Vec<String> = merged.clusters().map(str::to_owned).collect();
    let mut written = merged.begin(room);
    for cluster in clusters {
        merged.write(&cluster, &mut written);
    }
    merged.ends(written);
}

fn objects(part: &Part) -> usize {
    let pages = part.pages.iter();
    let pages = pages.map(|it| serde_json::from_str::<Vec<Value>>(it.get()).expect("an array"));
    pages.map(|it| it.len()).sum()
}

/// Each byte of it would be told as six.
#[test]
fn a_name_that_never_ends_is_not_told() {
    let page = json!({"kind": "\u{7f}".repeat(1 << 20), "apiVersion": "v1", "items": []});
    let page = page.to_string();
    for form in [Form::Objects, Form::Metadata] {
        let refused = Part::default().add(form, page.as_bytes());
        let told = refused.expect_err("too long").to_string();
        assert_eq!(told, "the name of its kind has more than 512 bytes");
    }
}

#[test]
fn objects_say_where_they_were_found() {
    let mut merged = Merged::new(Form::Objects);
    let mut marked = pods(&["c"]);
    marked["items"][0]["metadata"]["annotations"] = json!({"a": "b", FROM: "forged"});
    merged.found("m2".into(), part(Form::Objects, &[marked]));
    merged.found(
        "m1".into(),
        part(Form::Objects, &[pods(&["a"]), pods(&["b"])]),
    );
    let empty = json!({"kind": "PodList", "apiVersion": "v1", "items": null});
    merged.found("m0".into(), part(Form::Objects, &[empty]));
    let list = whole(&mut merged);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("PodList"), &json!("v1"))
    );
    assert_eq!(list["metadata"], json!({"resourceVersion": ""}));
    let found = |name: &str, cluster: &str| json!({"metadata": {"name": name, "annotations": {FROM: cluster}}});
    let mut last = found("c", "m2");
    last["metadata"]["annotations"]["a"] = json!("b");
    assert_eq!(
        list["items"],
        json!([found("a", "m1"), found("b", "m1"), last])
    );
    assert!(merged.warnings(true).is_empty());
}

#[test]
fn a_page_leads_to_the_next() {
    let mut page = pods(&["a"]);
    page["metadata"]["continue"] = json!("more");
    let mut part = Part::default();
    let next = part.add(Form::Objects, page.to_string().as_bytes());
    assert_eq!(next.expect("a page").as_deref(), Some("more"));
    let next = part.add(Form::Objects, pods(&["b"]).to_string().as_bytes());
    assert_eq!((next.expect("a page"), objects(&part)), (None, 2));
    for (form, odd) in [
        (Form::Objects, "[]"),
        (Form::Objects, "{"),
        (Form::Objects, r#"{"items": 1}"#),
        (Form::Objects, "{}"),
        (Form::Objects, r#"{"items": []}"#),
        (Form::Objects, r#"{"kind": "PodList", "items": {}}"#),
        (Form::Objects, r#"{"kind": "Status", "status": "Success"}"#),
        (Form::Objects, r#"{"kind": "Status", "items": []}"#),
        (Form::Objects, r#"{"kind": "Pod", "items": null}"#),
        (Form::Metadata, r#"{"kind": "Status"}"#),
        (Form::Table, r#"{"items": []}"#),
        (Form::Table, r#"{"kind": "Table", "rows": []}"#),
        (
            Form::Table,
            r#"{"kind": "PodList", "columnDefinitions": [{}], "rows": []}"#,
        ),
    ] {
        assert!(Part::default().add(form, odd.as_bytes()).is_err(), "{odd}");
    }
    for (form, empty) in [
        (Form::Objects, r#"{"kind": "PodList"}"#),
        (Form::Objects, r#"{"kind": "Fleet", "items": []}"#),
        (
            Form::Table,
            r#"{"kind": "Table", "columnDefinitions": [{}], "rows": null}"#,
        ),
    ] {
        let mut part = Part::default();
        let next = part.add(form, empty.as_bytes());
        assert_eq!((next.expect(empty), objects(&part)), (None, 0));
    }
}

#[test]
fn no_cluster_says_what_the_others_list() {
    let of = |kind: &str, version: &str| {
        let page = json!({"kind": kind, "apiVersion": version, "items": [{}]});
        part(Form::Objects, &[page])
    };
    let mut merged = Merged::new(Form::Objects);
    merged.found("m1".into(), of("SecretList", "v1"));
    merged.found("m2".into(), of("PodList", "v1"));
    merged.found("m3".into(), of("PodList", "v2"));
    merged.found("m4".into(), of("PodList", "v1"));
    merged.agree();
    assert_eq!(merged.clusters().collect::<Vec<_>>(), ["m2", "m4"]);
    assert_eq!(whole(&mut merged)["kind"], "PodList");
    assert_eq!(
        merged.warnings(true),
        [
            "cluster m1 is missing: its answer is \"SecretList\" of \"v1\", and others' PodList of v1",
            "cluster m3 is missing: its answer is \"PodList\" of \"v2\", and others' PodList of v1",
        ]
    );
    let mut two = Merged::new(Form::Objects);
    two.found("m1".into(), of("PodList", "v1"));
    two.found("m2".into(), of("SecretList", "v1"));
    two.agree();
    assert_eq!(two.clusters().collect::<Vec<_>>(), ["m1"]);
}

#[test]
fn what_is_no_object_spoils_no_list() {
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    for odd in ["\"x\"", "7", "null", "[{}]", r#"{"a": 1e999}"#, &deep] {
        let items = format!(r#"{{"kind": "PodList", "items": [{{}}, {odd}]}}"#);
        let rows = format!(
            r#"{{"kind": "Table", "columnDefinitions": [{{"name": "Name"}}], "rows": [{{}}, {odd}]}}"#
        );
        for (form, page) in [
            (Form::Objects, &items),
            (Form::Metadata, &items),
            (Form::Table, &rows),
        ] {
            let added = Part::default().add(form, page.as_bytes());
            assert!(matches!(added, Err(Unfit::NoObject(_))), "{page}");
        }
    }
}

#[test]
fn rows_stand_under_the_columns_of_all() {
    let table = |columns: &[&str], cells: Value| {
        let columns: Vec<Value> = columns
            .iter()
            .map(|name| json!({"name": name, "type": "string"}))
            .collect();
        json!({"kind": "Table", "columnDefinitions": columns,
            "rows": [{"cells": cells, "object": {"metadata": {"name": "web"}}}]})
    };
    let mut merged = Merged::new(Form::Table);
    let newer = table(&["Name", "Age", "Cluster"], json!(["web", "1m", "its own"]));
    merged.found("m1".into(), part(Form::Table, &[newer]));
    let older = table(&["Name", "Ready", "Age"], json!(["web", "1/1", "2m"]));
    merged.found("m2".into(), part(Form::Table, &[older]));
    let list = whole(&mut merged);
    assert_eq!(
        (&list["kind"], &list["apiVersion"]),
        (&json!("Table"), &json!("meta.k8s.io/v1"))
    );
    let shown: Vec<&Value> = list["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|it| &it["cells"])
        .collect();
    assert_eq!(
        list["columnDefinitions"]
            .as_array()
            .expect("columns")
            .iter()
            .map(|it| &it["name"])
            .collect::<Vec<_>>(),
        ["Name", "Cluster", "Age", "Cluster"]
    );
    assert_eq!(
        shown,
        [
            &json!(["web", "m1", "1m", "its own"]),
            &json!(["web", "m2", "2m", "<none>"])
        ]
    );
    assert_eq!(
        list["rows"][0]["object"]["metadata"]["annotations"][FROM],
        "m1"
    );
}

/// What says something twice, or is no object where one is expected, is marked wherever it has metadata.
#[test]
fn each_metadata_says_where_it_was_found() {
    let mark = format!("\"annotations\":{{\"{FROM}\":\"m1\"}}");
    for (sent, written) in [
        (r#"{"metadata": 7}"#, r#"{"metadata":7}"#.to_owned()),
        (
            r#"{"metadata": {"annotations": 7}}"#,
            format!("{{\"metadata\":{{{mark}}}}}"),
        ),
        (
            r#"{"metadata": {}, "metadata": {"annotations": null, "annotations": {}}}"#,
            format!("{{\"metadata\":{{{mark}}},\"metadata\":{{{mark},{mark}}}}}"),
        ),
        (
            r#"{"sp\u0065c": {"a": [1, {}]}}"#,
            r#"{"spec":{"a": [1, {}]}}"#.to_owned(),
        ),
    ] {
        let page = format!(r#"{{"kind": "PodList", "items": [{sent}]}}"#);
        let mut part = Part::default();
        part.add(Form::Objects, page.as_bytes()).expect("a page");
        let mut merged = Merged::new(Form::Objects);
        merged.found("m1".into(), part);
        write(&mut merged, usize::MAX);
        let text = String::from_utf8(merged.text().to_vec()).expect("text");
        assert!(text.ends_with(&format!("[{written}]}}")), "{text}");
    }
}

#[test]
fn a_table_of_too_many_columns_is_none() {
    for (count, is_read) in [(COLUMNS, true), (COLUMNS + 1, false), (200_000, false)] {
        let columns = vec![json!({"name": "A"}); count];
        let page = json!({"kind": "Table", "columnDefinitions": columns, "rows": [{"cells": [1]}]});
        let added = Part::default().add(Form::Table, page.to_string().as_bytes());
        match is_read {
            true => assert!(added.is_ok(), "{count}"),
            false => assert!(matches!(added, Err(Unfit::ManyColumns)), "{count}"),
        }
    }
    let odd = r#"{"kind": "Table", "columnDefinitions": [7], "rows": []}"#;
    let added = Part::default().add(Form::Table, odd.as_bytes());
    assert!(matches!(added, Err(Unfit::NoColumn(_))));
}

/// Whoever has no room is missing, and what others have is whole.
#[test]
fn what_is_written_is_bounded() {
    let room = 1_000;
    let of = |count: usize| part(Form::Objects, &[pods(&vec!["a"; count])]);
    let mut merged = Merged::new(Form::Objects);
    // Its 40 objects take 1,200 bytes less as they are sent.
    merged.found("m1".into(), of(40));
    merged.found("m2".into(), of(2));
    // One object that is marked again and again.
    let twice = vec![r#""metadata":{}"#; 40].join(",");
    let mut odd = Part::default();
    let page = format!(r#"{{"kind": "PodList", "apiVersion": "v1", "items": [{{{twice}}}]}}"#);
    odd.add(Form::Objects, page.as_bytes()).expect("a page");
    merged.found("m3".into(), odd);
    write(&mut merged, room);
    let list: Value = serde_json::from_slice(&merged.text()).expect("JSON");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
    assert_eq!(merged.clusters().collect::<Vec<_>>(), ["m2"]);
    let warnings = merged.warnings(true);
    assert_eq!(warnings.len(), 2);
    assert!(warnings[0].contains("m1 is missing: its answer is longer"));
    let mut table = Merged::new(Form::Table);
    let columns: Vec<Value> = (0..COLUMNS)
        .map(|it| json!({"name": it.to_string()}))
        .collect();
    let wide = json!({"kind": "Table", "columnDefinitions": columns, "rows": []});
    let rows = vec![json!({}); 60];
    let long = json!({"kind": "Table", "columnDefinitions": [{}], "rows": rows});
    table.found("m1".into(), part(Form::Table, &[wide]));
    table.found("m2".into(), part(Form::Table, &[long]));
    write(&mut table, 8_000);
    assert!(table.text().len() <= 8_002);
    assert_eq!(table.clusters().collect::<Vec<_>>(), ["m1"]);
}

#[test]
fn who_is_missing_is_named() {
    let mut merged = Merged::new(Form::Objects);
    merged.missing("m2".into(), "no answer\n within 5 s");
    merged.refused("m1".into());
    assert!(!merged.is_refused());
    assert_eq!(
        merged.failed().as_deref(),
        Some("none of 1 clusters answered: m2: no answer within 5 s")
    );
    merged.found("m3".into(), Part::default());
    assert_eq!(merged.failed(), None);
    assert_eq!(
        merged.warnings(true),
        [
            "cluster m1 is missing: you have no right to clusters/proxy of it",
            "cluster m2 is missing: no answer within 5 s",
        ]
    );
    // Names of clusters are for who may list them.
    assert_eq!(
        merged.warnings(false),
        [
            "clusters that you may not reach are left out",
            "cluster m2 is missing: no answer within 5 s"
        ]
    );
    let mut refused = Merged::new(Form::Objects);
    refused.refused("m1".into());
    assert!(refused.is_refused());
    assert_eq!(whole(&mut refused)["items"], json!([]));
}

#[test]
fn as_many_as_there_is_room_for_are_named_and_the_rest_counted() {
    for (count, all_named) in [(1, true), (30, true), (150, true), (10_000, false)] {
        let mut merged = Merged::new(Form::Objects);
        for number in 0..count {
            merged.missing(format!("member-{number:05}"), &"why ".repeat(100));
        }
        let warnings = merged.warnings(true);
        let text = warnings.join("\n");
        let named = (0..count)
            .filter(|it| text.contains(&format!("member-{it:05}")))
            .count();
        assert_eq!(named == count, all_named, "{named} of {count}");
        assert!(
            text.len() < 4_096 && warnings.len() < 64,
            "{} {}",
            text.len(),
            warnings.len()
        );
        if !all_named {
            let rest = format!("and {} more clusters", count - named);
            assert!(text.ends_with(&rest), "{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn warnings_stay_in_bounds(names in prop::collection::btree_set("[a-z0-9-]{1,48}", 0..400), why in ".{0,300}") {
        let mut merged = Merged::new(Form::Objects);
        for name in &names {
            merged.missing(name.clone(), &why);
        }
        let warnings = merged.warnings(true);
        let bytes: usize = warnings.iter().map(|it| it.chars().count()).sum();
        prop_assert!(bytes <= 4_096 && warnings.len() <= 64);
        prop_assert_eq!(warnings.is_empty(), names.is_empty());
    }
}
