//! A connection on which somebody offered a tunnel: whose it is, and how long they may have it.

use super::connection::Connection;
use super::router::Router;
use crate::apiserver::agents;
use crate::apiserver::caller::AUTHENTICATED;
use common::identity::AgentSubject;
use common::tunnel::Begins;
use http::HeaderMap;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

impl Router {
    /// Keeps the tunnel of the agent at the other end, until it ends, the hub stops, or the agent's registration is no
    /// longer in force: then everything in it ends at once.
    pub(super) async fn tunnel<S>(
        &self,
        stream: S,
        begins: Begins,
        connection: &Arc<Connection>,
        stop: CancellationToken,
    ) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let authenticator = &self.parts().authenticator;
        let peer = connection.peer(&authenticator.keys, authenticator.clock.now());
        let caller = authenticator.authenticate(&peer, &HeaderMap::new());
        let caller = caller.map_err(|error| error.message)?;
        let groups = caller.groups.iter().filter(|group| *group != AUTHENTICATED);
        let groups: Vec<String> = groups.cloned().collect();
        // The whole subject, as a registration gives it, and no other with its group.
        let agent = AgentSubject::parse(&caller.user, &groups);
        let right = agents::right_of_registered(&caller);
        let (Some(agent), Some(right)) = (agent, right) else {
            return Err(format!("{} is no agent, and has no tunnel", caller.user));
        };
        if !self.parts().authorizer.decide(&caller, &right).allowed {
            return Err(format!(
                "{} is not registered, and has no tunnel",
                caller.user
            ));
        }
        let standing = self.standing_of_agent(connection, &Arc::new(caller), right);
        let over = super::standing::over(standing);
        let cluster = agent.cluster.as_str();
        self.tunnels()
            .hold(cluster, stream, begins, over, stop)
            .await
    }
}
