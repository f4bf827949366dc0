//! What registration needs of an API server, each taken away in turn: `towline init` names the flag.

use anyhow::{Result, ensure};

use crate::env::{Parts, Plane, PlaneOptions, Process, Run, Scratch, Towline};

/// Replaces the flags of a program that start with `prefix`.
fn set_flag(process: &mut Process, prefix: &str, flag: Option<&str>) {
    let args = &mut process.spec_mut().args;
    args.retain(|arg| !arg.to_string_lossy().starts_with(prefix));
    args.extend(flag.map(Into::into));
}

/// Both programs anew, with the flags that they have now.
async fn restart(hub: &mut Plane) -> Result<()> {
    hub.apiserver.restart()?;
    hub.wait_ready().await?;
    hub.manager.restart()
}

fn lacks(run: Run, need: &str, flag: &str) -> Result<()> {
    let run = run.refused()?;
    ensure!(run.code == 7, "{run:?}");
    ensure!(
        run.stderr.contains(&format!("MISSING  {need}")),
        "{}",
        run.stderr
    );
    ensure!(
        run.stderr.contains(flag),
        "{flag} is not named: {}",
        run.stderr
    );
    Ok(())
}

/// Without each of them the hub is prepared, but init fails and says why; with all it is ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_flag_is_named() -> Result<()> {
    let scratch = Scratch::new("init-flags")?;
    let parts = Parts::from_env()?;
    let mut hub = Plane::start(&parts, &scratch.join("hub"), PlaneOptions::hub()).await?;
    let towline = Towline::new(scratch.path())?;
    let kubeconfig = hub.kubeconfig.display().to_string();
    let init = || towline.cli(["init", "--kubeconfig", &kubeconfig]);

    let tokens = "--enable-bootstrap-token-auth";
    set_flag(&mut hub.apiserver, tokens, None);
    restart(&mut hub).await?;
    lacks(init().await?, "bootstrap tokens", tokens)?;
    set_flag(&mut hub.apiserver, tokens, Some(tokens));

    let anonymous = "--anonymous-auth";
    set_flag(
        &mut hub.apiserver,
        anonymous,
        Some("--anonymous-auth=false"),
    );
    restart(&mut hub).await?;
    lacks(
        init().await?,
        "signed cluster-info",
        "--anonymous-auth=true",
    )?;
    set_flag(&mut hub.apiserver, anonymous, None);

    let all: Vec<_> = hub.manager.spec_mut().args.clone();
    set_flag(&mut hub.manager, "--controllers=", Some("--controllers=*"));
    set_flag(&mut hub.manager, "--cluster-signing-cert-file=", None);
    set_flag(&mut hub.manager, "--cluster-signing-key-file=", None);
    restart(&mut hub).await?;
    let run = init().await?.refused()?;
    for need in [
        "signed cluster-info",
        "client certificates",
        "removal of expired tokens",
    ] {
        ensure!(
            run.stderr.contains(&format!("MISSING  {need}")),
            "{need}: {}",
            run.stderr
        );
    }
    ensure!(
        run.stderr
            .contains("--controllers=*,bootstrapsigner,tokencleaner"),
        "{}",
        run.stderr
    );
    ensure!(
        run.stderr.contains("--cluster-signing-cert-file"),
        "{}",
        run.stderr
    );
    ensure!(
        run.stderr.contains("ok       bootstrap tokens"),
        "{}",
        run.stderr
    );

    hub.manager.spec_mut().args = all;
    restart(&mut hub).await?;
    let run = init().await?.ok()?;
    ensure!(run.stderr.contains("The hub is ready"), "{}", run.stderr);
    Ok(())
}
