//! `towline completion` and `towline man`: what shells and man know of the command line, made of its own definition.

use super::{CliError, Kind, Output};
use anyhow::Context as _;
use clap::Command;
use clap_complete::Shell;
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments of `towline completion`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(towline completion bash)
  towline completion zsh > \"${fpath[1]}/_towline\"
  towline completion fish > ~/.config/fish/completions/towline.fish")]
pub(super) struct CompletionArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

/// Arguments of `towline man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  towline man | man -l -                     the page of the program
  towline man --dir ~/.local/share/man/man1  a page for every verb")]
pub(super) struct ManArgs {
    /// Write a page for every verb into this folder.
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Prints what a shell completes.
pub(super) fn completion(
    args: &CompletionArgs,
    mut command: Command,
    output: &Output,
) -> Result<(), CliError> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "towline", &mut text);
    output.print(String::from_utf8_lossy(&text))
}

/// Prints a page, or writes all of them.
pub(super) fn man(args: &ManArgs, command: Command, output: &Output) -> Result<(), CliError> {
    let Some(dir) = &args.dir else {
        return output.print(page(command)?);
    };
    let pages = pages(command)?;
    let written = write(dir, &pages);
    written.map_err(|error| CliError::new(Kind::Config, error))?;
    output.note(format!(
        "{} pages written to {}",
        pages.len(),
        dir.display()
    ));
    Ok(())
}

fn write(dir: &Path, pages: &[(String, String)]) -> anyhow::Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("failed to create {}", dir.display()))?;
    for (name, page) in pages {
        let path = dir.join(format!("{name}.1"));
        fs::write(&path, page).with_context(|| format!("failed to write {}", path.display()))?;
    }
    Ok(())
}

/// A page for a program and for every verb below it, each with its name.
fn pages(mut program: Command) -> Result<Vec<(String, String)>, CliError> {
    // Names verbs by all words that lead to them.
    program.build();
    let mut pages = Vec::new();
    let mut commands = vec![&program];
    while let Some(command) = commands.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name());
        pages.push((name.to_owned(), page(command.clone())?));
        let below = command.get_subcommands();
        commands.extend(below.filter(|it| !it.is_hide_set() && it.get_name() != "help"));
    }
    Ok(pages)
}

fn page(command: Command) -> Result<String, CliError> {
    let mut text = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut text);
    rendered.map_err(|error| CliError::new(Kind::Internal, error))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;
    use clap::ValueEnum as _;

    #[test]
    fn every_shell_completes_every_verb() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command(), "towline", &mut text);
            let text = String::from_utf8(text).expect("UTF-8");
            for verb in command().get_subcommands().filter(|it| !it.is_hide_set()) {
                assert!(
                    text.contains(verb.get_name()),
                    "{shell}: {}",
                    verb.get_name()
                );
            }
            assert!(text.contains("kubeconfig"), "{shell}");
        }
        assert!(Shell::from_str("bash", true).is_ok());
    }

    #[test]
    fn every_verb_has_a_page() {
        let pages = pages(command()).expect("pages");
        let names: Vec<&str> = pages.iter().map(|it| it.0.as_str()).collect();
        for name in [
            "towline",
            "towline-plan",
            "towline-token-create",
            "towline-work-create",
        ] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        assert!(
            !names.iter().any(|it| it.contains("demo-agent")),
            "{names:?}"
        );
        let plan = pages
            .iter()
            .find(|it| it.0 == "towline-plan")
            .expect("a page");
        assert!(plan.1.contains("Exit code: 0"), "{}", plan.1);
    }
}
