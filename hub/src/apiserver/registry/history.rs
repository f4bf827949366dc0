//! From which revision on the history of a namespace is served.
//!
//! An execution namespace belongs to one registration after another: whoever gets a name that another
//! cluster had must not read, by an old resourceVersion, what that one was told to run.

use super::Registry;
use crate::apiserver::store::{Gone, Key};
use crate::permissions::AGENT_BINDING;
use common::names::EXECUTION_PREFIX;

const NAMESPACES: &str = "/namespaces";
const BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";

impl Registry {
    /// Refuses a revision from before the registration that a namespace belongs to: before the namespace
    /// was made, and before the rights in it were last given to somebody. For any other namespace, and for
    /// all of them together, history is as long as it is.
    pub(super) fn history_of(&self, namespace: &str, asked: u64) -> Result<(), Gone> {
        if !namespace.starts_with(EXECUTION_PREFIX) {
            return Ok(());
        }
        let store = self.store();
        let made = store.get(NAMESPACES, &Key::cluster(namespace));
        let given = store.get(BINDINGS, &Key::new(namespace, AGENT_BINDING));
        let made = made.map_or(0, |namespace| namespace.created());
        let given = given.map_or(0, |binding| binding.revision());
        let floor = made.max(given);
        if asked < floor {
            return Err(Gone { asked, floor });
        }
        Ok(())
    }
}
