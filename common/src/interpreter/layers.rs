//! What is known of a kind, from whoever knows it best: customizations of the hub, then those that ship with Towline, then
//! the rules of built-in kinds.
//!
//! Pure. For each operation the first that has a rule decides, and its error is final.

use super::aggregate::aggregate;
use super::custom::carried::{self, TooLong};
use super::custom::{Customizations, Failed, Operation, Rules};
use super::dependencies::{self, Dependency, NamesNothing};
use super::replicas::{self, Replicas};
use crate::api::binding::AggregatedStatusItem;
use crate::gvk::Gvk;
use serde_json::Value;
use std::sync::Arc;

/// Why nobody knows what an object refers to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untold {
    /// The script of its kind fails.
    #[error(transparent)]
    Script(Failed),
    /// The object itself does not say.
    #[error(transparent)]
    Object(NamesNothing),
}

/// Everything that is known of kinds.
#[derive(Debug, Clone, Default)]
pub struct Interpreter {
    customized: Arc<Customizations>,
    shipped: Arc<Customizations>,
}

impl Interpreter {
    /// With these customizations of the hub, and these that ship.
    pub fn new(customized: Arc<Customizations>, shipped: Arc<Customizations>) -> Self {
        Self {
            customized,
            shipped,
        }
    }

    /// The scripts that decide about an operation on a kind.
    pub fn scripts(&self, gvk: &Gvk, operation: Operation) -> Option<&Rules> {
        let layers = [&self.customized, &self.shipped];
        let known = layers.into_iter().filter_map(|layer| layer.of(gvk));
        let mut known = known.map(|rules| &**rules);
        known.find(|rules| rules.has(operation))
    }

    /// The replicas of a template, and what one needs; none when its kind has none.
    pub fn replicas(&self, gvk: &Gvk, template: &Value) -> Result<Option<Replicas>, Failed> {
        let scripts = self.scripts(gvk, Operation::Replica);
        match scripts.and_then(|rules| rules.replicas(template)) {
            Some(answer) => answer.map(Some),
            None => Ok(replicas::get(gvk, template)),
        }
    }

    /// Whether a member's share is written into manifests of this kind.
    pub fn is_revised(&self, gvk: &Gvk) -> bool {
        let scripts = self.scripts(gvk, Operation::ReviseReplica);
        scripts.is_some() || replicas::is_revised(gvk)
    }

    /// Writes a member's share into a manifest.
    pub fn revise(&self, gvk: &Gvk, manifest: &mut Value, share: i32) -> Result<(), Failed> {
        let scripts = self.scripts(gvk, Operation::ReviseReplica);
        match scripts.and_then(|rules| rules.revise(manifest, share)) {
            Some(answer) => *manifest = answer?,
            None => replicas::revise(gvk, manifest, share),
        }
        Ok(())
    }

    /// What an object refers to; none when no rule is known for its kind, and the error says why nobody knows.
    pub fn dependencies(
        &self,
        gvk: &Gvk,
        object: &Value,
    ) -> Option<Result<Vec<Dependency>, Untold>> {
        let scripts = self.scripts(gvk, Operation::Dependency);
        match scripts.and_then(|rules| rules.dependencies(object)) {
            Some(answer) => Some(answer.map_err(Untold::Script)),
            None => Some(dependencies::dependencies(gvk, object)?.map_err(Untold::Object)),
        }
    }

    /// The status of a template; none when no rule is known for its kind, and the error says why nobody knows.
    pub fn aggregate(
        &self,
        gvk: &Gvk,
        template: &Value,
        items: &[AggregatedStatusItem],
    ) -> Option<Result<Value, String>> {
        let scripts = self.scripts(gvk, Operation::AggregateStatus);
        match scripts.and_then(|rules| rules.aggregate(template, items)) {
            Some(answer) => Some(answer.map_err(|failed| failed.to_string())),
            None => aggregate(gvk, template, items).map(Ok),
        }
    }

    /// What a Work of this kind carries for its member to ask, which sees the live object; none when no script is for that.
    pub fn carried(&self, gvk: &Gvk) -> Result<Option<String>, TooLong> {
        carried::write(gvk, |operation| self.scripts(gvk, operation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::interpreter::CustomizationSpec;
    use serde_json::json;

    fn layer(name: &str, customizations: &Value) -> Arc<Customizations> {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let spec = json!({"target": target, "customizations": customizations});
        let spec: CustomizationSpec = serde_json::from_value(spec).expect("a spec");
        Arc::new(Customizations::new([(name, &spec)]))
    }

    /// Operation by operation: a kind that is customized in one keeps the rules of the others.
    #[test]
    fn the_first_layer_that_knows_decides() {
        let replicas =
            |n: u32| json!({"luaScript": format!("function GetReplicas() return {n} end")});
        let health = json!({"luaScript": "function InterpretHealth() return true end"});
        let customized = layer("ours", &json!({"replicaResource": replicas(7)}));
        let shipped = json!({"replicaResource": replicas(8), "healthInterpretation": health});
        let known = Interpreter::new(customized, layer("theirs", &shipped));
        let gvk = Gvk::new("apps/v1", "Deployment").expect("sound");
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"replicas": 2}});
        let count = |known: &Interpreter| {
            let found = known.replicas(&gvk, &object).expect("answers");
            found.expect("a workload").replicas
        };
        assert_eq!(count(&known), 7);
        assert!(known.scripts(&gvk, Operation::Health).is_some());
        let mut manifest = object.clone();
        known.revise(&gvk, &mut manifest, 5).expect("answers");
        assert_eq!(manifest["spec"]["replicas"], 5);
        let bare = Interpreter::default();
        assert_eq!(count(&bare), 2);
        assert!(bare.scripts(&gvk, Operation::Health).is_none());

        let failing = json!({"luaScript": "function GetReplicas() return nil end"});
        let known = Interpreter::new(
            layer("ours", &json!({"replicaResource": failing})),
            Arc::default(),
        );
        let failed = known.replicas(&gvk, &object).expect_err("is final");
        assert_eq!(
            failed.to_string(),
            "ResourceInterpreterCustomization ours, InterpretReplica: result type 0 is not number"
        );
    }
}
