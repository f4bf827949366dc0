//! Rows of many members under one heading, each as wide as those that came before. Pure.

use super::target::Target;
use crate::cli::Table;
use common::harmless;
use common::labels::{MANAGED, MANAGED_VALUE};
use common::mapper::Resource;
use common::names::is_dns_label;
use serde_json::Value;

/// Characters of a heading.
const HEADING: usize = 40;
/// What stands where a server has nothing to say.
const NONE: &str = "<none>";

/// How much is shown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct View {
    /// Every column that a server has.
    pub(super) wide: bool,
    /// Whether objects of several namespaces are shown.
    pub(super) namespaces: bool,
}

/// An object of a member, as its API server shows it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    cluster: String,
    namespace: String,
    name: String,
    /// By the name of its column.
    cells: Vec<(String, String)>,
    adopted: &'static str,
}

/// The rows of one answer.
pub(super) fn read(target: &Target, table: &Value) -> Vec<Row> {
    let columns: Vec<&str> = columns(table).map(name).collect();
    let rows = table["rows"].as_array().into_iter().flatten();
    let row = |row: &Value| {
        let metadata = &row["object"]["metadata"];
        let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
        let cells = row["cells"].as_array().into_iter().flatten().map(cell);
        let columns = columns.iter().map(|it| (*it).to_owned());
        let managed = metadata["labels"][MANAGED] == MANAGED_VALUE;
        Row {
            cluster: target.cluster.clone(),
            namespace: text("namespace"),
            name: text("name"),
            cells: columns.zip(cells).collect(),
            adopted: target.adopted(managed),
        }
    };
    rows.map(row).collect()
}

/// Whether a text is one word that can stand in a path: a member can write lines, flags and more.
fn is_word(text: &str) -> bool {
    let segment = !matches!(text, "" | "." | "..") && !text.contains(['/', '%', ' ']);
    segment && harmless::line(text, text.len()) == text
}

/// A line for each, of words that `towline logs`, `describe` and the like take; none where a member has other words.
pub(super) fn names(rows: &[Row], resource: &Resource) -> Option<String> {
    let kind = resource.qualified();
    let place = |row: &Row| row.namespace.is_empty() || is_dns_label(&row.namespace);
    let plain = |row: &Row| is_word(&row.name) && place(row);
    if !is_word(&kind) || !rows.iter().all(plain) {
        return None;
    }
    let line = |row: &Row| {
        let namespace = match row.namespace.as_str() {
            "" => String::new(),
            namespace => format!("-n {namespace} "),
        };
        let cluster = &row.cluster;
        format!("-C {cluster} {namespace}{kind}/{}", row.name)
    };
    Some(rows.iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn columns(table: &Value) -> impl Iterator<Item = &Value> {
    table["columnDefinitions"].as_array().into_iter().flatten()
}

fn name(column: &Value) -> &str {
    column["name"].as_str().unwrap_or_default()
}

fn cell(cell: &Value) -> String {
    match cell {
        Value::Null => NONE.to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What was shown so far.
#[derive(Debug)]
pub(super) struct Rows {
    view: View,
    /// The kind's own columns but its name, as the first answer had them.
    columns: Vec<String>,
    widths: Vec<usize>,
}

impl Rows {
    pub(super) fn new(view: View) -> Self {
        Self {
            view,
            columns: Vec::new(),
            widths: Vec::new(),
        }
    }

    /// The rows of one more answer, the first ones with headings.
    pub(super) fn add(&mut self, answer: &Value, rows: Vec<Row>) -> Table {
        let first = self.widths.is_empty();
        if first {
            let shown = |it: &&Value| self.view.wide || it["priority"].as_i64().unwrap_or(0) == 0;
            let own = columns(answer).filter(shown).map(name);
            let own = own.filter(|it| !it.eq_ignore_ascii_case("name"));
            self.columns = own.map(str::to_owned).collect();
        }
        // The names of columns are a member's own words too.
        let heading = |it: &String| harmless::line(&it.to_uppercase(), HEADING);
        let upper: Vec<String> = self.columns.iter().map(heading).collect();
        let mut headings = vec!["NAME", "CLUSTER"];
        if self.view.namespaces {
            headings.insert(0, "NAMESPACE");
        }
        headings.extend(upper.iter().map(String::as_str));
        headings.push("ADOPTION");
        let mut table = Table::of(headings);
        for row in rows {
            table.push(self.cells(row));
        }
        let table = table.at_least(&self.widths);
        self.widths = table.widths();
        match first {
            true => table,
            false => table.without_headings(),
        }
    }

    fn cells(&self, row: Row) -> Vec<String> {
        let mut cells = vec![row.name, row.cluster];
        if self.view.namespaces {
            cells.insert(0, row.namespace);
        }
        // A member of another version may have other columns.
        for column in &self.columns {
            let found = row.cells.iter().find(|(name, _)| name == column);
            cells.push(found.map_or_else(|| NONE.to_owned(), |it| it.1.clone()));
        }
        cells.push(row.adopted.to_owned());
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::super::target::tests::deployments;
    use super::*;
    use crate::cli::kubeconfig::Way;
    use serde_json::json;

    fn answer(columns: &[(&str, i64)], rows: &[(&str, Option<&str>, &[Value])]) -> Value {
        let column = |(name, priority): &(&str, i64)| json!({"name": name, "priority": priority});
        let row = |(name, label, cells): &(&str, Option<&str>, &[Value])| {
            let labels = label.map(|value| json!({MANAGED: value}));
            json!({"cells": cells, "object": {"metadata": {"name": name, "namespace": "shop", "labels": labels}}})
        };
        json!({
            "columnDefinitions": columns.iter().map(column).collect::<Vec<_>>(),
            "rows": rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    fn shown(rows: &mut Rows, cluster: &str, answer: &Value) -> String {
        let target = Target::member(Way::OfClusters, cluster, deployments("v1"));
        let read = read(&target, answer);
        rows.add(answer, read).to_string()
    }

    #[test]
    fn members_stand_under_one_heading() {
        let columns = [("Name", 0), ("Ready", 0), ("Age", 0), ("Images", 1)];
        let mine = Some(MANAGED_VALUE);
        let first = answer(
            &columns,
            &[(
                "web",
                mine,
                &[json!("web"), json!("2/2"), json!("3m"), json!("nginx")],
            )],
        );
        let second = answer(
            &columns[..2],
            &[
                ("a", None, &[json!("a"), json!(1)]),
                ("b", Some("no"), &[json!("b"), Value::Null]),
            ],
        );
        let mut rows = Rows::new(View::default());
        assert_eq!(
            shown(&mut rows, "member1", &first),
            "NAME   CLUSTER   READY   AGE   ADOPTION\n\
             web    member1   2/2     3m    Y\n"
        );
        assert_eq!(
            shown(&mut rows, "m2", &second),
            "a      m2        1        <none>   N\n\
             b      m2        <none>   <none>   N\n"
        );
        let mut wide = Rows::new(View {
            wide: true,
            namespaces: true,
        });
        assert_eq!(
            shown(&mut wide, "member1", &first),
            "NAMESPACE   NAME   CLUSTER   READY   AGE   IMAGES   ADOPTION\n\
             shop        web    member1   2/2     3m    nginx    Y\n"
        );
    }

    #[test]
    fn what_a_member_writes_stays_in_its_cell() {
        let odd = answer(
            &[("Name", 0), ("State\nX", 0)],
            &[("web", None, &[json!("web"), json!("up\n\u{1b}[2Jm9   ok")])],
        );
        let text = shown(&mut Rows::new(View::default()), "m1", &odd);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        for empty in [json!({}), json!({"rows": [{}, 7]}), json!([])] {
            let target = Target::member(Way::OfClusters, "m1", deployments("v1"));
            let rows = read(&target, &empty);
            assert!(rows.iter().all(|row| row.name.is_empty()), "{empty}");
        }
    }

    #[test]
    fn names_are_what_other_verbs_take() {
        let target = Target::member(Way::OfClusters, "m1", deployments("v1"));
        let found = answer(&[("Name", 0)], &[("web", None, &[json!("web")])]);
        let rows = read(&target, &found);
        let names = names(&rows, &deployments("v1"));
        assert_eq!(names.as_deref(), Some("-C m1 -n shop deployments.apps/web"));
    }

    #[test]
    fn names_that_are_no_words_are_not_written() {
        let with = |namespace: &str, name: &str| {
            let row = Row {
                cluster: "m1".into(),
                namespace: namespace.into(),
                name: name.into(),
                cells: Vec::new(),
                adopted: "N",
            };
            names(&[row], &deployments("v1"))
        };
        for name in ["web", "system:node", "a.b-c", "Ünder"] {
            assert!(with("", name).is_some(), "{name}");
        }
        for name in [
            "",
            "..",
            "a/b",
            "a%2fb",
            "a b",
            "a\n-C m2 secrets/b",
            "a\tb",
            "a\u{1b}[2J",
            "a\u{202e}b",
        ] {
            assert_eq!(with("shop", name), None, "{name:?}");
        }
        let mut kind = deployments("v1");
        kind.plural = "a\nb".into();
        assert_eq!(names(&[], &kind), None);
        for namespace in ["shop --all", "a\nb", "-A", "Shop"] {
            assert_eq!(with(namespace, "web"), None, "{namespace:?}");
        }
    }
}
