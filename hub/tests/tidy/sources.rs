//! The sources of the workspace, and what of them ships.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("hub lies in the workspace")
        .to_owned()
}

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Every file of ours, by its path from the root, sorted.
pub(crate) fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut files = Vec::new();
    for dir in ["common", "hub", "agent", "e2e"] {
        rust_files(&root.join(dir), &mut files);
    }
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let text = fs::read_to_string(&path).expect("source is readable");
            let name = path
                .strip_prefix(&root)
                .expect("under the root")
                .display()
                .to_string();
            (name, text)
        })
        .collect()
}

/// The code of a file that ships: without comments, and without items that only tests have. Lines keep their
/// numbers.
pub(crate) fn shipped(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut skipped: Option<Skipped<'_>> = None;
    for line in text.lines() {
        match &mut skipped {
            Some(item) => {
                if item.ends_with(line) {
                    skipped = None;
                }
            }
            None if line.trim_start().starts_with("#[cfg(test)]") => {
                skipped = Some(Skipped::at(line));
            }
            None => code.push_str(line.split("//").next().unwrap_or(line)),
        }
        code.push('\n');
    }
    code
}

/// An item that does not ship, as `rustfmt` lays it out: it ends on a line that is indented like its first one.
struct Skipped<'a> {
    indent: &'a str,
    begun: bool,
}

impl<'a> Skipped<'a> {
    fn at(line: &'a str) -> Self {
        let rest = line.trim_start();
        Self {
            indent: &line[..line.len() - rest.len()],
            begun: false,
        }
    }

    fn ends_with(&mut self, line: &str) -> bool {
        let Some(rest) = line.strip_prefix(self.indent) else {
            return false;
        };
        if rest.starts_with([' ', '#']) || rest.is_empty() {
            return false;
        }
        if self.begun {
            return rest.starts_with(['}', ')', ']']) && !rest.ends_with('{');
        }
        self.begun = true;
        rest.ends_with([';', ',', '}'])
    }
}

#[test]
fn what_only_tests_have_does_not_ship() {
    let text = "use a::b; // c\n#[cfg(test)]\nmod testing;\nfn d() {}\n#[cfg(test)]\n#[path = \"x\"]\nmod tests {\n    \
                fn e() {\n    }\n}\nfn f() {\n    #[cfg(test)]\n    g(\n        1,\n    );\n    h();\n}\n";
    let code = shipped(text);
    assert_eq!(code.lines().count(), text.lines().count());
    let kept: Vec<&str> = code.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        kept,
        ["use a::b; ", "fn d() {}", "fn f() {", "    h();", "}"]
    );
}
