//! The guides for users: every command in them is typed on the hub of the demo, and says what the guide says it does.
//!
//! A block of `yaml` whose first line is `# NAME.yaml` becomes that file. In a block of `console` a line behind `$` is
//! typed, and the lines below it are what is shown: their words are compared, and `…` stands for any. What only reads is
//! asked again until it says so.

use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::desk::Desk;
use crate::env::{
    Parts, Process, ProcessSpec, Run, Scratch, binary, left_out, repository, wait_for,
};

/// How long anything may take; the machine is shared.
const SOON: Duration = Duration::from_secs(150);
/// The guides, in the order in which they are tried on one hub.
const GUIDES: [&str; 8] = [
    "concepts",
    "propagate",
    "override",
    "dependencies",
    "coming-from",
    "tenants",
    "access",
    "troubleshoot",
];
/// Verbs that write nothing.
const READS: [&str; 7] = ["get", "status", "why", "events", "check", "plan", "auth"];

/// What a guide says to do.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A file and what is in it.
    File(String, String),
    /// A line that is typed, and what it shows.
    Line(String, Vec<String>),
}

/// The steps of a guide.
fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (kind, after) = after.split_once('\n').unwrap_or((after, ""));
        let (block, after) = after.split_once("\n```").unwrap_or((after, ""));
        match kind {
            "yaml" => {
                let name = block.lines().next().and_then(|it| it.strip_prefix("# "));
                let file = name.filter(|it| it.ends_with(".yaml"));
                steps.extend(file.map(|it| Step::File(it.to_owned(), block.to_owned())));
            }
            "console" => {
                for line in block.lines() {
                    match (line.strip_prefix("$ "), steps.last_mut()) {
                        (Some(typed), _) => steps.push(Step::Line(typed.to_owned(), Vec::new())),
                        (None, Some(Step::Line(_, shown))) if !line.trim().is_empty() => {
                            shown.push(line.to_owned());
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        rest = after;
    }
    steps
}

/// Whether words are as they are shown; `…` is any number of them.
fn fits(said: &[&str], shown: &[&str]) -> bool {
    match shown {
        [] => said.is_empty(),
        ["…", rest @ ..] => (0..=said.len()).any(|from| fits(&said[from..], rest)),
        [first, rest @ ..] => said
            .split_first()
            .is_some_and(|(word, said)| word == first && fits(said, rest)),
    }
}

/// The first line that is shown and was not said, in order.
fn missing<'a>(said: &str, shown: &'a [String]) -> Option<&'a String> {
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut lines = said.lines().map(words);
    shown.iter().find(|line| {
        let line: Vec<&str> = line.split_whitespace().collect();
        !lines.any(|it| fits(&it.iter().map(String::as_str).collect::<Vec<_>>(), &line))
    })
}

/// Where the guides are typed, and the hub's kubeconfig.
struct Guides {
    desk: Desk,
    kubeconfig: PathBuf,
}

impl Guides {
    fn new(folder: PathBuf, data: &Path, kubectl: &Path) -> Result<Self> {
        let desk = Desk::new(folder, kubectl)?;
        let folder = &desk.folder;
        symlink(repository().join("examples"), folder.join("examples"))?;
        for member in ["member1", "member2"] {
            let file = format!("{member}.kubeconfig");
            symlink(data.join(&file), folder.join(&file))?;
        }
        Ok(Self {
            desk,
            kubeconfig: data.join("hub/admin.kubeconfig"),
        })
    }

    async fn typed(&self, line: &str) -> Result<Run> {
        self.desk.typed(line, &self.kubeconfig, SOON).await
    }

    async fn follow(&self, guide: &str) -> Result<usize> {
        let file = repository().join(format!("docs/{guide}.md"));
        let text = fs::read_to_string(&file).with_context(|| format!("failed to read {guide}"))?;
        let mut typed = 0;
        for step in steps(&text) {
            match step {
                Step::File(name, content) => fs::write(self.desk.folder.join(name), content)?,
                Step::Line(line, shown) => {
                    self.holds(&line, &shown)
                        .await
                        .with_context(|| format!("{guide}: $ {line}"))?;
                    typed += 1;
                }
            }
        }
        Ok(typed)
    }

    async fn holds(&self, line: &str, shown: &[String]) -> Result<()> {
        let verb = line.split_whitespace().skip(1).find(|it| *it != "towline");
        let reads = verb.is_some_and(|it| READS.contains(&it));
        if !reads {
            return judged(&self.typed(line).await?, shown);
        }
        wait_for(line, SOON, async || {
            judged(&self.typed(line).await?, shown).map(|()| true)
        })
        .await
    }
}

/// Whether a command said what it is to say, and failed only where that is an error.
fn judged(run: &Run, shown: &[String]) -> Result<()> {
    let said = format!("{}{}", run.stdout, run.stderr);
    let missing = missing(&said, shown);
    ensure!(missing.is_none(), "no {missing:?} in {said}");
    // The codes of `towline why` and `towline plan` are answers.
    let answers = [0, 2, 7].contains(&run.code) && !shown.is_empty();
    let refused =
        |it: &String| it.to_lowercase().starts_with("error") || it.contains(" is invalid: ");
    let fails = shown.iter().any(refused);
    ensure!(run.code == 0 || answers || fails, "{said}");
    ensure!(run.code != 0 || !fails, "it was to fail: {said}");
    Ok(())
}

#[tokio::test]
async fn every_command_of_the_guides_says_what_they_say() -> Result<()> {
    let Some(kubectl) = Parts::from_env()?.any_kubectl() else {
        left_out("the guides for users", "there is no kubectl");
        return Ok(());
    };
    let scratch = Scratch::new("guides")?;
    let data = scratch.join("data");
    let spec = ProcessSpec::new("demo", &binary("towline")?, scratch.path());
    let mut demo = Process::start(spec.arg("demo").arg("--dir").arg(&data))?;
    wait_for("the demo", SOON, async || {
        demo.check()?;
        Ok(demo.log_text().contains("It stays up until Ctrl-C"))
    })
    .await?;
    let guides = Guides::new(scratch.join("desk"), &data, &kubectl)?;
    for guide in GUIDES {
        let typed = guides.follow(guide).await?;
        ensure!(typed > 3, "{guide} has {typed} commands");
    }
    demo.stop(SOON).await?;
    scratch.passed();
    Ok(())
}

#[test]
fn a_guide_is_read_as_it_is_meant() {
    let text = "# G\n\n```yaml\n# a.yaml\nkind: A\n```\n\n```console\n$ kubectl apply -f a.yaml\na/b created\n$ towline get a\n```\n";
    let line = |typed: &str, shown: &[&str]| {
        Step::Line(
            typed.to_owned(),
            shown.iter().map(|it| (*it).to_owned()).collect(),
        )
    };
    assert_eq!(
        steps(text),
        [
            Step::File("a.yaml".to_owned(), "# a.yaml\nkind: A".to_owned()),
            line("kubectl apply -f a.yaml", &["a/b created"]),
            line("towline get a", &[]),
        ]
    );
    let shown = ["NAME … AGE".to_owned(), "web 1 …".to_owned()];
    assert_eq!(missing("NAME READY AGE\nweb 1 3s\n", &shown), None);
    assert_eq!(missing("NAME READY AGE\nweb 2 3s\n", &shown), shown.last());
    assert_eq!(missing("web 1 3s\nNAME AGE\n", &shown), shown.last());
}
