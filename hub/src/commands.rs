//! Commands that an operator is told to type about a cluster. One that was joined has others than one with an agent of
//! its own, and each verb refuses the other's clusters. Pure.

use common::api::cluster::SyncMode;
use common::unregister::Mode;

/// Has a cluster leave the hub.
pub(crate) fn leave(name: &str, of: SyncMode, mode: Mode) -> String {
    let verb = match of {
        SyncMode::Pull => "unregister",
        SyncMode::Push => "unjoin",
    };
    let flag = match mode {
        Mode::RemoveWorkloads => "",
        Mode::KeepWorkloads => " --keep-workloads",
        Mode::Force => " --force",
    };
    format!("towline {verb} {name}{flag}")
}

/// Begins another registration of a cluster's agent. An agent of its own is not to be installed in one that was joined.
pub(crate) fn register_again(name: &str, of: SyncMode) -> String {
    match of {
        SyncMode::Pull => format!("towline token create --cluster {name} --replace"),
        SyncMode::Push => format!("towline join {name} --cluster-kubeconfig FILE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SyncMode::{Pull, Push};

    #[test]
    fn a_cluster_that_was_joined_has_commands_of_its_own() {
        for (of, mode, want) in [
            (Pull, Mode::RemoveWorkloads, "towline unregister m1"),
            (Pull, Mode::Force, "towline unregister m1 --force"),
            (Push, Mode::Force, "towline unjoin m1 --force"),
            (
                Push,
                Mode::KeepWorkloads,
                "towline unjoin m1 --keep-workloads",
            ),
        ] {
            assert_eq!(leave("m1", of, mode), want);
        }
        for (of, want) in [
            (Pull, "towline token create --cluster m1 --replace"),
            (Push, "towline join m1 --cluster-kubeconfig FILE"),
        ] {
            assert_eq!(register_again("m1", of), want);
        }
    }
}
