//! What it can mean that the hub refuses an agent, by the hub's answer. Pure.
//!
//! A cluster in quarantine keeps its registration and its certificate and loses its rights alone. An API server answers
//! that by 403, in the same words as where the registration was removed or replaced, since that takes the same rights.
//! Only the built-in hub adds whose registration it does not know. 401, a certificate that is not taken, and 404,
//! a Cluster that is not there, come of no quarantine.

use crate::context::Refusal;
use common::denial::UNKNOWN_REGISTRATION;
use common::names::ClusterName;

/// What became of an agent's right to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The hub does not know it.
    Gone,
    /// Its cluster is quarantined, or the hub does not know it.
    WithheldOrGone,
}

/// Judges a refusal that lasts. Who has hand-made credentials has no registration, and no quarantine takes its rights.
pub fn meaning(refusal: &Refusal, is_registered: bool) -> Meaning {
    let withheld = refusal.code == 403 && !refusal.message.contains(UNKNOWN_REGISTRATION);
    match withheld && is_registered {
        true => Meaning::WithheldOrGone,
        false => Meaning::Gone,
    }
}

/// What an operator can do about a cluster that is quarantined, or whose registration is gone.
pub fn advice(cluster: &ClusterName) -> String {
    let (name, quarantine) = (cluster.as_str(), common::labels::QUARANTINED_SINCE);
    format!(
        "`towline why cluster/{name}` on the hub tells which of two it is. Quarantined: then no new token helps, and \
         somebody who may write Clusters on the hub lifts it by `kubectl annotate cluster {name} {quarantine}-`, once it \
         is known why; this agent works again when it is started after that. Or removed or replaced: then register \
         again with a token of `towline token create --cluster {name} --replace`, join it again if the \
         hub reaches it by itself, or remove the agent"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What API servers answer to a patch of the status of Cluster m1 whose right is not there.
    const FORBIDDEN: &str = "clusters.cluster.karmada.io \"m1\" is forbidden: User \"towline:cluster:m1\" cannot patch \
        resource \"clusters/status\" in API group \"cluster.karmada.io\" at the cluster scope";

    #[test]
    fn a_quarantine_is_told_where_it_can_be_one() {
        let not_known = format!(
            "{FORBIDDEN}: {UNKNOWN_REGISTRATION}; it was removed, or is newer than the backup that the hub was restored from"
        );
        for (code, message, is_registered, want) in [
            // A quarantine on either kind of hub; on one of kube-apiserver also a registration that is gone.
            (403, FORBIDDEN, true, Meaning::WithheldOrGone),
            (403, &not_known, true, Meaning::Gone),
            (401, "Unauthorized", true, Meaning::Gone),
            (
                404,
                "clusters.cluster.karmada.io \"m1\" not found",
                true,
                Meaning::Gone,
            ),
            (403, FORBIDDEN, false, Meaning::Gone),
        ] {
            let refusal = Refusal {
                code,
                message: message.to_owned(),
            };
            let said = meaning(&refusal, is_registered);
            assert_eq!(said, want, "{code} {message}, registered {is_registered}");
        }
    }
}
