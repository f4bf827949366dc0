//! Documents that were asked for, made once.

use super::{document, groups};
use crate::apiserver::scheme::{Document, Documents, Snapshot};
use std::sync::Arc;

/// Those that no CRD changes.
static FIXED: Documents = Documents::new();

/// A document by its path below `/openapi/v3/`; `None` if there is none. Made when it is first asked for,
/// and again only when CRDs have changed what is in it.
pub fn kept(kinds: &Snapshot, path: &str) -> Option<Arc<Document>> {
    let of = groups(kinds).remove(path).unwrap_or_default();
    let documents = match of.iter().any(|resource| resource.is_custom()) {
        true => kinds.documents(),
        false => &FIXED,
    };
    documents.v3(path, || {
        let (bytes, hash) = document(kinds, path)?;
        Document::new(&bytes, hash)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::scheme::Scheme;
    use serde_json::json;

    fn crd(kind: &str) -> serde_json::Value {
        json!({"metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}})
    }

    #[test]
    fn a_document_is_made_once_for_each_state_of_its_kinds() {
        let scheme = Scheme::new();
        scheme.set_crds([&crd("Thing")]);
        let (custom, fixed) = ("apis/example.com/v1", "apis/apps/v1");
        let before = scheme.snapshot();
        let of = |kinds: &Snapshot, path| kept(kinds, path).expect(path);
        let first = [of(&before, custom), of(&before, fixed)];
        for (path, first) in [custom, fixed].into_iter().zip(&first) {
            assert!(Arc::ptr_eq(&of(&before, path), first), "{path}");
            let (bytes, hash) = document(&before, path).expect(path);
            assert_eq!((first.plain(), &first.hash), (bytes, &hash));
        }
        scheme.set_crds([&crd("Other")]);
        let after = scheme.snapshot();
        assert!(!Arc::ptr_eq(&of(&after, custom), &first[0]));
        assert_ne!(of(&after, custom).hash, first[0].hash);
        assert!(Arc::ptr_eq(&of(&after, fixed), &first[1]));
        assert!(kept(&after, "apis/nothing/v1").is_none());
    }
}
