//! Images by the reference's cases, and what holds for every result.

use super::*;
use ImageComponent::{Registry, Repository, Tag};
use OverriderOperator::{Add, Remove, Replace};
use proptest::prelude::*;

const DIGEST: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn parts_are_changed_alone() {
    let pinned = |image: &str| format!("{image}@{DIGEST}");
    let cases = [
        (
            "r.io:5/a/b:v1".to_owned(),
            Registry,
            Replace,
            "x",
            "x/a/b:v1".to_owned(),
        ),
        (
            "r.io:5/a/b:v1".into(),
            Registry,
            Add,
            "/p",
            "r.io:5/p/a/b:v1".into(),
        ),
        (
            "r.io:5/a/b:v1".into(),
            Registry,
            Remove,
            "",
            "a/b:v1".into(),
        ),
        (
            "r.io:5/a/b:v1".into(),
            Registry,
            Replace,
            "",
            "a/b:v1".into(),
        ),
        (
            "ubuntu/nginx".into(),
            Registry,
            Remove,
            "",
            "ubuntu/nginx".into(),
        ),
        (
            "ubuntu/nginx".into(),
            Registry,
            Add,
            "x",
            "x/ubuntu/nginx".into(),
        ),
        ("localhost/x".into(), Registry, Remove, "", "x".into()),
        ("Foo/x:1".into(), Tag, Replace, "2", "Foo/x:2".into()),
        (
            "Foo/x:1".into(),
            Registry,
            Replace,
            "r.io",
            "r.io/x:1".into(),
        ),
        (
            "[::1]:5000/x:1".into(),
            Registry,
            Replace,
            "r.io",
            "r.io/x:1".into(),
        ),
        ("a:v1".into(), Tag, Add, "-x", "a:v1-x".into()),
        ("a:v1".into(), Tag, Replace, DIGEST, pinned("a")),
        ("a:v1".into(), Tag, Remove, "", "a".into()),
        ("a".into(), Tag, Remove, "", "a".into()),
        ("a".into(), Tag, Replace, "v2", "a:v2".into()),
        (
            "localhost:5000/a".into(),
            Tag,
            Add,
            "v2",
            "localhost:5000/a:v2".into(),
        ),
        (pinned("a"), Tag, Remove, "", "a".into()),
        (pinned("a"), Tag, Replace, "v2", "a:v2".into()),
        (pinned("a:v1"), Tag, Replace, "v2", "a:v2".into()),
        (pinned("a:v1"), Tag, Remove, "", "a".into()),
        (pinned("a:v1"), Registry, Add, "x.io", pinned("x.io/a:v1")),
        (pinned("a:v1"), Repository, Add, "/b", pinned("a/b:v1")),
        (
            "r.io/lib/nginx:1".into(),
            Repository,
            Add,
            "/more",
            "r.io/lib/nginx/more:1".into(),
        ),
        (
            "r.io/lib/nginx:1".into(),
            Repository,
            Replace,
            "team/app",
            "r.io/team/app:1".into(),
        ),
    ];
    for (image, component, operator, value, want) in cases {
        let after = changed(&image, component, operator, value);
        assert_eq!(
            after,
            Ok(want),
            "{image} {component:?} {operator:?} {value}"
        );
    }
}

#[test]
fn what_is_no_image_is_refused() {
    let long = "a".repeat(256);
    let cases = [
        (
            "",
            "failed to parse image value(), error: repository name must have at least one component",
        ),
        (
            "Nginx:1",
            "failed to parse image value(Nginx:1), error: repository name must be lowercase",
        ),
        (
            "Foo/Bar",
            "failed to parse image value(Foo/Bar), error: repository name must be lowercase",
        ),
        (
            "a b",
            "failed to parse image value(a b), error: invalid reference format",
        ),
        (
            "a:",
            "failed to parse image value(a:), error: invalid reference format",
        ),
        (
            "a@",
            "failed to parse image value(a@), error: invalid reference format",
        ),
        (
            "a@sha256:1",
            "failed to parse image value(a@sha256:1), error: invalid reference format",
        ),
        (
            "r.io/",
            "failed to parse image value(r.io/), error: invalid reference format",
        ),
        (
            "-r.io/a",
            "failed to parse image value(-r.io/a), error: invalid reference format",
        ),
        (
            "a//b",
            "failed to parse image value(a//b), error: invalid reference format",
        ),
        (
            "a___b",
            "failed to parse image value(a___b), error: invalid reference format",
        ),
        (
            "é:1",
            "failed to parse image value(é:1), error: invalid reference format",
        ),
    ];
    for (image, want) in cases {
        let error = changed(image, Tag, Replace, "v2").expect_err(image);
        assert_eq!(error.to_string(), want);
    }
    assert!(changed(&long, Tag, Replace, "v2").is_err());
    let cases = [
        ("r.io:5/nginx:1", Repository, Remove, ""),
        ("nginx:1", Repository, Replace, "UP"),
        ("nginx:1", Registry, Replace, "no host/"),
        ("nginx:1", Tag, Replace, ""),
        ("nginx:1", Tag, Add, "/x"),
        ("nginx:1", Tag, Replace, "sha256:1"),
    ];
    for (image, component, operator, value) in cases {
        let error = changed(image, component, operator, value).expect_err(value);
        assert!(!matches!(error, ImageError::Parse { .. }), "{error}");
    }
    let error = changed("r.io:5/nginx:1", Repository, Remove, "").expect_err("refused");
    assert_eq!(
        error.to_string(),
        "\"r.io:5/nginx:1\" would become \"r.io:5/:1\", which is no image: invalid reference format"
    );
}

proptest! {
    #[test]
    fn a_result_is_an_image_and_only_the_tag_takes_a_digest_away(
        host in "(|localhost|r\\.io|r\\.io:5000)",
        repository in "[a-z]{1,3}(/[a-z]{1,3}){0,2}",
        tag in "(|v[0-9]{1,2})",
        pinned in any::<bool>(),
        component in prop_oneof![Just(Registry), Just(Repository), Just(Tag)],
        operator in prop_oneof![Just(Add), Just(Replace), Just(Remove)],
        value in "[a-zA-Z0-9./:@_-]{0,12}",
    ) {
        let digest = if pinned { DIGEST } else { "" };
        let image = Image { host: &host, repository: &repository, tag: &tag, digest }.to_text();
        prop_assert_eq!(Image::parse(&image).expect("an image").to_text(), image.as_str());
        if let Ok(after) = changed(&image, component, operator, &value) {
            let after = Image::parse(&after).expect("an image");
            if component != Tag {
                prop_assert_eq!(after.tag, tag.as_str());
                prop_assert_eq!(after.digest, digest);
            }
        }
    }

    #[test]
    fn any_text_is_judged_without_panic(text in "\\PC{0,40}") {
        let _ = changed(&text, Tag, Replace, "v2");
    }
}
