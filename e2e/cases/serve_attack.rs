//! Attacks on the built-in API server by those who can reach it: strangers, and users with a few rights.
//!
//! Each attack stands beside its rightful twin, which succeeds; and whatever was sent, the server still
//! answers. One server for each subject, and nothing but it.

mod bodies;
mod floods;
mod identity;
mod paths;
mod rights;
mod rules;
mod streams;
mod wire;

use anyhow::{Result, ensure};
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;

use crate::env::{JSON, Parts, Plane, PlaneOptions, Scratch, ask, client, wait_for};

/// How long anything may take; the machine is shared.
const SOON: Duration = Duration::from_secs(120);
/// A user with a few rights in the namespace `mine`.
const USER: &str = "bob";
/// What nobody but the administrator may read, in the namespace `theirs`; as Secrets hold it.
const HIDDEN: &str = "aGlkZGVuLWZyb20tZXZlcnlib2R5";

/// A server, its administrator, and a user with a few rights.
struct Rig {
    plane: Plane,
    admin: Client,
    bob: Client,
    scratch: Scratch,
}

impl Rig {
    async fn begin(name: &str) -> Result<Self> {
        let scratch = Scratch::new(name)?;
        let mut options = PlaneOptions::hub();
        options.builtin = true;
        let dir = scratch.join("hub");
        let plane = Plane::start(&Parts::from_env()?, &dir, options).await?;
        let admin = plane.client().await?;
        let file = plane.kubeconfig_for(&scratch.join("bob.kubeconfig"), USER, &["devs"])?;
        let rig = Self {
            bob: client(&file).await?,
            plane,
            admin,
            scratch,
        };
        rig.prepare().await?;
        Ok(rig)
    }

    async fn prepare(&self) -> Result<()> {
        for namespace in ["mine", "theirs"] {
            let object = json!({"metadata": {"name": namespace}});
            self.create("/api/v1/namespaces", &object).await?;
            for name in ["a", "b", "c"] {
                let object = json!({"metadata": {"name": name}, "data": {"of": namespace}});
                let path = format!("/api/v1/namespaces/{namespace}/configmaps");
                self.create(&path, &object).await?;
            }
        }
        let secret = json!({"metadata": {"name": "s"}, "data": {"key": HIDDEN}});
        self.create("/api/v1/namespaces/theirs/secrets", &secret)
            .await?;
        self.allow(
            "mine",
            "maps",
            json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]),
        )
        .await?;
        let maps = "/api/v1/namespaces/mine/configmaps";
        wait_for("the user's rights", SOON, async || {
            Ok(ask(&self.bob, "GET", maps, None).await?.code == 200)
        })
        .await
    }

    async fn create(&self, path: &str, object: &Value) -> Result<()> {
        let body = object.to_string();
        ask(&self.admin, "POST", path, Some((JSON, &body)))
            .await?
            .ok()?;
        Ok(())
    }

    /// Gives the user rights; in a namespace, or everywhere.
    async fn allow(&self, namespace: &str, name: &str, rules: Value) -> Result<()> {
        const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
        let (prefix, kind) = match namespace {
            "" => (RBAC.to_owned(), "Cluster"),
            _ => (format!("{RBAC}/namespaces/{namespace}"), ""),
        };
        let role = json!({"metadata": {"name": name}, "rules": rules});
        let lower = kind.to_lowercase();
        self.create(&format!("{prefix}/{lower}roles"), &role)
            .await?;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": format!("{kind}Role"),
                "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
        });
        self.create(&format!("{prefix}/{lower}rolebindings"), &binding)
            .await
    }

    /// Sends as the user; the answer's code and body.
    async fn bob(&self, method: &str, path: &str, content: Option<(&str, &str)>) -> Result<Told> {
        let answer = ask(&self.bob, method, path, content).await?;
        Ok(Told {
            what: answer.request,
            code: answer.code,
            body: answer.body,
        })
    }

    /// The server still answers its user, and nobody learnt what is hidden.
    async fn end(mut self) -> Result<()> {
        let maps = "/api/v1/namespaces/mine/configmaps";
        ask(&self.bob, "GET", maps, None).await?.ok()?;
        let secret = "/api/v1/namespaces/theirs/secrets/s";
        ask(&self.bob, "GET", secret, None).await?.forbidden()?;
        let shown = ask(&self.admin, "GET", secret, None).await?.ok()?;
        ensure!(shown.body.contains(HIDDEN), "{}", shown.body);
        self.plane.stop().await;
        self.scratch.passed();
        Ok(())
    }
}

/// An answer, and what was asked.
struct Told {
    what: String,
    code: u16,
    body: String,
}

impl Told {
    /// Fails unless it is one of these.
    fn is(self, codes: &[u16]) -> Result<Self> {
        let shown: String = self.body.chars().take(400).collect();
        ensure!(
            codes.contains(&self.code),
            "{} must be answered by {codes:?}, but: {} {shown}",
            self.what,
            self.code,
        );
        ensure!(!self.body.contains(HIDDEN), "{} tells a secret", self.what);
        Ok(self)
    }
}
