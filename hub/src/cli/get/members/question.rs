//! What each member is asked. Pure.

use super::target::Target;
use common::mapper::Resource;
use kube::api::ListParams;
use kube::core::Request;

/// Objects in one page.
const PAGE: u32 = 500;
/// Rows as kubectl is given them, with the metadata of each object.
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

/// Objects of one type: one by its name, or all that fit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    /// The type; members may serve it in another version.
    pub(super) resource: &'a Resource,
    /// Where they are; everywhere when there is none.
    pub(super) namespace: Option<&'a str>,
    pub(super) name: Option<&'a str>,
    /// Their labels, as kubectl writes a selector.
    pub(super) selector: Option<&'a str>,
    /// Whether the objects themselves are wanted, and not rows that show them.
    pub(super) whole: bool,
}

impl Question<'_> {
    /// Path and query on the hub: of the first page, or of the one that a token leads to.
    pub(super) fn uri(&self, target: &Target, token: Option<&str>) -> Option<String> {
        let Target {
            prefix, resource, ..
        } = target;
        let namespace = self.namespace.unwrap_or_default();
        if let Some(name) = self.name {
            return Some(format!("{prefix}{}", resource.object(namespace, name)));
        }
        let collection = match self.namespace {
            Some(namespace) => resource.collection_in(namespace),
            None => resource.collection(),
        };
        let mut params = ListParams::default().limit(PAGE);
        params.label_selector = self.selector.map(str::to_owned);
        params.continue_token = token.map(str::to_owned);
        let request = Request::new(format!("{prefix}{collection}")).list(&params);
        Some(request.ok()?.uri().to_string())
    }

    /// In which form the answer is wanted.
    pub(super) fn accept(&self) -> &'static str {
        match self.whole {
            true => common::rest::JSON,
            false => TABLE,
        }
    }

    /// How it is told of.
    pub(super) fn shown(&self) -> String {
        let name = self.name.unwrap_or_default();
        let place = self.namespace.map(|it| format!(" in namespace {it}"));
        let place = place.unwrap_or_default();
        format!("{}/{name}{place}", self.resource.qualified())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::get::members::target::tests::deployments;

    #[test]
    fn members_are_asked_as_kubectl_asks() {
        let resource = deployments("v1");
        let target = Target {
            cluster: "m1".into(),
            prefix: "/to/m1".into(),
            resource: deployments("v1beta1"),
        };
        let all = Question {
            resource: &resource,
            namespace: Some("shop"),
            name: None,
            selector: Some("app in (a,b)"),
            whole: false,
        };
        let uri = |question: Question<'_>, token| question.uri(&target, token).expect("a path");
        assert_eq!(
            uri(all, None),
            "/to/m1/apis/apps/v1beta1/namespaces/shop/deployments?&labelSelector=app+in+%28a%2Cb%29&limit=500"
        );
        let everywhere = Question {
            namespace: None,
            selector: None,
            ..all
        };
        assert_eq!(
            uri(everywhere, Some("a/b&c")),
            "/to/m1/apis/apps/v1beta1/deployments?&limit=500&continue=a%2Fb%26c"
        );
        let one = Question {
            name: Some("../x"),
            ..all
        };
        assert_eq!(
            uri(one, None),
            "/to/m1/apis/apps/v1beta1/namespaces/shop/deployments/..%2Fx"
        );
        assert_eq!(one.shown(), "deployments.apps/../x in namespace shop");
    }
}
