//! The hub of a fleet: one that is started for it, or one that runs already.

use anyhow::{Result, bail};
use kube::Client;
use std::path::{Path, PathBuf};

use crate::commands::up::Foundation;
use crate::env::{self, Fleet, Given, Parts, Plane, PlaneOptions, Scratch, Towline, target_dir};

/// A hub with Towline.
pub(in crate::commands) struct Hub {
    kubeconfig: PathBuf,
    towline: Towline,
    own: Option<Own>,
    pids: Vec<u32>,
    what: String,
}

/// What was started.
struct Own {
    plane: Plane,
    fleet: Fleet,
}

impl Hub {
    /// Starts one, or takes the one of a kubeconfig.
    pub(in crate::commands) async fn start(
        kind: Foundation,
        kubeconfig: Option<&Path>,
        pids: &[u32],
        scratch: &Scratch,
    ) -> Result<Self> {
        let towline = Towline::new(&scratch.join("towline"))?;
        if let Some(kubeconfig) = kubeconfig {
            return Ok(Self {
                kubeconfig: kubeconfig.to_owned(),
                towline,
                own: None,
                pids: pids.to_vec(),
                what: format!("the hub of {}", kubeconfig.display()),
            });
        }
        let parts = Parts::from_env()?;
        let mut options = PlaneOptions::hub();
        options.builtin |= kind == Foundation::Builtin;
        parts.build(&options.parts()).await?;
        let plane = Plane::start(&parts, &scratch.join("hub"), options).await?;
        let fleet = Fleet::start(&scratch.join("towline"), &plane).await?;
        let built = target_dir()?;
        let built = built.file_name().unwrap_or_default().to_string_lossy();
        let kind = match plane.options.builtin {
            true => "the built-in hub",
            false => "kube-apiserver, etcd, kube-controller-manager and towline-hub",
        };
        Ok(Self {
            kubeconfig: plane.kubeconfig.clone(),
            towline,
            own: Some(Own { plane, fleet }),
            pids: Vec::new(),
            what: format!("{kind}, a {built} build"),
        })
    }

    /// What it is, in words.
    pub(in crate::commands) fn what(&self) -> String {
        self.what.clone()
    }

    /// A client with every right.
    pub(in crate::commands) async fn client(&self) -> Result<Client> {
        env::client(&self.kubeconfig).await
    }

    /// Its processes.
    pub(in crate::commands) fn pids(&mut self) -> Vec<u32> {
        let Some(own) = &mut self.own else {
            return self.pids.clone();
        };
        let plane = own.plane.pids().into_iter().map(|(_, pid)| pid);
        plane.chain(own.fleet.hub.pid()).collect()
    }

    /// A token for so many agents, and what they need beside it.
    pub(in crate::commands) async fn token(&self, uses: usize) -> Result<Given> {
        let (kubeconfig, uses) = (self.kubeconfig.display().to_string(), uses.to_string());
        let args = ["token", "create", "-o", "json", "--uses", &uses];
        let args = args.iter().copied().chain(["--kubeconfig", &kubeconfig]);
        let run = self.towline.cli(args).await?.ok()?;
        Given::read(&run.stdout)
    }

    /// Whether it is ours to restart.
    pub(in crate::commands) fn can_restart(&self) -> bool {
        self.own.is_some()
    }

    /// Kills the API server.
    pub(in crate::commands) fn kill(&mut self) {
        if let Some(own) = &mut self.own {
            own.plane.kill_api();
        }
    }

    /// Starts the API server again; returns when it is ready.
    pub(in crate::commands) async fn restart(&mut self) -> Result<()> {
        match &mut self.own {
            Some(own) => own.plane.restart_api().await,
            None => bail!("only a hub that was started here is restarted"),
        }
    }

    /// Ends what was started.
    pub(in crate::commands) async fn stop(&mut self) {
        if let Some(mut own) = self.own.take() {
            own.fleet.hub.kill();
            own.plane.stop().await;
        }
    }
}
