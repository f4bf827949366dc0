//! `docs/hub-profile.md`, read: which rows it has, and which resources are left out.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

use super::run::Transcript;
use super::script::Case;
use crate::env::repository;

/// What the profile leaves out.
pub(crate) struct Profile {
    rows: BTreeSet<String>,
    resources: BTreeMap<String, BTreeSet<String>>,
    groups: BTreeSet<String>,
    besides: BTreeSet<String>,
}

impl Profile {
    /// Reads the page.
    pub(crate) fn read() -> Result<Self> {
        let path = repository().join("docs/hub-profile.md");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let mut profile = Self {
            rows: BTreeSet::new(),
            resources: BTreeMap::new(),
            groups: BTreeSet::new(),
            besides: BTreeSet::new(),
        };
        let besides = text
            .lines()
            .filter(|line| line.starts_with("The kinds of a hub"));
        for word in besides.flat_map(|line| line.split('`').skip(1).step_by(2)) {
            profile.besides.insert(word.to_owned());
        }
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let row = cells.get(1).unwrap_or(&"").trim_matches('`');
            profile.rows.insert(row.to_owned());
            let version = cells.get(2).unwrap_or(&"");
            if cells.len() == 4 && version.starts_with('`') && version.ends_with('`') {
                profile.groups.insert(version.trim_matches('`').to_owned());
            } else if version.starts_with('`') && version.ends_with('`') {
                let names = cells.get(3).unwrap_or(&"").split_whitespace();
                let names = names.map(|name| name.trim_matches('`').to_owned());
                let version = version.trim_matches('`').to_owned();
                profile.resources.entry(version).or_default().extend(names);
            }
        }
        Ok(profile)
    }

    /// Every row has a case that proves it, and every such case a row.
    pub(crate) fn fits(&self, cases: &[Case]) -> Result<()> {
        let proved: BTreeSet<&str> = cases.iter().filter_map(Case::profile).collect();
        let rows: BTreeSet<&str> = self.rows.iter().map(String::as_str).collect();
        ensure!(
            proved == rows,
            "docs/hub-profile.md has the rows {rows:?}, profile.http proves {proved:?}"
        );
        Ok(())
    }

    /// Takes the reference's own texts (row `prose`) from what `kubectl explain` printed.
    pub(crate) fn leave_out_prose(&self, transcript: &mut Transcript) {
        let explained = transcript
            .iter_mut()
            .filter(|seen| seen.step.starts_with("kubectl explain "));
        for seen in explained {
            let Some(lines) = seen.body["stdout"].as_array_mut() else {
                continue;
            };
            let at = |lines: &[Value], text: &str| lines.iter().position(|line| line == text);
            if let (Some(from), Some(to)) = (at(lines, "DESCRIPTION:"), at(lines, "FIELDS:")) {
                lines.drain(from + 1..to.max(from + 1));
            }
        }
    }

    /// Takes the groups that are there besides from the lists of the built-in server, and the rights on them
    /// from what its roles gather.
    pub(crate) fn leave_besides(&self, transcript: &mut Transcript) {
        for seen in transcript {
            without_groups(&mut seen.body, &self.besides);
            if seen.body["kind"] == "ClusterRole"
                && let Some(rules) = seen.body["rules"].as_array_mut()
            {
                rules.retain(|rule| !self.is_besides(rule));
            }
        }
    }

    /// Whether a rule gives rights on kinds of a hub alone.
    fn is_besides(&self, rule: &Value) -> bool {
        let groups = rule["apiGroups"].as_array();
        groups.is_some_and(|groups| {
            let mut groups = groups.iter().filter_map(Value::as_str);
            groups.all(|group| self.besides.contains(group))
        })
    }

    /// Takes groups and resources that are left out from the lists of a real server, in either form.
    pub(crate) fn leave_out(&self, transcript: &mut Transcript) {
        for seen in transcript {
            without_pictures(&mut seen.body);
            if seen.body.get("openapi").is_some() {
                without_protobuf(&mut seen.body);
            }
            without_groups(&mut seen.body, &self.groups);
            for group in list(&mut seen.body, "items") {
                let name = group["metadata"]["name"].as_str();
                let name = name.map(|name| format!("{name}/")).unwrap_or_default();
                for version in list(group, "versions") {
                    let of = format!("{name}{}", version["version"].as_str().unwrap_or_default());
                    if let Some(names) = self.resources.get(&of) {
                        aggregated(names, version);
                    }
                }
            }
            let version = seen.body["groupVersion"].as_str().unwrap_or_default();
            let Some(names) = self.resources.get(version) else {
                continue;
            };
            let left_out = |resource: &Value| {
                let name = resource["name"].as_str();
                name.is_some_and(|name| names.contains(name))
            };
            if let Some(resources) = seen.body["resources"].as_array_mut() {
                resources.retain(|resource| !left_out(resource));
            }
        }
    }
}

/// Takes from messages the lines in which a real server shows its own types before and after a change.
fn without_pictures(value: &mut Value) {
    match value {
        Value::String(text) => {
            let picture = text.split_once("\n@@ -");
            if let Some((said, picture)) = picture.map(|(a, b)| (a.to_owned(), b)) {
                let closed = picture.ends_with(']') && said.contains(": [");
                // What else is wrong follows the picture.
                let rest = picture.rsplit('\n').next().unwrap_or_default();
                *text = match closed {
                    true if rest.starts_with(", ") => said + rest,
                    true => said + "]",
                    false => said,
                };
            }
        }
        Value::Array(list) => list.iter_mut().for_each(without_pictures),
        Value::Object(fields) => fields.values_mut().for_each(without_pictures),
        _ => {}
    }
}

/// Takes the template of a Job out of what is said when it may not change (row `prose`): a real server
/// quotes its own type, which no client reads.
pub(crate) fn leave_out_templates(transcript: &mut Transcript) {
    for seen in transcript {
        without_templates(&mut seen.body);
    }
}

fn without_templates(value: &mut Value) {
    match value {
        Value::String(text) => {
            let begins = "Invalid value: {";
            let parts = text.split_once(begins);
            let parts = parts.and_then(|(said, rest)| {
                let (template, rest) = rest.split_once("}: field is immutable")?;
                let whole = template.to_lowercase().contains("\"containers\":[");
                whole.then(|| format!("{said}{begins}…}}: field is immutable{rest}"))
            });
            if let Some(shown) = parts {
                *text = shown;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(without_templates),
        Value::Object(fields) => fields.values_mut().for_each(without_templates),
        _ => {}
    }
}

/// Takes answers in protobuf (row `protobuf-answers`) from what a document says of operations.
fn without_protobuf(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(without_protobuf),
        Value::Object(fields) => {
            fields.retain(|key, _| !key.starts_with("application/vnd.kubernetes.protobuf"));
            fields.values_mut().for_each(without_protobuf);
        }
        _ => {}
    }
}

/// Takes groups from a list of groups, or of documents about them.
fn without_groups(body: &mut Value, names: &BTreeSet<String>) {
    if let Some(paths) = body.get_mut("paths").and_then(Value::as_object_mut) {
        paths.retain(|path, _| {
            let group = path.strip_prefix("apis/").unwrap_or_default();
            let group = group.split('/').next().unwrap_or_default();
            !names.contains(group)
        });
    }
    if let Some(groups) = body.get_mut("groups").and_then(Value::as_array_mut) {
        let named = |group: &Value| group["name"].as_str().is_some_and(|n| names.contains(n));
        groups.retain(|group| !named(group));
    }
    if body["kind"] == "APIGroupDiscoveryList"
        && let Some(groups) = body["items"].as_array_mut()
    {
        let name = |group: &Value| group["metadata"]["name"].as_str().map(str::to_owned);
        groups.retain(|group| name(group).is_none_or(|name| !names.contains(&name)));
    }
}

/// The values of a list; of something else none.
fn list<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    let found = value.get_mut(key).and_then(Value::as_array_mut);
    found.into_iter().flatten()
}

/// Takes resources and subresources from a version in the aggregated form.
fn aggregated(names: &BTreeSet<String>, version: &mut Value) {
    let Some(resources) = version.get_mut("resources").and_then(Value::as_array_mut) else {
        return;
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    resources.retain(|resource| !names.contains(&text(&resource["resource"])));
    for resource in resources {
        let plural = text(&resource["resource"]);
        let below = resource.get_mut("subresources");
        let Some(below) = below.and_then(Value::as_array_mut) else {
            continue;
        };
        below.retain(|one| !names.contains(&format!("{plural}/{}", text(&one["subresource"]))));
        // Where none is left, none was there.
        if below.is_empty()
            && let Some(resource) = resource.as_object_mut()
        {
            resource.remove("subresources");
        }
    }
}
