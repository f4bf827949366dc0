//! Why the hub refuses a registration: the reasons of a Denied CSR, which the agent reads back.
//!
//! Pure. The hub writes the reason and a sentence for a human; the agent turns the reason into its
//! own error and exit code, and shows the sentence as it is.

/// How a built-in hub says that it does not know the registration of an agent that it refuses; other API servers refuse one
/// that is gone in the words of a right that is missing.
pub const UNKNOWN_REGISTRATION: &str = "this hub does not know this registration";

/// The reason of the `Denied` condition of a CSR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DenialReason {
    /// The token is bound to another cluster name.
    TokenForAnotherCluster,
    /// The token has expired, or no use of it is left.
    TokenSpent,
    /// A Cluster of this name exists and the token does not permit replacing it.
    ClusterNameTaken,
    /// Another Cluster has this cluster id, or this Cluster has another one.
    ClusterIdTaken,
    /// The request is not the canonical one (subject, usages, lifetime, encoding).
    RequestNotAllowed,
    /// The Cluster or its registration is no longer there, so nothing can be renewed.
    RegistrationGone,
}

impl DenialReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [
        Self::TokenForAnotherCluster,
        Self::TokenSpent,
        Self::ClusterNameTaken,
        Self::ClusterIdTaken,
        Self::RequestNotAllowed,
        Self::RegistrationGone,
    ];

    /// The condition's reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TokenForAnotherCluster => "TokenForAnotherCluster",
            Self::TokenSpent => "TokenSpent",
            Self::ClusterNameTaken => "ClusterNameTaken",
            Self::ClusterIdTaken => "ClusterIdTaken",
            Self::RequestNotAllowed => "RequestNotAllowed",
            Self::RegistrationGone => "RegistrationGone",
        }
    }

    /// Reads a condition's reason; `None` for one that another approver wrote.
    pub fn parse(reason: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == reason)
    }
}

#[cfg(test)]
mod tests {
    use super::DenialReason;

    #[test]
    fn every_reason_reads_back() {
        for reason in DenialReason::ALL {
            assert_eq!(DenialReason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(DenialReason::parse("Whatever"), None);
    }
}
