//! The last word on every write: rights nobody may grant, what agents may change, who approves and signs.

use super::agents::{self, Target};
use super::authz::{Attributes, Authorizer, Grant};
use super::caller::{Caller, MASTERS};
use super::error::ApiError;
use super::propagation;
use super::signer::form;
use crate::apiserver::request::{Admission, AdmissionFuture, Context, Operation};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::names::EXECUTION_PREFIX;
use serde_json::Value;
use std::sync::Arc;

const REQUESTS: &str = "certificatesigningrequests";
const CERTIFICATES: &str = "certificates.k8s.io";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The rules over one authorizer.
#[derive(Debug, Clone)]
pub struct Rules {
    authorizer: Arc<Authorizer>,
}

impl Rules {
    /// Rules that ask `authorizer`.
    pub fn new(authorizer: Arc<Authorizer>) -> Self {
        Self { authorizer }
    }

    fn judge(
        &self,
        context: &Context,
        operation: Operation,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let resource = &context.resource;
        let subject = object.or(old).unwrap_or(&Value::Null);
        let name = match subject["metadata"]["name"].as_str() {
            Some(name) => name,
            None => &context.name,
        };
        let target = Target {
            operation: match operation {
                Operation::Create => "CREATE",
                Operation::Update => "UPDATE",
                Operation::Delete => "DELETE",
            },
            group: &resource.group,
            resource: &resource.plural,
            subresource: &context.subresource,
            namespace: &context.namespace,
            name,
        };
        let in_force = || self.reads_own_works(context);
        agents::check_object(&context.caller, &target, object, old, in_force)?;
        agents::check_work_place(&target)?;
        if operation == Operation::Create && !context.name.is_empty() {
            // A replacement or an apply that makes the object.
            let asked = Attributes {
                verb: "create".to_owned(),
                group: resource.group.to_string(),
                resource: resource.plural.to_string(),
                subresource: context.subresource.clone(),
                namespace: context.namespace.clone(),
                name: context.name.clone(),
                path: None,
            };
            self.authorizer.check(&context.caller, &asked)?;
        }
        if operation == Operation::Delete
            && let Some(old) = old
        {
            propagation::check_deletion(&target, old)?;
            agents::check_cluster_deletion(&target, old)?;
            agents::check_definition_deletion(&target, old)?;
            if *context.caller != Caller::system() {
                agents::check_namespace_deletion(&target, old)?;
            }
        }
        let Some(object) = object else {
            return Ok(());
        };
        propagation::check(&target, object, old)?;
        match (&*resource.group, &*resource.plural) {
            ("rbac.authorization.k8s.io", plural) => self.authorizer.check_grant(&Grant {
                caller: &context.caller,
                resource: plural,
                namespace: &context.namespace,
                path_name: &context.name,
                object,
                old,
            }),
            (CERTIFICATES, REQUESTS) => self.request(context, operation, object, old),
            _ => Ok(()),
        }
    }

    /// Whether the agent that asks is still registered: the one right that only its registration has.
    fn reads_own_works(&self, context: &Context) -> bool {
        let user = &context.caller.user;
        let Some(cluster) = user.strip_prefix(common::identity::AGENT_USER_PREFIX) else {
            return false;
        };
        let asked = Attributes {
            verb: "list".to_owned(),
            group: "work.karmada.io".to_owned(),
            resource: "works".to_owned(),
            namespace: format!("{EXECUTION_PREFIX}{cluster}"),
            ..Attributes::default()
        };
        self.authorizer.decide(&context.caller, &asked).allowed
    }

    /// Requests for certificates: nobody becomes an administrator, and a right of its own is needed to
    /// approve and to sign.
    fn request(
        &self,
        context: &Context,
        operation: Operation,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let on = context.resource.group_resource();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let signer = object["spec"]["signerName"].as_str().unwrap_or_default();
        let may = |verb: &str| self.may_use_signer(context, verb, signer);
        let refuse = |why: String| Err(ApiError::forbidden(&on, name, &why));
        match context.subresource.as_str() {
            "" if operation == Operation::Create
                && signer == CLIENT_SIGNER
                && asks_for_masters(object) =>
            {
                refuse(format!(
                    "use of {CLIENT_SIGNER} signer with system:masters group is not allowed"
                ))
            }
            "approval" if !may("approve") => refuse(format!(
                "user not permitted to approve requests with signerName \"{signer}\""
            )),
            "status" => {
                let old = old.unwrap_or(&Value::Null);
                let same = |field: &str| old["status"][field] == object["status"][field];
                if !(may("sign") || same("certificate") && same("conditions")) {
                    return refuse(format!(
                        "user not permitted to sign requests with signerName \"{signer}\""
                    ));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn may_use_signer(&self, context: &Context, verb: &str, signer: &str) -> bool {
        let domain = signer.split('/').next().unwrap_or_default();
        [signer.to_owned(), format!("{domain}/*")]
            .into_iter()
            .any(|name| {
                let asked = Attributes {
                    verb: verb.to_owned(),
                    group: CERTIFICATES.to_owned(),
                    resource: "signers".to_owned(),
                    name,
                    ..Attributes::default()
                };
                self.authorizer.decide(&context.caller, &asked).allowed
            })
    }
}

fn asks_for_masters(request: &Value) -> bool {
    let pem = request["spec"]["request"].as_str();
    let Some(pem) = pem.and_then(|text| STANDARD.decode(text).ok()) else {
        return false;
    };
    let organizations = form::organizations(&pem);
    organizations.iter().any(|group| group == MASTERS)
}

impl Admission for Rules {
    fn admit<'a>(
        &'a self,
        context: &'a Context,
        operation: Operation,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> AdmissionFuture<'a> {
        let judged = self.judge(context, operation, object, old);
        Box::pin(std::future::ready(judged))
    }
}
