//! The process that holds a lab: all that runs is its child and goes when it goes.

use anyhow::{Context as _, Result};
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};

use super::status::{State, lab_dir};
use super::up::LabArgs;
use crate::env::{Fleet, Image, Lab, Parts, Plane, Process, write_private};

/// Starts the lab, says when it is ready, and holds it until told to end.
pub(crate) async fn keep(args: &LabArgs) -> Result<()> {
    let dir = lab_dir()?;
    let mut state = State {
        keeper: std::process::id(),
        ..State::default()
    };
    state.write(&dir)?;
    let mut terminated = signal(SignalKind::terminate()).context("failed to listen for signals")?;
    let mut interrupted =
        signal(SignalKind::interrupt()).context("failed to listen for signals")?;
    let mut held = tokio::select! {
        biased;
        held = start(&dir, args, &mut state) => held?,
        _ = terminated.recv() => return Ok(()),
        _ = interrupted.recv() => return Ok(()),
    };
    state.ready = true;
    state.write(&dir)?;
    tokio::select! {
        biased;
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
    held.towline = None;
    held.lab.stop().await;
    Ok(())
}

/// All that runs.
struct Held {
    lab: Lab,
    towline: Option<(Fleet, Vec<Process>)>,
}

async fn start(dir: &Path, args: &LabArgs, state: &mut State) -> Result<Held> {
    let started = tokio::time::Instant::now();
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, &dir.join("planes"), &args.options()).await?;
    let gateway = equip(&mut lab).await?;
    let local = lab.hub.address();
    let addresses: Vec<&str> = [local.as_str()]
        .into_iter()
        .chain(gateway.as_deref())
        .collect();
    lab.hub.advertise(&addresses).await?;
    for plane in lab.members.iter_mut().chain([&mut lab.hub]) {
        let name = &plane.options.name;
        let kubeconfig = dir.join(format!("{name}.kubeconfig"));
        let text = std::fs::read_to_string(&plane.kubeconfig)
            .with_context(|| format!("failed to read {}", plane.kubeconfig.display()))?;
        write_private(&kubeconfig, &text)?;
        state.kubeconfigs.push((name.clone(), kubeconfig));
        let name = name.clone();
        let pids = plane.pids().into_iter();
        let named = pids.map(|(process, id)| (format!("{name}/{process}"), id));
        state.processes.extend(named);
    }
    let took = started.elapsed().as_secs_f64();
    eprintln!("the control planes are ready after {took:.1} s");
    if let Some(gateway) = &gateway {
        eprintln!("pods of the real node find the hub at {gateway}");
    }
    let towline = match args.bare {
        true => None,
        false => Some(populate(dir, &lab, gateway.as_deref(), state).await?),
    };
    Ok(Held { lab, towline })
}

/// Gives a real node the agent's image and a way to the hub; returns where pods find it.
async fn equip(lab: &mut Lab) -> Result<Option<String>> {
    let port = lab.hub.port;
    for member in &mut lab.members {
        if member.node.is_some() {
            let gateway = member.expose(port)?;
            if let Some(node) = &member.node {
                node.import(&Image::agent()?).await?;
            }
            return Ok(Some(gateway));
        }
    }
    Ok(None)
}

/// Runs Towline: the hub, and an agent for each member; on a real node as a pod.
async fn populate(
    dir: &Path,
    lab: &Lab,
    gateway: Option<&str>,
    state: &mut State,
) -> Result<(Fleet, Vec<Process>)> {
    let fleet = Fleet::start(&dir.join("towline"), &lab.hub).await?;
    note(state, "hub/towline-hub", &fleet.hub);
    let mut agents = Vec::new();
    for member in &lab.members {
        let name = member.options.name.as_str();
        match gateway.filter(|_| member.node.is_some()) {
            Some(gateway) => install(&fleet, member, gateway).await?,
            None => {
                let agent = fleet.join(&member.kubeconfig, name).await?;
                note(state, &format!("{name}/towline-agent"), &agent);
                agents.push(agent);
            }
        }
        eprintln!("{name} is registered and Ready");
    }
    Ok((fleet, agents))
}

/// `towline register` into a member with a real node.
async fn install(fleet: &Fleet, member: &Plane, gateway: &str) -> Result<()> {
    let name = member.options.name.as_str();
    let token = fleet.token(&["--cluster", name]).await?;
    let kubeconfig = member.kubeconfig.display().to_string();
    let args = [
        ["register", gateway],
        ["--kubeconfig", &kubeconfig],
        ["--cluster-name", name],
        ["--token-file", "-"],
        ["--discovery-token-ca-cert-hash", &fleet.pin],
    ];
    let run = fleet.towline.cli_with_input(args.concat(), Some(&token));
    run.await?.ok()?;
    Ok(())
}

fn note(state: &mut State, name: &str, process: &Process) {
    if let Some(id) = process.pid() {
        state.processes.push((name.to_owned(), id));
    }
}
