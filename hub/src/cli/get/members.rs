//! Objects as they are in members, asked through the tunnels of their agents: many members at once, rows as they come,
//! and by name whoever did not answer.

mod ask;
mod question;
mod rows;
mod target;

use super::names::Asked;
use super::read::{Hub, Scope, pages};
use super::{Args, Reach, Shape};
use crate::cli::clusters::{is_forbidden, unread};
use crate::cli::kubeconfig::{Way, way};
use crate::cli::{CliError, Kind, Output, Progress};
use ask::{Answered, Failure};
use common::errors::chain;
use common::harmless;
use common::mapper::Resource;
use common::names::ClusterName;
use futures::{StreamExt as _, stream};
use kube::api::Api;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use question::Question;
use rows::{Rows, View};
use serde_json::{Value, json};
use target::{Member, Target};

/// Members that are asked at the same time.
const AT_ONCE: usize = 32;
/// Names in a line that says who is left out.
const NAMED: usize = 8;
/// Characters of what a member says when it refuses.
const SAID: usize = 400;

/// Shows what was asked for, of each member that it is asked of.
pub(super) async fn run(
    hub: &Hub,
    asked: &Asked,
    args: &Args,
    namespace: &str,
    output: &Output,
) -> Result<(), CliError> {
    if args.watch {
        let message = "-w shows what changes on the hub, not in members";
        return Err(CliError::message(Kind::Usage, message).hint(
            "`towline kubeconfig -C CLUSTER -o FILE` makes a kubeconfig for `kubectl get -w`.",
        ));
    }
    let members = members(hub, args).await?;
    let Some(first) = members.first() else {
        return Err(CliError::message(Kind::NotFound, "the hub has no cluster")
            .hint("Register one: `towline token create --print-register-command`."));
    };
    let way = way(&hub.client(), &first.name).await?;
    let mut end = End::default();
    let mut items = Vec::new();
    for (place, (word, name)) in asked.each().into_iter().enumerate() {
        let resource = resource(hub, way, &members, word).await?;
        let question = Question {
            resource: &resource,
            namespace: (resource.namespaced && !args.all_namespaces).then_some(namespace),
            name,
            selector: args.selector.as_deref(),
            whole: matches!(args.output, Shape::Json | Shape::Yaml),
        };
        if place > 0 && matches!(args.output, Shape::Table | Shape::Wide) {
            output.print("")?;
        }
        let mut targets = target::of(&members, way, &resource);
        say_left_out(&members, &targets, &resource, output);
        if args.operation_scope == Some(Reach::All) {
            targets.insert(0, Target::hub(&resource));
        }
        let shown = Shown {
            output,
            args,
            rows: Rows::new(View {
                wide: args.output == Shape::Wide,
                namespaces: args.all_namespaces && resource.namespaced,
            }),
            progress: Some(output.progress(format!("asking {} clusters", targets.len()))),
            items: Vec::new(),
            found: 0,
        };
        let shown = shown.all(hub, &question, targets, &mut end).await?;
        if name.is_some() && shown.found == 0 && end.failed == 0 {
            let message = format!("{} is in none of the clusters", question.shown());
            return Err(CliError::message(Kind::NotFound, message)
                .hint("-n NAMESPACE looks elsewhere; --all asks every cluster."));
        }
        end.found += shown.found;
        items.extend(shown.items);
    }
    match args.output {
        Shape::Json | Shape::Yaml => {
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
            output.print_value(args.output.format(), &list)?;
        }
        Shape::Table | Shape::Wide | Shape::Name if end.found == 0 && end.failed == 0 => {
            output.note(format!("nothing was found in {}", clusters(members.len())));
        }
        Shape::Table | Shape::Wide | Shape::Name => {}
    }
    end.told()
}

/// The clusters that are meant, with what each serves.
async fn members(hub: &Hub, args: &Args) -> Result<Vec<Member>, CliError> {
    let gvk = GroupVersionKind::gvk("cluster.karmada.io", "v1alpha1", "Cluster");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "clusters");
    let clusters = Api::<DynamicObject>::all_with(hub.client(), &resource);
    let listed = match pages(&clusters, &Scope::default()).await {
        // Whoever may not list them may perhaps read those that they name.
        Err(error) if is_forbidden(&error) && !args.clusters.is_empty() => {
            let mut read = Vec::new();
            for name in &args.clusters {
                let found = clusters.get_opt(name.as_str()).await;
                read.extend(found.map_err(|error| unread(name, error))?);
            }
            read
        }
        listed => listed.map_err(|error| CliError::api("failed to list the clusters", error))?,
    };
    let all: Vec<Member> = listed.iter().filter_map(Member::of).collect();
    let known = |name: &&ClusterName| all.iter().any(|it| it.name == name.as_str());
    if let Some(missing) = args.clusters.iter().find(|name| !known(name)) {
        let message = format!("the hub has no cluster {:?}", missing.as_str());
        return Err(CliError::message(Kind::NotFound, message)
            .hint("`kubectl get clusters` lists those there are."));
    }
    let meant = |it: &Member| {
        args.clusters.is_empty() || args.clusters.iter().any(|name| name.as_str() == it.name)
    };
    Ok(all.into_iter().filter(meant).collect())
}

/// What a word means: on the hub, or in the first member that says it serves something of that name.
async fn resource(
    hub: &Hub,
    way: Way,
    members: &[Member],
    word: &str,
) -> Result<Resource, CliError> {
    let unknown = match hub.resolve(word) {
        Err(unknown) => unknown,
        known => return known,
    };
    let Some((member, said)) = target::first(members, word) else {
        return Err(unknown.hint("No member says that it serves it, either."));
    };
    ask::described(&hub.client(), way, member, said).await
}

fn say_left_out(members: &[Member], targets: &[Target], resource: &Resource, output: &Output) {
    let asked = |it: &&Member| targets.iter().any(|target| target.cluster == it.name);
    let without: Vec<&str> = members
        .iter()
        .filter(|it| !asked(it))
        .map(|it| it.name.as_str())
        .collect();
    let (named, more) = without.split_at(NAMED.min(without.len()));
    let more = match more.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    if !named.is_empty() {
        let kind = resource.qualified();
        output.note(format!(
            "not served, and not asked for {kind}: {}{more}",
            named.join(", ")
        ));
    }
}

fn clusters(count: usize) -> String {
    match count {
        1 => "1 cluster".to_owned(),
        count => format!("{count} clusters"),
    }
}

/// How the answers to one question are shown.
struct Shown<'a> {
    output: &'a Output,
    args: &'a Args,
    rows: Rows,
    progress: Option<Progress>,
    /// Whole objects, where these are asked for.
    items: Vec<Value>,
    found: usize,
}

impl Shown<'_> {
    async fn all(
        mut self,
        hub: &Hub,
        question: &Question<'_>,
        targets: Vec<Target>,
        end: &mut End,
    ) -> Result<Self, CliError> {
        let within = self.args.cluster_timeout;
        let asked = targets.into_iter().map(|target| {
            let client = hub.client();
            async move {
                let answer = ask::ask(&client, question, &target, within).await;
                (target, answer)
            }
        });
        let mut answers = stream::iter(asked).buffer_unordered(AT_ONCE);
        let mut by_cluster = Vec::new();
        while let Some((target, answer)) = answers.next().await {
            end.asked += 1;
            match answer {
                Ok(Answered::Items(found)) => {
                    self.found += found.len();
                    by_cluster.push((target, found));
                }
                Ok(Answered::Table(table)) => self.table(question, &target, &table, end)?,
                Err(failure) => self.fail(&target, &failure, end),
            }
        }
        drop(answers);
        by_cluster.sort_by(|(one, _), (other, _)| one.cluster.cmp(&other.cluster));
        for (target, found) in by_cluster {
            let marked = found.into_iter().map(|item| target.marked(item));
            self.items.extend(marked);
        }
        Ok(self)
    }

    fn fail(&mut self, target: &Target, failure: &Failure, end: &mut End) {
        self.progress = None;
        end.fail(target, failure, self.output);
    }

    fn table(
        &mut self,
        question: &Question<'_>,
        target: &Target,
        table: &Value,
        end: &mut End,
    ) -> Result<(), CliError> {
        let rows = rows::read(target, table);
        if rows.is_empty() {
            return Ok(());
        }
        if self.args.output == Shape::Name {
            let Some(names) = rows::names(&rows, question.resource) else {
                self.fail(target, &Failure::Named, end);
                return Ok(());
            };
            self.progress = None;
            self.found += rows.len();
            return self.output.print(names);
        }
        self.progress = None;
        self.found += rows.len();
        let table = self.rows.add(table, rows);
        let table = table.coloured(self.output.colours());
        self.output.print(table.within(self.output.width()))
    }
}

/// What there is to say at the end.
#[derive(Debug, Default)]
struct End {
    asked: usize,
    found: usize,
    failed: usize,
    refused: usize,
}

impl End {
    fn fail(&mut self, target: &Target, failure: &Failure, output: &Output) {
        self.failed += 1;
        self.refused += usize::from(failure.is_refusal());
        let why = harmless::line(&chain(failure).to_string(), SAID);
        output.note(format!("{}: {why}", target.cluster));
    }

    fn told(self) -> Result<(), CliError> {
        if self.failed == 0 {
            return Ok(());
        }
        let kind = match self.refused == self.failed {
            true => Kind::Denied,
            false => Kind::Unavailable,
        };
        let asked = clusters(self.asked);
        let message = match self.asked.saturating_sub(self.failed) {
            0 if self.asked == 1 => "the cluster did not answer".to_owned(),
            0 => format!("none of {asked} answered"),
            _ => format!(
                "{} of {asked} did not answer; what is shown is of the others",
                self.failed
            ),
        };
        Err(CliError::message(kind, message).hint("`towline check NAME` walks to one of them."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_how_many_answered() {
        for (asked, failed, said) in [
            (1, 1, "the cluster did not answer"),
            (2, 2, "none of 2 clusters answered"),
            (
                2,
                1,
                "1 of 2 clusters did not answer; what is shown is of the others",
            ),
        ] {
            let end = End {
                asked,
                failed,
                ..End::default()
            };
            let error = end.told().expect_err("not all answered");
            assert_eq!(error.source.to_string(), said);
        }
        assert!(End::default().told().is_ok());
    }
}
