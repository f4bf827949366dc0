//! `pods/eviction`: a deletion that asks the PodDisruptionBudget of a Pod first.

use super::{Registry, decode};
use crate::apiserver::error::{ApiError, GroupResource};
use crate::apiserver::metadata::timestamp;
use crate::apiserver::request::{
    Body, Context, DeleteOptions, FieldValidation, LabelSelector, MediaType,
};
use crate::apiserver::schema::builtin::schemas;
use crate::apiserver::scheme::Resource;
use crate::apiserver::value::{at, list, map, number, put, text, texts};
use bytes::Bytes;
use decode::Expected;
use serde_json::{Value, json};
use std::sync::Arc;

/// The name of the subresource.
pub const SUBRESOURCE: &str = "eviction";
const POLICY: &str = "policy";
const BUDGETS: &str = "poddisruptionbudgets";
/// How many Pods a budget may know that were evicted and are not gone.
const DISRUPTED_MAX: usize = 2000;
/// Looks at what somebody else is writing.
const ATTEMPTS: usize = 5;
const VIOLATED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// What becomes of an eviction.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// The Pod goes; no budget counts it.
    Free,
    /// It goes if it is still as it was seen: it does no work that a budget protects.
    Unchanged,
    /// It goes once its budget is written like this.
    Counted(Value),
    Refused(ApiError),
}

impl Registry {
    /// Evicts the Pod of the path.
    pub async fn evict(&self, context: &Context, body: &Body) -> Result<(), ApiError> {
        let eviction = self.read_eviction(context, body)?;
        if text(&eviction, &["metadata", "name"]) != context.name {
            return Err(ApiError::bad_request(
                "name in URL does not match name in Eviction object",
            ));
        }
        let mut options = delete_options(context, &eviction["deleteOptions"])?;
        let pod_context = Context {
            subresource: String::new(),
            dry_run: options.dry_run,
            ..context.clone()
        };
        let mut attempt = 1;
        loop {
            let pod = self.stored(&pod_context).ok_or_else(|| {
                ApiError::not_found(&context.resource.group_resource(), &context.name)
            })?;
            let verdict = self.judge(context, &pod.value());
            let written = match verdict {
                Verdict::Free => Ok(()),
                Verdict::Unchanged => {
                    let version = &mut options.preconditions.resource_version;
                    version.get_or_insert_with(|| pod.revision().to_string());
                    Ok(())
                }
                Verdict::Counted(_) if options.dry_run => Ok(()),
                Verdict::Counted(budget) => self.count(&pod_context, &budget).await,
                Verdict::Refused(error) => return Err(error),
            };
            match written {
                Err(error) if error.code == 409 && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        self.delete(&pod_context, options).await.map(|_| ())
    }

    fn read_eviction(&self, context: &Context, body: &Body) -> Result<Value, ApiError> {
        // Older clients name a version that is taken for this one.
        let older = memchr::memmem::find(&body.bytes, b"policy/v1beta1").is_some();
        let expected = Expected {
            group: POLICY.to_owned(),
            version: if older { "v1beta1" } else { "v1" }.to_owned(),
            kind: "Eviction".to_owned(),
            custom: false,
        };
        let schema = schemas().named(POLICY, "v1", "Eviction");
        let schema = schema.unwrap_or(&context.resource.schema);
        decode::as_kind(context, self.scheme(), body, &expected, schema)
    }

    fn judge(&self, context: &Context, pod: &Value) -> Verdict {
        let Some(resource) = self.scheme().resource(POLICY, "v1", BUDGETS) else {
            return Verdict::Free;
        };
        let snapshot = self.store().snapshot(&resource.storage_key);
        let of = snapshot.table.namespace(&context.namespace);
        let budgets = of.map(|stored| self.view(&resource, stored)).collect();
        verdict(pod, budgets, &timestamp(self.clock().now()))
    }

    /// Writes the status of a budget, if nobody wrote it meanwhile.
    async fn count(&self, context: &Context, budget: &Value) -> Result<(), ApiError> {
        let resource: Arc<Resource> = self
            .scheme()
            .resource(POLICY, "v1", BUDGETS)
            .ok_or_else(ApiError::no_such_path)?;
        let context = Context {
            resource,
            name: text(budget, &["metadata", "name"]).to_owned(),
            subresource: "status".to_owned(),
            field_manager: "kube-apiserver".to_owned(),
            field_validation: FieldValidation::Ignore,
            ..context.clone()
        };
        let body = Body {
            media: MediaType::Json,
            bytes: Bytes::from(budget.to_string()),
        };
        self.update(&context, body).await.map(|_| ())
    }
}

fn delete_options(context: &Context, said: &Value) -> Result<DeleteOptions, ApiError> {
    let modes = texts(said, &["dryRun"]);
    if context.dry_run && !modes.is_empty() && modes != ["All"] {
        let modes = modes.join(" ");
        return Err(ApiError::bad_request(format!(
            "Non-matching dry-run options in request and content: [All] and [{modes}]"
        )));
    }
    let given = said.is_object().then(|| Body {
        media: MediaType::Json,
        bytes: Bytes::from(said.to_string()),
    });
    let options = DeleteOptions::parse(&[], given.as_ref())?;
    Ok(DeleteOptions {
        dry_run: context.dry_run || options.dry_run,
        ..options
    })
}

/// Decides over a Pod, given the budgets of its namespace.
fn verdict(pod: &Value, budgets: Vec<Value>, now: &str) -> Verdict {
    let phase = text(pod, &["status", "phase"]);
    let ended = matches!(phase, "Succeeded" | "Failed" | "Pending");
    if ended || at(pod, &["metadata", "deletionTimestamp"]).is_some() {
        return Verdict::Free;
    }
    let mut of_pod = budgets.into_iter().filter(|budget| selects(budget, pod));
    let (Some(budget), more) = (of_pod.next(), of_pod.next()) else {
        return Verdict::Free;
    };
    if more.is_some() {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Verdict::Refused(ApiError::plain(500, "", why));
    }
    let status = |field: &str| number(&budget, &["status", field]).unwrap_or_default();
    let ready = list(pod, &["status", "conditions"])
        .iter()
        .any(|one| one["type"] == "Ready" && one["status"] == "True");
    if !ready {
        let always = text(&budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow";
        let wanted = status("desiredHealthy");
        if always || wanted > 0 && status("currentHealthy") >= wanted {
            return Verdict::Unchanged;
        }
    }
    decrement(budget, text(pod, &["metadata", "name"]), now)
}

fn selects(budget: &Value, pod: &Value) -> bool {
    let Some(selector) = at(budget, &["spec", "selector"]).filter(|it| it.is_object()) else {
        return false;
    };
    let labels = map(pod, &["metadata", "labels"]);
    LabelSelector::of_object(selector)
        .is_ok_and(|selector| selector.matches(|key| labels?.get(key)?.as_str()))
}

/// One Pod less may go from now on, if one may at all.
fn decrement(mut budget: Value, pod: &str, now: &str) -> Verdict {
    let name = text(&budget, &["metadata", "name"]).to_owned();
    let count = |budget: &Value, path: &[&str]| number(budget, path).unwrap_or_default();
    let generation = count(&budget, &["metadata", "generation"]);
    let allowed = count(&budget, &["status", "disruptionsAllowed"]);
    let refused = |why: &str| {
        let on = GroupResource::new(POLICY, "poddisruptionbudget");
        Verdict::Refused(ApiError::forbidden(&on, &name, why))
    };
    if count(&budget, &["status", "observedGeneration"]) < generation {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        let error = ApiError::too_many_requests(VIOLATED, 10);
        return Verdict::Refused(error.with_cause("DisruptionBudget", &why, ""));
    }
    if allowed < 0 {
        return refused("pdb disruptions allowed is negative");
    }
    let disrupted = map(&budget, &["status", "disruptedPods"]).map_or(0, serde_json::Map::len);
    if disrupted > DISRUPTED_MAX {
        return refused(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        );
    }
    if allowed == 0 {
        let why = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            count(&budget, &["status", "desiredHealthy"]),
            count(&budget, &["status", "currentHealthy"]),
        );
        let mut error = ApiError::too_many_requests(VIOLATED, 0);
        error.retry_after = None;
        return Verdict::Refused(error.with_cause("DisruptionBudget", &why, ""));
    }
    put(
        &mut budget,
        &["status", "disruptionsAllowed"],
        Some(json!(allowed - 1)),
    );
    put(
        &mut budget,
        &["status", "disruptedPods", pod],
        Some(json!(now)),
    );
    if allowed == 1 {
        none_left(&mut budget, generation, now);
    }
    Verdict::Counted(budget)
}

/// Says in the conditions of a budget that no further Pod may go.
fn none_left(budget: &mut Value, generation: i64, now: &str) {
    let mut conditions = list(budget, &["status", "conditions"]).to_vec();
    let before = conditions
        .iter()
        .find(|one| one["type"] == "DisruptionAllowed" && one["status"] == "False");
    let since = before.map_or(json!(now), |one| one["lastTransitionTime"].clone());
    conditions.retain(|one| one["type"] != "DisruptionAllowed");
    conditions.push(json!({
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }));
    put(budget, &["status", "conditions"], Some(json!(conditions)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn pod(phase: &str, ready: &str) -> Value {
        json!({"metadata": {"name": "p", "labels": {"a": "b"}},
            "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn budget(status: Value) -> Value {
        json!({"metadata": {"name": "b", "generation": 1},
            "spec": {"selector": {"matchLabels": {"a": "b"}}}, "status": status})
    }

    fn code(pod: &Value, budgets: &[Value]) -> u16 {
        match verdict(pod, budgets.to_vec(), NOW) {
            Verdict::Free => 0,
            Verdict::Unchanged => 1,
            Verdict::Counted(_) => 2,
            Verdict::Refused(error) => error.code,
        }
    }

    #[test]
    fn a_budget_counts_pods_that_run() {
        let free = budget(json!({"observedGeneration": 1, "disruptionsAllowed": 1}));
        let spent = budget(json!({"observedGeneration": 1, "disruptionsAllowed": 0,
            "desiredHealthy": 1, "currentHealthy": 1}));
        let new = budget(json!({}));
        let negative = budget(json!({"observedGeneration": 1, "disruptionsAllowed": -1}));
        let mut always = new.clone();
        always["spec"]["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        let mut other = spent.clone();
        other["spec"]["selector"]["matchLabels"]["a"] = json!("c");
        let (ready, unready) = (pod("Running", "True"), pod("Running", "False"));
        for (pod, budgets, want) in [
            (&ready, vec![], 0),
            (&ready, vec![other], 0),
            (&pod("Pending", "True"), vec![spent.clone()], 0),
            (&ready, vec![free.clone()], 2),
            (&ready, vec![spent.clone()], 429),
            (&ready, vec![new.clone()], 429),
            (&ready, vec![negative], 403),
            (&ready, vec![free.clone(), spent.clone()], 500),
            (&unready, vec![spent], 1),
            (&unready, vec![always], 1),
            (&unready, vec![new], 429),
        ] {
            assert_eq!(code(pod, &budgets), want, "{budgets:?}");
        }
        let Verdict::Counted(written) = verdict(&ready, vec![free], NOW) else {
            panic!("it goes");
        };
        assert_eq!(written["status"]["disruptionsAllowed"], 0);
        assert_eq!(written["status"]["disruptedPods"], json!({"p": NOW}));
        let condition = &written["status"]["conditions"][0];
        assert_eq!(condition["reason"], "InsufficientPods");
    }
}
