//! What is kept of a template: what decisions look at, and its text.

use super::held::ObjectName;
use super::kept::{Keep, Packing};
use super::view::Record;
use crate::pack::Packed;
use crate::propagation;
use common::gvk::Gvk;
use serde_json::Value;
use std::sync::Arc;

/// A template.
#[derive(Debug)]
pub struct Template {
    /// What decisions look at.
    pub identity: propagation::Template,
    /// The object without managedFields, as JSON.
    text: Box<str>,
}

impl Template {
    /// The object.
    pub fn object(&self) -> Value {
        // It was a Value when it was kept.
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

impl Record for Template {
    const KIND: &'static str = "template";

    type Kept = PackedTemplate;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        Self::read_as(object, None)
    }

    fn read_as(object: &str, kind: Option<&Gvk>) -> serde_json::Result<Option<Self>> {
        let mut object: Value = serde_json::from_str(object)?;
        if let (Some(kind), Some(fields)) = (kind, object.as_object_mut()) {
            fields.insert("apiVersion".to_owned(), kind.api_version().into());
            fields.insert("kind".to_owned(), kind.kind.clone().into());
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let identity = propagation::Template::of(&object);
        Ok(identity.map(|identity| Self {
            identity,
            text: object.to_string().into_boxed_str(),
        }))
    }
}

/// A template as it lies in memory.
pub struct PackedTemplate {
    text: Packed,
    /// Of the object that was sent: a number that is written and read again may differ in its last digit.
    digest: u64,
}

impl Keep<Template> for PackedTemplate {
    fn read(
        object: &str,
        kind: Option<&Gvk>,
        packing: &mut Packing<Template>,
    ) -> serde_json::Result<Option<(Arc<Template>, Self)>> {
        let record = Template::read_as(object, kind)?;
        Ok(record.map(|record| {
            let packed = Self {
                text: Packed::new(&record.text, &mut packing.packer),
                digest: record.identity.digest,
            };
            (Arc::new(record), packed)
        }))
    }

    fn record(&self, name: &ObjectName, packing: &mut Packing<Template>) -> Option<Arc<Template>> {
        packing.recent(name, || {
            let text = self.text.text();
            let object = serde_json::from_str(&text).ok()?;
            let mut identity = propagation::Template::of(&object)?;
            identity.digest = self.digest;
            let text = text.into();
            Some(Template { identity, text })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn thing() -> Gvk {
        Gvk::new("x.org/v1", "Thing").expect("a kind")
    }

    #[test]
    fn a_template_is_what_was_sent_however_it_lies() {
        let mut packing = Packing::default();
        for number in 0..600 {
            let metadata =
                json!({"name": format!("a-{number}"), "namespace": "n", "labels": {"a": "b"}});
            let ratio = format!("{number}.123456789012345678901234567890");
            let sent = format!(
                r#"{{"metadata":{metadata},"spec":{{"ratio":{ratio},"text":"{ratio:0300}"}}}}"#
            );
            let (read, kept) = PackedTemplate::read(&sent, Some(&thing()), &mut packing)
                .expect("an object")
                .expect("held");
            let name = ObjectName::new(Some("n"), &format!("a-{number}"));
            let again = kept.record(&name, &mut packing).expect("held");
            assert_eq!(again.identity, read.identity);
            assert_eq!(again.object(), read.object());
        }
    }

    #[test]
    fn who_wrote_which_field_is_not_kept() {
        // As an item of a list, which does not name its kind.
        let object = json!({"status": {"ready": 1},
            "metadata": {"name": "a", "managedFields": [{"manager": "m"}]}});
        let read = Template::read_as(&object.to_string(), Some(&thing()));
        let read = read.expect("an object").expect("held");
        assert_eq!(
            (read.identity.name.as_str(), read.identity.kind.as_str()),
            ("a", "Thing")
        );
        assert!(read.object()["metadata"].get("managedFields").is_none());
        assert_eq!(read.object()["status"]["ready"], 1);
    }
}
