//! Patched objects as the real server writes them, for texts of errors that quote them.

use crate::apiserver::schema::Schema;
use crate::go::escape_html;
use serde_json::{Value, json};

/// A patched object as the real server writes it: the members that the patch reached are sorted, all
/// others stand in the order of their Go type. `reached` has an object where the patch had one.
pub(in crate::apiserver) fn patched(object: &Value, schema: &Schema, reached: &Value) -> String {
    let mut text = String::new();
    write(object, Some(schema), Some(reached), &mut text);
    escape_html(&text)
}

/// The objects that the paths of a JSON patch lead through.
pub(in crate::apiserver) fn reached_by(operations: &Value) -> Value {
    let mut reached = json!({});
    let operations = operations.as_array().into_iter().flatten();
    let paths = operations.flat_map(|operation| [&operation["path"], &operation["from"]]);
    for path in paths.filter_map(Value::as_str) {
        let Some((to, _)) = path.rsplit_once('/') else {
            continue;
        };
        let mut at = &mut reached;
        for part in to.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let Some(members) = at.as_object_mut() else {
                break;
            };
            at = members.entry(part).or_insert_with(|| json!({}));
        }
    }
    reached
}

fn write(value: &Value, schema: Option<&Schema>, reached: Option<&Value>, out: &mut String) {
    match value {
        Value::Object(members) => {
            let reached = reached.filter(|reached| reached.is_object());
            let mut all: Vec<(&String, &Value)> = members.iter().collect();
            all.sort_by_key(|(key, _)| key.as_str());
            if let (None, Some(schema)) = (reached, schema) {
                all.sort_by_cached_key(|(key, _)| schema.place_of(key));
            }
            out.push('{');
            for (index, (key, member)) in all.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                let reached = reached.and_then(|reached| reached.get(key));
                write(member, schema.and_then(|of| of.child(key)), reached, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                let reached = reached.and_then(|reached| reached.get(index.to_string()));
                write(item, schema.and_then(Schema::items), reached, out);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}
