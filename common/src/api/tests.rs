//! The files in `manifests/crds` are what the types say, and every field has a bound.

use super::*;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use std::path::PathBuf;

/// Regenerate with `UPDATE_CRDS=1 cargo test -p common crds`.
#[test]
fn crds_on_disk_are_those_of_the_types() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../manifests/crds");
    let update = std::env::var_os("UPDATE_CRDS").is_some();
    let mut expected = Vec::new();
    for crd in all_crds() {
        let names = &crd.spec.names;
        let file = format!("{}_{}.yaml", crd.spec.group, names.plural);
        let text = format!(
            "# Generated from common/src/api; regenerate with: UPDATE_CRDS=1 cargo test -p common crds\n{}",
            serde_yaml::to_string(&crd).expect("serializes")
        );
        let path = folder.join(&file);
        if update {
            std::fs::create_dir_all(&folder).expect("folder");
            std::fs::write(&path, &text).expect("write");
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "{file} is not what the types say; run UPDATE_CRDS=1 cargo test -p common crds"
        );
        expected.push(file);
    }
    let mut found: Vec<String> = std::fs::read_dir(&folder)
        .expect("folder")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("utf-8")
        })
        .filter(|name| name != "kustomization.yaml")
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "a definition too many or too few");
}

#[test]
fn crds_bound_every_field() {
    for crd in all_crds() {
        for version in &crd.spec.versions {
            let schema = version.schema.as_ref().expect("schema");
            let root = schema.open_api_v3_schema.as_ref().expect("root");
            for part in ["spec", "status"] {
                if let Some(schema) = root.properties.as_ref().and_then(|p| p.get(part)) {
                    walk(&format!("{}.{part}", crd.spec.names.kind), schema);
                }
            }
        }
    }
}

fn walk(path: &str, schema: &JSONSchemaProps) {
    let raw = schema.x_kubernetes_preserve_unknown_fields == Some(true);
    assert!(schema.nullable.is_none(), "{path} may be null");
    assert!(
        schema.any_of.is_none() || schema.x_kubernetes_int_or_string == Some(true),
        "{path}"
    );
    assert!(
        schema.one_of.is_none() && schema.ref_path.is_none(),
        "{path}"
    );
    match schema.type_.as_deref() {
        Some("string") => assert!(
            schema.enum_.is_some() || schema.max_length.is_some(),
            "{path} has no longest value"
        ),
        Some("integer") => {
            assert!(
                schema.minimum.is_some() && schema.maximum.is_some(),
                "{path} has no range"
            );
            let format = schema.format.as_deref().unwrap_or("int64");
            assert!(
                ["int32", "int64"].contains(&format),
                "{path} has format {format}"
            );
        }
        Some("array") => assert!(schema.max_items.is_some(), "{path} has no most items"),
        Some("object") | None => {}
        Some("boolean") => {}
        Some(other) => panic!("{path} has type {other}"),
    }
    if !raw && !path.contains('[') {
        let described = schema
            .description
            .as_ref()
            .is_some_and(|text| !text.is_empty());
        assert!(described, "{path} has no description");
    }
    for (name, child) in schema.properties.iter().flatten() {
        walk(&format!("{path}.{name}"), child);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        walk(&format!("{path}[]"), items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        assert!(
            schema.max_properties.is_some(),
            "{path} has no most entries"
        );
        walk(&format!("{path}[*]"), values);
    }
}
