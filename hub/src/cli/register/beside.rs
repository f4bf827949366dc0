//! A member whose agent runs beside the hub: everything of an installation but the Deployment.

use super::apply::Member;
use super::bootstrap::Bootstrap;
use super::settings::{Installed, RightsArgs, Settings, flags_of};
use crate::cli::token::ForCluster;
use crate::cli::{CliError, Kind, Output};
use common::joined::Joined;
use common::names::ClusterName;
use common::tunnel::Mode;
use kube::Client;

/// A member that was looked at, and what is to be made in it.
pub(in crate::cli) struct Beside {
    member: Member,
    settings: Settings,
}

impl Beside {
    /// Looks at the member and changes nothing. What no flag says is as it was when it was joined before.
    pub(in crate::cli) async fn look(
        client: Client,
        rights: RightsArgs,
        before: Option<&Joined>,
    ) -> Result<Self, CliError> {
        let member = Member::new(client);
        let mut installed: Installed = member.installed().await?;
        if installed.exists {
            let message = "an agent of its own is installed in this cluster; nothing was changed";
            return Err(CliError::message(Kind::Denied, message).hint(
                "Take it off the hub by `towline unregister` first, or leave it as it is: it needs no `join`.",
            ));
        }
        if let Some(before) = before {
            installed.deployment = flags_of(before);
        }
        let settings = Settings::resolve(rights.into(), &installed)?;
        Ok(Self { member, settings })
    }

    /// Makes namespace, roles and admission policy.
    pub(in crate::cli) async fn apply(&mut self, output: &Output) -> Result<(), CliError> {
        let proxy = &mut self.settings.proxy;
        self.member.constrain(proxy, output).await?;
        if self.settings.proxy.lets_nobody_in() {
            output.note("no user of the hub is let in yet: name who is, by --proxy-user");
        }
        self.settings
            .tell_guards(self.member.apply_foundation(&self.settings).await?, output);
        Ok(())
    }

    /// Hands the agent what it registers with.
    pub(in crate::cli) async fn hand_over(
        &self,
        cluster: &ClusterName,
        given: ForCluster,
    ) -> Result<(), CliError> {
        let bootstrap = Bootstrap::of(cluster.clone(), given);
        self.member.hand_over(&bootstrap).await.map(drop)
    }

    /// Reserved namespaces that Works may reach.
    pub(in crate::cli) fn allowed(&self) -> Vec<String> {
        self.settings.reserved.allowed()
    }

    /// What is open to users of the hub.
    pub(in crate::cli) fn mode(&self) -> Mode {
        self.settings.proxy.mode
    }
}
