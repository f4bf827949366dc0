//! The tunnel by which the hub reaches this agent, and those that it took the place of.
//!
//! The end of the agent's own handshake says nothing of the hub, which judges afterwards whose tunnel it is. The hub's
//! first byte does: it answers a sign of life, or begins HTTP/2, once the tunnel is in its list and not before, and so
//! did every version of it.

use common::tunnel::KEEP_ALIVE;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// How long the hub may take to say something in a new tunnel.
const ACCEPTED_WITHIN: Duration = KEEP_ALIVE.within;

/// What is known of a tunnel, and asked of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Signs {
    /// Cancelled once the hub has said something in it.
    pub(super) heard: CancellationToken,
    /// Cancelled once HTTP/2 began in it.
    pub(super) begun: CancellationToken,
    /// Has it take no more requests, and end with the last one.
    pub(super) retire: CancellationToken,
}

/// A tunnel that stands; ends when it is dropped.
#[derive(Debug)]
pub(super) struct Tunnel {
    task: AbortOnDropHandle<String>,
    signs: Signs,
}

impl Tunnel {
    /// Serves one: `serving` ends with it, and says why it did.
    pub(super) fn new(
        serving: impl Future<Output = String> + Send + 'static,
        signs: Signs,
    ) -> Self {
        Self {
            task: AbortOnDropHandle::new(tokio::spawn(serving)),
            signs,
        }
    }

    /// Cancelled once HTTP/2 began in it.
    pub(super) fn begun(&self) -> &CancellationToken {
        &self.signs.begun
    }

    /// Waits for its end, and says why it came.
    pub(super) async fn ended(&mut self) -> String {
        let ended = (&mut self.task).await;
        ended.unwrap_or_else(|error| error.to_string())
    }

    /// Waits until the hub has accepted it, and says why if it does not.
    async fn accepted(&mut self) -> Result<(), String> {
        let heard = self.signs.heard.clone();
        tokio::select! {
            biased;
            ended = self.ended() => Err(ended),
            () = heard.cancelled() => Ok(()),
            () = sleep(ACCEPTED_WITHIN) => {
                let waited = common::duration::format(ACCEPTED_WITHIN);
                Err(format!("nothing came by it for {waited}"))
            }
        }
    }
}

/// All tunnels of an agent.
#[derive(Debug, Default)]
pub(super) struct Tunnels {
    current: Option<Tunnel>,
    /// What is under way in a tunnel that another one took the place of goes on there.
    former: Vec<Tunnel>,
}

impl Tunnels {
    /// Has a tunnel take the place of the current one once the hub has accepted it. If it does not, everything stays as
    /// it is.
    pub(super) async fn put(&mut self, mut tunnel: Tunnel) -> Result<&mut Tunnel, String> {
        tunnel.accepted().await?;
        self.former.extend(self.current.take());
        for former in &self.former {
            former.signs.retire.cancel();
        }
        self.former.retain(|former| !former.task.is_finished());
        Ok(self.current.insert(tunnel))
    }

    /// Whether there is one that has not ended.
    pub(super) fn stands(&self) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| !current.task.is_finished())
    }

    /// The current one has ended.
    pub(super) fn ended(&mut self) {
        self.current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::refusal::Refusal;
    use super::super::serve::serve;
    use super::*;
    use common::tunnel::Begins;
    use hyper::service::service_fn;
    use std::convert::Infallible;
    use std::future::pending;
    use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::Instant;

    /// A tunnel that ends by nothing but its own end.
    fn good(signs: &Signs) -> Tunnel {
        signs.heard.cancel();
        Tunnel::new(pending(), signs.clone())
    }

    /// A tunnel as agents serve it, and its hub's end.
    fn dialled(begins: Begins) -> (Tunnel, Signs, DuplexStream) {
        let (near, far) = duplex(64 * 1024);
        let signs = Signs::default();
        let service = service_fn(async |_| {
            let refusal = Refusal::Unavailable("nobody is there".to_owned());
            Ok::<_, Infallible>(refusal.answer("m1"))
        });
        let serving = serve(near, begins, service, signs.clone());
        (Tunnel::new(serving, signs.clone()), signs, far)
    }

    /// What a hub does with a connection on which a tunnel was agreed.
    #[derive(Debug, Clone, Copy)]
    enum Hub {
        /// Says this first.
        Says(&'static [u8]),
        /// Refuses the agent, and closes it.
        Closes,
        /// Is too busy, or something between the two is in its place.
        IsSilent,
    }

    /// The preface of HTTP/2, and settings that say nothing.
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_is_retired_once_the_hub_has_accepted_the_next_one() {
        let table = [
            (Begins::WhenAsked, Hub::Says(b"."), true),
            // Somebody asks at once.
            (Begins::WhenAsked, Hub::Says(PREFACE), true),
            (Begins::AtOnce, Hub::Says(PREFACE), true),
            (Begins::WhenAsked, Hub::Closes, false),
            (Begins::AtOnce, Hub::Closes, false),
            (Begins::WhenAsked, Hub::IsSilent, false),
            (Begins::AtOnce, Hub::IsSilent, false),
        ];
        for (begins, hub, accepts) in table {
            let (old, mut tunnels) = (Signs::default(), Tunnels::default());
            tunnels.put(good(&old)).await.expect("accepted");
            let (tunnel, new, mut far) = dialled(begins);
            let began = Instant::now();
            let far = match hub {
                Hub::Says(first) => {
                    far.write_all(first).await.expect("taken");
                    Some(far)
                }
                Hub::Closes => {
                    drop(far);
                    None
                }
                Hub::IsSilent => Some(far),
            };
            let put = tunnels.put(tunnel).await.map(|_| ());
            assert_eq!(put.is_ok(), accepts, "{begins:?} {hub:?}: {put:?}");
            let longest = ACCEPTED_WITHIN + Duration::from_secs(1);
            assert!(began.elapsed() <= longest, "{begins:?} {hub:?}");
            assert_eq!(old.retire.is_cancelled(), accepts, "{begins:?} {hub:?}");
            assert!(!new.retire.is_cancelled() && tunnels.stands());
            drop(far);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_in_a_former_tunnel_is_kept_until_it_ends() {
        let mut tunnels = Tunnels::default();
        let signs: [Signs; 3] = Default::default();
        for one in &signs {
            tunnels.put(good(one)).await.expect("accepted");
        }
        let retired = signs.map(|one| one.retire.is_cancelled());
        assert_eq!(retired, [true, true, false]);
        assert_eq!(tunnels.former.len(), 2);
        tunnels.ended();
        assert!(!tunnels.stands());
        // It has ended, and another one takes its place.
        let ended = Signs::default();
        ended.heard.cancel();
        let (ends, is_over) = (CancellationToken::new(), CancellationToken::new());
        let (goes_on, over) = (ends.clone(), is_over.clone());
        let serving = async move {
            let _over = over.drop_guard();
            goes_on.cancelled().await;
            String::new()
        };
        tunnels
            .put(Tunnel::new(serving, ended))
            .await
            .expect("accepted");
        ends.cancel();
        is_over.cancelled().await;
        assert!(!tunnels.stands());
        let last = Signs::default();
        tunnels.put(good(&last)).await.expect("accepted");
        assert_eq!(tunnels.former.len(), 2, "those in which something goes on");
    }
}
