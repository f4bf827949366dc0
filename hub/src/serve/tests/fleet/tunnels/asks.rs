//! What users ask members through the hub, over connections of bytes, and what comes of it.

use super::super::host::HUB;
use super::super::wires::{Endpoint, World};
use super::plan::{Ask, Wanted};
use crate::apiserver::http::Protocol;
use bytes::Bytes;
use common::client::HostPort;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use std::cell::RefCell;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, split};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

/// Where users come from.
const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));
/// Large objects: how many there are, and how long what is in each is.
pub(super) const LARGE: usize = 6;
pub(super) const LENGTH: usize = 40_000;
/// How often something is said on a connection that was taken over.
const SAID_EVERY: Duration = Duration::from_millis(500);

type Sent = UnsyncBoxBody<Bytes, Infallible>;

/// How something ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum How {
    /// As what has nothing more to say.
    Clean,
    Broken(String),
    GivenUp,
    /// Nothing was answered.
    Unanswered(String),
}

/// What came of a request. Times are those since the beginning.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) number: usize,
    pub(super) ask: Ask,
    pub(super) began: Duration,
    /// When and by which status it was answered.
    pub(super) answered: Option<(Duration, u16)>,
    pub(super) heard: Vec<u8>,
    /// What was said on a connection that was taken over.
    pub(super) said: Vec<u8>,
    pub(super) ended: Option<(Duration, How)>,
}

impl Record {
    /// The id by which a member hears of it.
    pub(super) fn id(&self) -> String {
        format!("ask-{}", self.number)
    }

    /// When something went on that was granted, until now or its end.
    pub(super) fn went_on(&self) -> Option<Duration> {
        let granted = |status: u16| status == 101 || (200..300).contains(&status);
        let (at, _) = self.answered.filter(|(_, status)| granted(*status))?;
        Some(at)
    }
}

/// All of a run. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Records(Rc<RefCell<Vec<Record>>>);

impl Records {
    pub(super) fn look<T>(&self, look: impl FnOnce(&[Record]) -> T) -> T {
        look(&self.0.borrow())
    }

    /// Of one that was judged nothing has to be kept.
    pub(super) fn forget(&self, number: usize) {
        self.change(number, |it| it.heard = Vec::new());
    }

    fn change(&self, number: usize, change: impl FnOnce(&mut Record)) {
        change(&mut self.0.borrow_mut()[number]);
    }

    fn begin(&self, ask: &Ask, at: Duration) -> usize {
        let mut all = self.0.borrow_mut();
        let number = all.len();
        all.push(Record {
            number,
            ask: ask.clone(),
            began: at,
            answered: None,
            heard: Vec::new(),
            said: Vec::new(),
            ended: None,
        });
        number
    }
}

/// What a large object has in it.
pub(super) fn large(number: usize) -> String {
    let letter = char::from(b'a' + u8::try_from(number % 26).unwrap_or_default());
    letter.to_string().repeat(LENGTH)
}

/// An object that a user makes.
pub(super) fn made(number: usize) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("made-{number}")},
        "data": {"large": large(number)}})
    .to_string()
}

pub(super) const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// One who asks.
#[derive(Clone)]
pub(super) struct Asker {
    pub(super) world: World,
    pub(super) records: Records,
}

impl Asker {
    /// Asks, waits for the end, and says which it was.
    pub(super) async fn ask(self, ask: Ask, chain: Vec<CertificateDer<'static>>) -> usize {
        let number = self.records.begin(&ask, self.world.age());
        let patience = Duration::from_millis(ask.patience);
        let asked = timeout(patience, self.asked(number, &ask, chain)).await;
        let how = asked.unwrap_or(How::GivenUp);
        let at = self.world.age();
        self.records.change(number, |it| it.ended = Some((at, how)));
        let note = self.records.look(|all| {
            let it = &all[number];
            let (heard, how) = (it.heard.len(), &it.ended);
            format!(
                "{} of {} to m{} {:?}: {:?}, {heard} bytes, {how:?}",
                it.id(),
                ask.user,
                ask.member,
                ask.what,
                it.answered
            )
        });
        self.world.note(&note);
        number
    }

    async fn asked(&self, number: usize, ask: &Ask, chain: Vec<CertificateDer<'static>>) -> How {
        let unanswered = |error: &dyn std::error::Error| How::Unanswered(error.to_string());
        let is_taken = matches!(ask.what, Wanted::Exec(_));
        let protocol = match ask.h2 && !is_taken {
            true => Protocol::Http2,
            false => Protocol::Http1,
        };
        let hub = HostPort::new(&HUB.ip().to_string(), HUB.port());
        let end = self.world.connect(&ask.user, FROM, &hub, chain, protocol);
        let end = match end {
            Ok(end) => end,
            Err(error) => return unanswered(&error),
        };
        let request = request(number, ask);
        let answer = match protocol {
            Protocol::Http2 => over_http2(end, request).await,
            _ => over_http1(end, request).await,
        };
        match answer {
            Ok((answer, _connection)) => self.heard(number, ask, answer).await,
            Err(error) => unanswered(&error),
        }
    }

    /// Takes an answer in.
    async fn heard(&self, number: usize, ask: &Ask, answer: Response<Incoming>) -> How {
        let status = answer.status();
        let at = self.world.age();
        let answered = Some((at, status.as_u16()));
        self.records.change(number, |it| it.answered = answered);
        if let (Wanted::Exec(seconds), StatusCode::SWITCHING_PROTOCOLS) = (ask.what, status) {
            return self.talk(number, seconds, answer).await;
        }
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => {
                    let data = frame.into_data().unwrap_or_default();
                    let hear = |it: &mut Record| it.heard.extend_from_slice(&data);
                    self.records.change(number, hear);
                }
                Err(error) => return How::Broken(error.to_string()),
            }
        }
        How::Clean
    }

    /// Says something now and then on a connection that was taken over, hears what comes, and ends it in order.
    async fn talk(&self, number: usize, seconds: u64, answer: Response<Incoming>) -> How {
        let broken = |error: &dyn std::error::Error| How::Broken(error.to_string());
        let connection = match hyper::upgrade::on(answer).await {
            Ok(connection) => connection,
            Err(error) => return broken(&error),
        };
        let (mut reads, mut writes) = split(TokioIo::new(connection));
        let says = async {
            for line in 0..seconds * 2 {
                let text = format!("ask-{number} {line}\n");
                if writes.write_all(text.as_bytes()).await.is_err() {
                    // What became of it is heard.
                    return;
                }
                let say = |it: &mut Record| it.said.extend_from_slice(text.as_bytes());
                self.records.change(number, say);
                sleep(SAID_EVERY).await;
            }
            let _ = writes.shutdown().await;
        };
        let hears = async {
            let mut piece = vec![0; 1024];
            loop {
                match reads.read(&mut piece).await {
                    Ok(0) => return How::Clean,
                    Ok(size) => {
                        let hear = |it: &mut Record| it.heard.extend_from_slice(&piece[..size]);
                        self.records.change(number, hear);
                    }
                    Err(error) => return broken(&error),
                }
            }
        };
        tokio::pin!(hears);
        tokio::select! {
            biased;
            how = &mut hears => how,
            () = says => hears.await,
        }
    }
}

type Asked = (Response<Incoming>, AbortOnDropHandle<()>);

async fn over_http1(end: Endpoint, request: Request<Sent>) -> hyper::Result<Asked> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(end)).await?;
    let connection = tokio::spawn(async move { drop(connection.with_upgrades().await) });
    let connection = AbortOnDropHandle::new(connection);
    Ok((sender.send_request(request).await?, connection))
}

async fn over_http2(end: Endpoint, request: Request<Sent>) -> hyper::Result<Asked> {
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new());
    let (mut sender, connection) = builder.handshake(TokioIo::new(end)).await?;
    let connection = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
    Ok((sender.send_request(request).await?, connection))
}

fn request(number: usize, ask: &Ask) -> Request<Sent> {
    let member = format!(
        "https://hub/apis/cluster.karmada.io/v1alpha1/clusters/m{}/proxy",
        ask.member
    );
    let rest = match ask.what {
        Wanted::Get => format!("{MAPS}/small"),
        Wanted::List => format!("{MAPS}?labelSelector=size%3Dlarge"),
        Wanted::Watch(seconds) => {
            format!("{MAPS}?watch=1&resourceVersion=0&timeoutSeconds={seconds}")
        }
        Wanted::Put => MAPS.to_owned(),
        Wanted::Exec(_) => "/api/v1/namespaces/default/pods/web/exec".to_owned(),
    };
    let uri = match ask.h2 && !matches!(ask.what, Wanted::Exec(_)) {
        true => format!("{member}{rest}"),
        false => format!("{member}{rest}").replace("https://hub", ""),
    };
    let request = Request::builder()
        .uri(uri)
        .header("audit-id", format!("ask-{number}"));
    let request = match ask.what {
        Wanted::Put => request
            .method("POST")
            .header("content-type", "application/json"),
        Wanted::Exec(_) => request
            .header("connection", "Upgrade")
            .header("upgrade", "websocket"),
        _ => request,
    };
    let body = match ask.what {
        Wanted::Put => upload(number),
        _ => Empty::new().boxed_unsync(),
    };
    request.body(body).expect("a request")
}

/// An object in pieces that come one after the other.
fn upload(number: usize) -> Sent {
    let whole = Bytes::from(made(number));
    let pieces: Vec<Bytes> = whole
        .chunks(LENGTH / 4)
        .map(Bytes::copy_from_slice)
        .collect();
    let pieces = futures::stream::iter(pieces).then(|piece| async move {
        sleep(Duration::from_millis(50)).await;
        Ok(Frame::data(piece))
    });
    StreamBody::new(pieces).boxed_unsync()
}
