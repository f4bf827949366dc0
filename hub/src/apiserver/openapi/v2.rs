//! OpenAPI v2 as JSON, for tools that know no other: the documents of v3 in one, in the older words.
//!
//! It is large and seldom asked for. So it is made when somebody does, written into its compressed form piece
//! by piece, and kept like that until a kind changes.

use super::{groups, pages, value};
use crate::apiserver::schema::builtin::schemas;
use crate::apiserver::scheme::{Document, Snapshot};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{Context, SHA512};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;

/// What v2 has no word for; clients of it take a field without them for what it is otherwise.
const UNKNOWN: [&str; 6] = ["allOf", "anyOf", "default", "not", "nullable", "oneOf"];
/// What is not said of a value that may be anything.
const SHAPE: [&str; 4] = ["additionalProperties", "items", "properties", "type"];

/// The document of all kinds, made once for each snapshot.
pub fn kept(kinds: &Snapshot) -> Arc<Document> {
    // Writing to memory cannot fail.
    kinds.documents().v2(|| {
        write(kinds).unwrap_or_else(|_| Document {
            gzip: Bytes::new(),
            hash: String::new(),
        })
    })
}

/// Compresses what is written, and digests it on the way.
struct Out {
    gzip: GzEncoder<Vec<u8>>,
    digest: Context,
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.digest.update(bytes);
        self.gzip.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(kinds: &Snapshot) -> io::Result<Document> {
    let mut out = Out {
        gzip: GzEncoder::new(Vec::new(), Compression::default()),
        digest: Context::new(&SHA512),
    };
    let names: Vec<String> = groups(kinds)
        .into_keys()
        .chain(pages::paths(kinds))
        .collect();
    // One document after the other, so that never all of it is there at once.
    let part = |out: &mut Out, pointer: &str, shown: fn(&Value) -> Value| -> io::Result<()> {
        let mut seen = BTreeSet::new();
        for name in &names {
            let document = value(kinds, name).unwrap_or_default();
            let of = document.pointer(pointer).and_then(Value::as_object);
            for (key, one) in of.into_iter().flatten() {
                if !seen.insert(key.clone()) {
                    continue;
                }
                let comma = if seen.len() > 1 { "," } else { "" };
                write!(out, "{comma}{}:{}", json!(key), shown(one))?;
            }
        }
        Ok(())
    };
    let about = |key: &str| schemas().version[key].as_str().unwrap_or("");
    let version = format!("{}.{}", about("major"), about("minor"));
    let info = json!({"title": "Kubernetes", "version": version});
    write!(out, "{{\"swagger\":\"2.0\",\"info\":{info},\"paths\":{{")?;
    part(&mut out, "/paths", path)?;
    write!(out, "}},\"definitions\":{{")?;
    part(&mut out, "/components/schemas", schema)?;
    let security = json!({"BearerToken": {
        "type": "apiKey",
        "name": "authorization",
        "in": "header",
        "description": "Bearer Token authentication",
    }});
    write!(
        out,
        "}},\"securityDefinitions\":{security},\"security\":[{{\"BearerToken\":[]}}]}}"
    )?;
    Ok(Document {
        gzip: out.gzip.finish()?.into(),
        hash: super::hexadecimal(out.digest.finish().as_ref()),
    })
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A path with its operations.
fn path(item: &Value) -> Value {
    let shown = object(item).map(|(key, one)| match key.as_str() {
        "parameters" => (key.clone(), list(one).iter().map(parameter).collect()),
        _ => (key.clone(), operation(one)),
    });
    Value::Object(shown.collect())
}

fn operation(said: &Value) -> Value {
    let mut shown = Map::new();
    let mut parameters: Vec<Value> = list(&said["parameters"]).iter().map(parameter).collect();
    let body = &said["requestBody"];
    let (takes, taken) = content(body);
    if body.is_object() {
        let mut one = json!({"name": "body", "in": "body", "schema": taken});
        if body["required"] == true {
            one["required"] = json!(true);
        }
        parameters.insert(0, one);
    }
    let mut answers = Map::new();
    let mut produces = Vec::new();
    for (code, answer) in object(&said["responses"]) {
        let (types, answered) = content(answer);
        let mut one = json!({"description": answer["description"]});
        if !answered.is_null() {
            one["schema"] = answered;
        }
        answers.insert(code.clone(), one);
        produces.extend(
            types
                .into_iter()
                .filter(|one| !produces.contains(one))
                .collect::<Vec<_>>(),
        );
    }
    for (key, one) in object(said) {
        if !matches!(key.as_str(), "parameters" | "requestBody" | "responses") {
            shown.insert(key.clone(), one.clone());
        }
    }
    let takes = if takes.is_empty() {
        vec!["*/*".to_owned()]
    } else {
        takes
    };
    shown.insert("consumes".to_owned(), json!(takes));
    shown.insert("produces".to_owned(), json!(produces));
    shown.insert("schemes".to_owned(), json!(["https"]));
    shown.insert("responses".to_owned(), Value::Object(answers));
    if !parameters.is_empty() {
        shown.insert("parameters".to_owned(), Value::Array(parameters));
    }
    Value::Object(shown)
}

/// The types of a body, and the schema that all of them have.
fn content(of: &Value) -> (Vec<String>, Value) {
    let types = object(&of["content"])
        .map(|(name, _)| name.clone())
        .collect();
    let first = object(&of["content"]).next();
    let shown = first.map(|(_, one)| schema(&one["schema"]));
    (types, shown.unwrap_or_default())
}

/// A parameter, whose type stands beside its name.
fn parameter(one: &Value) -> Value {
    let mut shown = Map::new();
    for (key, value) in object(one).filter(|(key, _)| *key != "schema") {
        shown.insert(key.clone(), value.clone());
    }
    for (key, value) in object(&one["schema"]) {
        shown.insert(key.clone(), value.clone());
    }
    Value::Object(shown)
}

/// A schema in the words of v2.
fn schema(of: &Value) -> Value {
    let Some(fields) = of.as_object() else {
        return of.clone();
    };
    // What stood beside a reference had to wrap it.
    if let Some([one]) = fields.get("allOf").map(list)
        && one.get("$ref").is_some()
    {
        let mut shown = schema(one);
        for (key, value) in fields
            .iter()
            .filter(|(key, _)| !UNKNOWN.contains(&key.as_str()))
        {
            shown[key] = value.clone();
        }
        return shown;
    }
    let is = |key: &str| fields.get(key) == Some(&json!(true));
    let anything = is("nullable") || is("x-kubernetes-preserve-unknown-fields");
    let mut shown = Map::new();
    for (key, value) in fields {
        let hidden = anything && SHAPE.contains(&key.as_str());
        if hidden || UNKNOWN.contains(&key.as_str()) {
            continue;
        }
        let value = match key.as_str() {
            "$ref" => {
                let to = value.as_str().unwrap_or_default();
                json!(to.replace("#/components/schemas/", "#/definitions/"))
            }
            "properties" => object(value)
                .map(|(name, one)| (name.clone(), schema(one)))
                .collect(),
            "items" | "additionalProperties" => schema(value),
            _ => value.clone(),
        };
        shown.insert(key.clone(), value);
    }
    // A value of two types is a text, as far as v2 knows.
    let built_in = fields.contains_key("oneOf") && !fields.contains_key("type");
    if built_in && !anything && !is("x-kubernetes-int-or-string") {
        shown.insert("type".to_owned(), json!("string"));
    }
    Value::Object(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::scheme::Scheme;

    #[test]
    fn every_kind_is_there_and_every_reference_has_a_target() {
        let kinds = Scheme::new().snapshot();
        let kept = kept(&kinds);
        let text = kept.plain();
        assert!(kept.gzip.len() * 8 < text.len(), "it is kept compressed");
        let document: Value = serde_json::from_slice(&text).expect("JSON");
        let words = String::from_utf8_lossy(&text);
        let mut rest = &*words;
        let mut seen = BTreeSet::new();
        while let Some((_, after)) = rest.split_once("\"$ref\":\"#") {
            let (pointer, after) = after.split_once('"').expect("an end");
            if seen.insert(pointer) {
                assert!(document.pointer(pointer).is_some(), "{pointer}");
            }
            rest = after;
        }
        assert!(seen.len() > 300, "{}", seen.len());
        assert!(!words.contains("components/schemas") && !words.contains("requestBody"));
        let put = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["put"];
        let map = json!({"$ref": "#/definitions/io.k8s.api.core.v1.ConfigMap"});
        assert_eq!(put["parameters"][0]["schema"], map);
        assert_eq!(put["responses"]["200"]["schema"], map);
        let spec = &document["definitions"]["io.k8s.api.apps.v1.DeploymentSpec"]["properties"];
        let template = json!({"$ref": "#/definitions/io.k8s.api.core.v1.PodTemplateSpec"});
        assert_eq!(spec["template"], template);
        assert_eq!(kept.hash, super::kept(&kinds).hash);
    }

    #[test]
    fn what_has_no_word_is_left_out() {
        for (of, want) in [
            (
                json!({"allOf": [{"$ref": "#/components/schemas/a"}], "default": {}, "description": "d"}),
                json!({"$ref": "#/definitions/a", "description": "d"}),
            ),
            (
                json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"}),
                json!({"type": "string", "format": "int-or-string"}),
            ),
            (
                json!({"type": "object", "nullable": true, "properties": {"a": {}}}),
                json!({}),
            ),
            (
                json!({"type": "array", "items": {"type": "string", "default": ""}, "maxItems": 1}),
                json!({"type": "array", "items": {"type": "string"}, "maxItems": 1}),
            ),
        ] {
            assert_eq!(schema(&of), want);
        }
    }
}
