//! One suite of requests, run against a real kube-apiserver and against the built-in API server; the
//! answers must be the same.
//!
//! `TOWLINE_API_FILTER` picks cases by a part of `area: name`, or by one of several with `|` between them.
//! `TOWLINE_API_SERVERS=real,real` compares other pairs. `TOWLINE_API_TRANSCRIPTS=DIR` writes what the first of them
//! said. `TOWLINE_API_ONCE=yes` does not look again at cases that differ. `TOWLINE_API_REAL` and `TOWLINE_API_BUILTIN` name kubeconfigs of servers that run.

mod compare;
mod kubectl;
mod normal;
mod profile;
mod prose;
mod proto;
mod run;
mod script;
mod sequences;
mod server;
mod socket;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use self::compare::{Outcome, details, differences, summary};
use self::profile::Profile;
use self::script::Case;
use self::server::{Behind, Server};
use crate::env::{Parts, Plane, PlaneOptions, Scratch, repository};

/// Cases at a time: most of them wait.
const AT_ONCE: usize = 16;
/// Nothing on a hub runs workloads, so no controller may change them under a case; the rest is as in
/// every lab. Given after the flag of the lab, which turns everything on.
const CONTROLLERS: &str = "--controllers=-deployment-controller,-replicaset-controller,\
    -statefulset-controller,-daemonset-controller,-job-controller,-cronjob-controller,\
    -replicationcontroller-controller,-endpoints-controller,-endpointslice-controller,\
    -endpointslice-mirroring-controller,-horizontal-pod-autoscaler-controller,\
    -disruption-controller,-resourcequota-controller,-persistentvolume-binder-controller,\
    -persistentvolumeclaim-protection-controller,-persistentvolume-protection-controller,\
    -node-lifecycle-controller,-ttl-controller";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_servers_answer_the_same() -> Result<()> {
    let scratch = Scratch::new("api")?;
    let kinds = std::env::var("TOWLINE_API_SERVERS").unwrap_or_else(|_| "real,builtin".to_owned());
    let (left, right) = kinds.split_once(',').unwrap_or((&kinds, "builtin"));
    let (mut left, mut right) = tokio::try_join!(
        start(left, "left", scratch.path()),
        start(right, "right", scratch.path())
    )?;
    let run = format!("{:x}", std::process::id());
    let profile = Profile::read()?;
    let cases = cases(&run)?;
    if std::env::var_os("TOWLINE_API_FILTER").is_none() {
        profile.fits(&cases)?;
    }
    // Sessions first: where many custom kinds are dying, a real server ends no namespace for minutes,
    // which is how long kubectl would wait.
    let mut outcomes = kubectl::compare(&left, &right, &profile, &run).await?;
    outcomes.extend(compare_all(&left, &right, &profile, cases).await);
    outcomes.extend(generated(&left, &right, &profile, &run));
    let mixed = left.is_builtin() != right.is_builtin();
    let open = if mixed { open()? } else { BTreeSet::new() };
    let again = std::env::var_os("TOWLINE_API_ONCE").is_none();
    for case in self::cases(&format!("{run}x"))?
        .into_iter()
        .filter(|_| again)
    {
        let title = case.title();
        let before = outcomes.iter_mut().find(|o| o.case.title() == title);
        // Sixteen cases at a time on a busy machine may see controllers between two of their steps.
        if let Some(outcome) = before.filter(|o| surprise(o, &open).is_some()) {
            writeln!(std::io::stderr(), "once more, alone: {title}")?;
            let differences = compare_one(&left, &right, &profile, &case).await;
            *outcome = Outcome { case, differences };
        }
    }
    left.stop().await;
    right.stop().await;
    let report = scratch.path().with_file_name("api-differences.txt");
    std::fs::write(&report, details(&outcomes))?;
    let table = summary(&outcomes, &left.label, &right.label);
    // Past the test's capture: the count is wanted whether or not it is zero.
    writeln!(
        std::io::stderr(),
        "\n{table}  in full: {}",
        report.display()
    )?;
    let surprises: Vec<String> = outcomes.iter().filter_map(|o| surprise(o, &open)).collect();
    ensure!(
        surprises.is_empty(),
        "{} cases are not as expected:\n{}\nsee {}",
        surprises.len(),
        surprises.join("\n"),
        report.display()
    );
    scratch.passed();
    Ok(())
}

/// The cases that are known to differ: open differences, each of which is a defect.
fn open() -> Result<BTreeSet<String>> {
    let path = scripts().with_file_name("open.txt");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("failed to read {}", path.display()))?;
    let lines = text
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty());
    Ok(lines.map(str::to_owned).collect())
}

/// A case that differs and is not known to, or is known to and no longer does.
fn surprise(outcome: &Outcome, open: &BTreeSet<String>) -> Option<String> {
    let title = outcome.case.title();
    // A difference that depends on how fast the machine is.
    if open.contains(&format!("{title} [at times]")) {
        return None;
    }
    match (outcome.differences.is_empty(), open.contains(&title)) {
        (false, false) => Some(format!("differs: {title}")),
        (true, true) => Some(format!(
            "no longer differs, strike it off open.txt: {title}"
        )),
        _ => None,
    }
}

fn scripts() -> PathBuf {
    repository().join("e2e/cases/api/scripts")
}

/// The cases that were asked for, with names of this run's own.
fn cases(run: &str) -> Result<Vec<Case>> {
    let mut cases = script::read_all(&scripts(), run)?;
    cases.retain(|case| picked(&case.title()));
    Ok(cases)
}

/// Whether a case was asked for, by its `area: name`.
fn picked(title: &str) -> bool {
    let filter = std::env::var("TOWLINE_API_FILTER").unwrap_or_default();
    filter.split('|').any(|part| title.contains(part))
}

/// A server of a kind: `real`, or `builtin`.
async fn start(kind: &str, side: &str, dir: &Path) -> Result<Server> {
    let elsewhere = std::env::var(format!("TOWLINE_API_{}", kind.to_uppercase()));
    if let Ok(path) = elsewhere {
        return Server::new(kind, Path::new(&path), Behind::Elsewhere).await;
    }
    let mut options = PlaneOptions::hub();
    // The built-in server passes nothing on to others.
    options.aggregates = false;
    match kind {
        "real" => options.manager_args.push(CONTROLLERS.to_owned()),
        "builtin" => {}
        other => bail!("no such kind of server: {other}"),
    }
    options.builtin = kind == "builtin";
    let plane = Plane::start(&Parts::from_env()?, &dir.join(side), options).await?;
    let kubeconfig = plane.kubeconfig.clone();
    Server::new(kind, &kubeconfig, Behind::Plane(Box::new(plane))).await
}

async fn compare_all(
    left: &Server,
    right: &Server,
    profile: &Profile,
    cases: Vec<Case>,
) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = futures::stream::iter(cases)
        .map(|case| async move {
            let differences = compare_one(left, right, profile, &case).await;
            Outcome { case, differences }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    outcomes.sort_by_key(|outcome| outcome.case.id.clone());
    outcomes
}

/// Generated sequences; one outcome each, the last of which may differ.
fn generated(left: &Server, right: &Server, profile: &Profile, run: &str) -> Vec<Outcome> {
    if !picked("sequences: generated") {
        return Vec::new();
    }
    let (ran, failed) = sequences::run(run, async |case| {
        compare_one(left, right, profile, case).await
    });
    writeln!(std::io::stderr(), "{ran} generated sequences ran").unwrap_or_default();
    failed
        .into_iter()
        .map(|(case, differences)| Outcome { case, differences })
        .collect()
}

async fn compare_one(left: &Server, right: &Server, profile: &Profile, case: &Case) -> Vec<String> {
    if case.profile().is_some() {
        let builtin = [left, right].into_iter().find(|server| server.is_builtin());
        return match builtin {
            Some(server) => refused(server, case).await,
            None => Vec::new(),
        };
    }
    let (one, two) = tokio::join!(run::run(left, case), run::run(right, case));
    let (one, two) = match (one, two) {
        (Ok(one), Ok(two)) => (one, two),
        (one, two) => {
            let failed = [(left, one.err()), (right, two.err())];
            let failed = failed.into_iter().filter_map(|(s, e)| Some((s, e?)));
            return failed.map(|(s, e)| format!("{}: {e:#}", s.label)).collect();
        }
    };
    let source = case.source.replace("$id", &case.id);
    let mut one = normal::normalise(one, &source);
    let mut two = normal::normalise(two, &source);
    if right.is_builtin() {
        profile.leave_out(&mut one);
        profile.leave_besides(&mut two);
        profile::leave_out_templates(&mut one);
        profile::leave_out_templates(&mut two);
    }
    if let Some(dir) = std::env::var_os("TOWLINE_API_TRANSCRIPTS") {
        let path = Path::new(&dir).join(format!("{}.txt", case.title().replace(['/', ' '], "_")));
        if let Err(error) = std::fs::write(&path, compare::transcript(&one)) {
            return vec![format!("failed to write {}: {error}", path.display())];
        }
    }
    differences(&one, &two, &left.label, &right.label)
}

/// A case of what is left out: the built-in server alone, against what the profile says.
async fn refused(server: &Server, case: &Case) -> Vec<String> {
    match run::run(server, case).await {
        Ok(transcript) => transcript
            .iter()
            .filter(|seen| seen.step.starts_with(run::UNEXPECTED))
            .map(|seen| format!("{}: {} {}", seen.step, seen.code, seen.body))
            .collect(),
        Err(error) => vec![format!("{}: {error:#}", server.label)],
    }
}
