//! What people may do who are bound as `docs/install.md` says.

use anyhow::{Context as _, Result, ensure};
use std::path::Path;

use super::{ask, typed};
use crate::env::repository;

/// Who, what, and whether they may: a verb, a resource, and `-n NAMESPACE` or `-A`.
const MAY: [(&str, &str, bool); 18] = [
    (
        "team",
        "create propagationpolicies.policy.karmada.io -n team",
        true,
    ),
    (
        "team",
        "delete overridepolicies.policy.karmada.io -n team",
        true,
    ),
    ("team", "create deployments.apps -n team", true),
    ("team", "get resourcebindings.work.karmada.io -n team", true),
    (
        "team",
        "update resourcebindings.work.karmada.io -n team",
        false,
    ),
    (
        "team",
        "create propagationpolicies.policy.karmada.io -n other",
        false,
    ),
    (
        "team",
        "get resourcebindings.work.karmada.io -n other",
        false,
    ),
    (
        "team",
        "create clusterpropagationpolicies.policy.karmada.io -A",
        false,
    ),
    (
        "team",
        "get works.work.karmada.io -n karmada-es-member1",
        false,
    ),
    ("team", "patch clusters.cluster.karmada.io -A", false),
    ("fleet", "patch clusters.cluster.karmada.io -A", true),
    ("fleet", "delete clusters.cluster.karmada.io -A", false),
    (
        "fleet",
        "create clustertaintpolicies.policy.karmada.io -A",
        true,
    ),
    (
        "fleet",
        "create clusterpropagationpolicies.policy.karmada.io -A",
        true,
    ),
    (
        "fleet",
        "create workloadrebalancers.apps.karmada.io -A",
        true,
    ),
    ("fleet", "list resourcebindings.work.karmada.io -A", true),
    ("fleet", "list works.work.karmada.io -A", false),
    ("fleet", "list secrets -A", false),
];

/// Binds them as the document says, and asks the hub.
pub(super) async fn have_their_rights(kubectl: &Path, hub: &str) -> Result<()> {
    let document = repository().join("docs/install.md");
    let document = std::fs::read_to_string(&document).context("failed to read docs/install.md")?;
    typed(
        kubectl,
        &format!("kubectl --kubeconfig {hub} create namespace team"),
    )
    .await?;
    let binds = |line: &&str| {
        line.contains(" create rolebinding ") || line.contains(" create clusterrolebinding ")
    };
    let lines: Vec<&str> = document.lines().filter(binds).collect();
    ensure!(lines.len() == 2, "docs/install.md binds {lines:?}");
    for line in lines {
        typed(kubectl, &format!("{line} --kubeconfig {hub}")).await?;
    }
    for (group, what, may) in MAY {
        let mut args = vec![
            "--kubeconfig",
            hub,
            "auth",
            "can-i",
            "--as=somebody",
            "--as-group",
            group,
        ];
        args.extend(what.split_whitespace());
        let said = ask(kubectl, args).await?.stdout;
        let wanted = if may { "yes" } else { "no" };
        ensure!(said.trim().starts_with(wanted), "{group} {what}: {said}");
    }
    Ok(())
}
