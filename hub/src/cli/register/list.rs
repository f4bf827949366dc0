//! Flags that list names: those of an installation, and what a flag makes of them.
//!
//! Pure.

use crate::cli::{CliError, Kind};

/// Alone, it stands for nobody.
const NONE: &str = "none";
/// Before a name: besides those that are installed.
pub(super) const BESIDE: char = '+';

/// The names of a flag, else those that are installed; sorted, each once.
pub(super) fn names(
    flag: &str,
    given: Option<Vec<String>>,
    installed: Vec<String>,
) -> Result<Vec<String>, CliError> {
    let mut names = match given {
        None => installed,
        Some(given) if given == [NONE] => Vec::new(),
        Some(given) => {
            let beside: Vec<&str> = given
                .iter()
                .filter_map(|it| it.strip_prefix(BESIDE))
                .collect();
            match beside.len() {
                0 => given,
                count if count == given.len() => {
                    let more = beside.into_iter().map(str::to_owned);
                    installed.into_iter().chain(more).collect()
                }
                _ => {
                    let message =
                        format!("{flag}: either every name has a {BESIDE} before it, or none");
                    return Err(CliError::message(Kind::Usage, message).hint(
                        "With it names come to those that are installed, without it they replace them.",
                    ));
                }
            }
        }
    };
    names.sort();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::names;
    use crate::cli::Kind;

    #[test]
    fn names_replace_what_is_installed_or_come_to_it() {
        let installed = || vec!["bob".to_owned(), "ann".to_owned()];
        let of = |given: Option<&[&str]>| {
            let given = given.map(|it| it.iter().map(|it| (*it).to_owned()).collect());
            names("--x", given, installed())
        };
        for (given, want) in [
            (None, &["ann", "bob"][..]),
            (Some(&["none"][..]), &[]),
            (Some(&["carl", "carl"]), &["carl"]),
            (Some(&["+carl", "+ann"]), &["ann", "bob", "carl"]),
        ] {
            assert_eq!(of(given).expect("valid"), want, "{given:?}");
        }
        let error = of(Some(&["+carl", "dora"])).expect_err("mixed");
        assert_eq!(error.kind, Kind::Usage);
    }
}
