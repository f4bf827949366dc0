//! Objects out of files, as kubectl takes them: documents of YAML or JSON, lists of objects, folders, and `-` for stdin.

use super::{CliError, Kind};
use crate::yaml;
use anyhow::{Context as _, anyhow};
use serde_json::Value;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// What the names of files in a folder end in.
const ENDINGS: [&str; 3] = ["json", "yaml", "yml"];

/// The objects of files, in the order in which they stand there; those of a folder by name.
pub(super) fn objects(paths: &[PathBuf]) -> Result<Vec<Value>, CliError> {
    let mut objects = Vec::new();
    for path in paths {
        for (name, text) in texts(path)? {
            let read = read(&text).with_context(|| format!("failed to read {name}"));
            objects.extend(read.map_err(|error| CliError::new(Kind::Config, error))?);
        }
    }
    if objects.is_empty() {
        return Err(CliError::message(Kind::Config, "no objects passed")
            .hint("-f FILE names a file, a folder, or - for stdin."));
    }
    Ok(objects)
}

fn texts(path: &Path) -> Result<Vec<(String, String)>, CliError> {
    let shown = |path: &Path| path.display().to_string();
    let failed = |path: &Path, error: std::io::Error| {
        let error = anyhow::Error::new(error).context(format!("failed to read {}", shown(path)));
        CliError::new(Kind::Config, error)
    };
    if path == Path::new("-") {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|error| failed(Path::new("stdin"), error))?;
        return Ok(vec![("stdin".to_owned(), text)]);
    }
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.map_err(|error| failed(path, error))?;
        paths = entries.into_iter().map(|entry| entry.path()).collect();
        paths.retain(|path| {
            let ending = path.extension().and_then(|ending| ending.to_str());
            ending.is_some_and(|ending| ENDINGS.contains(&ending))
        });
        paths.sort();
    }
    let texts = paths.into_iter().map(|path| {
        let text = fs::read_to_string(&path).map_err(|error| failed(&path, error))?;
        Ok((shown(&path), text))
    });
    texts.collect()
}

/// The objects of one text.
fn read(text: &str) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in yaml::documents(text).map_err(|error| anyhow!("it {error}"))? {
        match &document["items"] {
            _ if document.is_null() => {}
            Value::Array(items) if is_list(&document) => objects.extend(items.iter().cloned()),
            _ => objects.push(document),
        }
    }
    for object in &objects {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        for field in ["/apiVersion", "/kind", "/metadata/name"] {
            if text(field).is_none_or(str::is_empty) {
                let field = field.trim_start_matches('/').replace('/', ".");
                anyhow::bail!("an object has no {field}");
            }
        }
    }
    Ok(objects)
}

fn is_list(document: &Value) -> bool {
    let kind = document["kind"].as_str();
    kind.is_some_and(|kind| kind.ends_with("List"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_lists_and_folders_are_read_in_order() {
        let one =
            |name: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\n");
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let list = r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}}]}"#;
        fs::write(at("2.json"), list).expect("written");
        fs::write(at("1.yaml"), format!("---\n{}---\n{}", one("b"), one("c"))).expect("written");
        fs::write(at("notes.txt"), "no object").expect("written");
        let single = folder.path().join("single");
        fs::write(&single, one("a")).expect("written");
        let found = objects(&[single, folder.path().to_owned()]).expect("read");
        let names: Vec<_> = found
            .iter()
            .map(|it| it["metadata"]["name"].clone())
            .collect();
        assert_eq!(names, ["a", "b", "c", "d"]);
    }

    /// As to kubectl, or the hub refuses what kubectl takes.
    #[test]
    fn words_are_what_they_are_to_kubectl() {
        let text =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nmode: 0644\non: off\nname: 'off'\n";
        let found = read(text).expect("read");
        assert_eq!(found[0]["mode"], 420);
        assert_eq!(found[0]["on"], false);
        assert_eq!(found[0]["name"], "off");
    }

    #[test]
    fn what_is_no_object_is_said() {
        for (text, said) in [
            ("a: [", "it is no YAML: "),
            ("kind: ConfigMap", "an object has no apiVersion"),
            (
                "{apiVersion: v1, kind: ConfigMap, metadata: {}}",
                "an object has no metadata.name",
            ),
        ] {
            let error = format!("{:#}", read(text).expect_err("refused"));
            assert!(error.contains(said), "{error}");
        }
        let none = objects(&[]).expect_err("refused");
        assert!(none.to_string().contains("no objects passed"), "{none}");
    }
}
