//! Who makes a request, once that is settled.

use std::collections::BTreeMap;

/// The user of cluster administrators' certificates made by this server, and of its own controllers.
pub const MASTERS: &str = "system:masters";
/// Everybody who proved an identity.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Everybody who did not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of those who did not.
pub const ANONYMOUS: &str = "system:anonymous";

/// An identity that was proved, or impersonated by somebody who may.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// As rights name it: `system:admin`, `system:serviceaccount:a:b`.
    pub user: String,
    /// What tells two users of one name apart; empty for certificates.
    pub uid: String,
    /// Groups, in the order of the credential.
    pub groups: Vec<String>,
    /// What else the credential says, by key.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Caller {
    /// The server itself: its controllers, in process.
    pub fn system() -> Self {
        Self {
            user: "system:apiserver".to_owned(),
            groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Nobody in particular.
    pub fn anonymous() -> Self {
        Self {
            user: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// Whether the caller is of this group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|of| of == group)
    }
}
