//! A watch through a hub into a member, and how it ends.

use super::rig::{LONG, to};
use anyhow::{Context as _, Result, ensure};
use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use tokio::time::timeout;

/// A watch of something of member `m1`.
pub(super) struct Watch(Body);

impl Watch {
    /// Of the objects at a path.
    pub(super) async fn open(client: &Client, path: &str) -> Result<Self> {
        let request = Request::get(to("m1", &format!("{path}?watch=true")));
        Self::by(client, request.body(Body::empty())?).await
    }

    /// By a request.
    pub(super) async fn by(client: &Client, request: Request<Body>) -> Result<Self> {
        let answer = client.send(request).await?;
        ensure!(answer.status() == 200, "{}", answer.status());
        Ok(Self(answer.into_body()))
    }

    /// Reads until an event names an object.
    pub(super) async fn sees(&mut self, name: &str) -> Result<()> {
        let seen = async {
            let mut text = String::new();
            while !text.contains(name) {
                let frame = self.0.frame().await.context("it ended")??;
                text.push_str(&String::from_utf8_lossy(
                    frame.data_ref().context("no data")?,
                ));
            }
            Ok(())
        };
        timeout(LONG, seen)
            .await
            .with_context(|| format!("no event of {name}"))?
    }

    /// Reads until it breaks off; an end is none.
    pub(super) async fn breaks(self) -> Result<()> {
        ensure!(
            self.ends_broken().await?,
            "it ended as if nothing more was to come"
        );
        Ok(())
    }

    /// Reads until nothing more comes; whether it broke off rather than ended.
    pub(super) async fn ends_broken(mut self) -> Result<bool> {
        let over = async {
            loop {
                match self.0.frame().await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return true,
                    None => return false,
                }
            }
        };
        timeout(LONG, over).await.context("it goes on")
    }
}
