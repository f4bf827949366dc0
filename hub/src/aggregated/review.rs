//! What a user may, as the hub's own RBAC says: asked for each request, and again and again while its answer goes on.

use super::front::User;
use super::{GROUP, VERSION};
use common::errors::chain;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use std::time::Duration;
use tokio::time::sleep;

/// How often it is asked again.
const EVERY: Duration = Duration::from_secs(20);
/// An API server that cannot be asked for so many times has said no.
const FAILURES: u32 = 3;

/// What somebody asks for: verbs on `clusters/proxy` of one cluster.
#[derive(Debug, Clone)]
pub(super) struct Right {
    pub(super) user: User,
    pub(super) cluster: String,
    /// All of them are needed.
    pub(super) verbs: Vec<&'static str>,
}

impl Right {
    /// The verb that they may not, if there is one.
    pub(super) async fn lacks(&self, client: &Client) -> kube::Result<Option<&'static str>> {
        for verb in &self.verbs {
            if !is_allowed(client, &self.review(verb)).await? {
                return Ok(Some(verb));
            }
        }
        Ok(None)
    }

    fn review(&self, verb: &str) -> SubjectAccessReview {
        self.user.review(ResourceAttributes {
            group: Some(GROUP.to_owned()),
            version: Some(VERSION.to_owned()),
            resource: Some("clusters".to_owned()),
            subresource: Some("proxy".to_owned()),
            name: Some(self.cluster.clone()),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        })
    }

    /// Ends when they may no longer.
    pub(super) async fn ended(self, client: Client) {
        let mut failures = 0;
        while failures < FAILURES {
            sleep(EVERY).await;
            match self.lacks(&client).await {
                Ok(None) => failures = 0,
                Ok(Some(_)) => return,
                Err(error) => {
                    failures += 1;
                    let error = chain(&error).to_string();
                    tracing::warn!(error, user = self.user.name, "nobody knows what they may");
                }
            }
        }
    }
}

impl User {
    /// Whether they may see which clusters there are.
    pub(super) async fn may_list(&self, client: &Client) -> kube::Result<bool> {
        let review = self.review(ResourceAttributes {
            group: Some("cluster.karmada.io".to_owned()),
            resource: Some("clusters".to_owned()),
            verb: Some("list".to_owned()),
            ..ResourceAttributes::default()
        });
        is_allowed(client, &review).await
    }

    fn review(&self, attributes: ResourceAttributes) -> SubjectAccessReview {
        let Self {
            name,
            uid,
            groups,
            extra,
        } = self.clone();
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(name),
                uid: Some(uid).filter(|uid| !uid.is_empty()),
                groups: Some(groups),
                extra: (!extra.is_empty()).then_some(extra),
                resource_attributes: Some(attributes),
                non_resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        }
    }
}

async fn is_allowed(client: &Client, review: &SubjectAccessReview) -> kube::Result<bool> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), review).await?;
    let status = answer.status.unwrap_or_default();
    Ok(status.allowed && status.denied != Some(true))
}
