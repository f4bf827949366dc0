//! The one way to print an error: the whole chain, each link once.

use crate::client::{ConnectError, find};
use std::error::Error;
use std::fmt;

/// Formats `error` and its sources as `a: b: c`.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl fmt::Display + fmt::Debug + 'a {
    Chain(error)
}

struct Chain<'a>(&'a (dyn Error + 'static));

/// One link. An API server's answer is shown as the sentence it is; its own `Display` and its sources
/// repeat it with the whole structure around it. What kube and the HTTP client say of a request that was
/// not answered tells only in which of their layers that was: what is below them says why.
fn link<'a>(error: &'a (dyn Error + 'static)) -> (String, Option<&'a (dyn Error + 'static)>) {
    if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
        return unanswered(error);
    }
    // A source in a box is the box.
    let boxed = error.downcast_ref::<Box<kube::Error>>();
    match boxed
        .map(Box::as_ref)
        .or_else(|| error.downcast_ref::<kube::Error>())
    {
        Some(kube::Error::Api(status)) => (answer(status), None),
        Some(kube::Error::Service(below)) => link(below.as_ref()),
        Some(kube::Error::HyperError(below)) => link(below),
        _ => (error.to_string(), error.source()),
    }
}

/// What lies below an error of the HTTP client.
fn unanswered<'a>(
    error: &'a hyper_util::client::legacy::Error,
) -> (String, Option<&'a (dyn Error + 'static)>) {
    if let Some(connect) = find::<ConnectError>(error) {
        return (connect.to_string(), None);
    }
    match error.source() {
        Some(below) => (format!("the connection broke: {below}"), below.source()),
        None => ("the connection broke".to_owned(), None),
    }
}

fn answer(status: &kube::core::Status) -> String {
    if status.message.is_empty() {
        format!("the API server answered {}", status.code)
    } else {
        status.message.clone()
    }
}

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut last, mut source) = link(self.0);
        f.write_str(&last)?;
        while let Some(error) = source {
            let (text, next) = link(error);
            // Some libraries print their source in their own message; do not say it twice.
            if !last.ends_with(&text) {
                write!(f, ": {text}")?;
                last = text;
            }
            source = next;
        }
        Ok(())
    }
}

impl fmt::Debug for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::chain;
    use crate::client::{ClientOptions, Credentials, HostPort, HubTarget, hub_client};
    use crate::env::Env;
    use crate::proxy::ProxyChoice;

    /// A hub that is away: who reads it is told where, and nothing of the layers of a client.
    #[tokio::test]
    async fn a_request_without_an_answer_says_why_in_plain_words() {
        crate::tls::install_provider();
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let target = HubTarget {
            servers: vec![HostPort::new("127.0.0.1", port)],
            ca_pem: crate::tls::testing::authority("ca").pem().into_bytes(),
            proxy: ProxyChoice::direct(),
            credentials: Credentials::Anonymous,
        };
        let client =
            hub_client(&target, &ClientOptions::new("test"), &Env::system()).expect("a client");
        let request = http::Request::get("/version")
            .body(Vec::new())
            .expect("built");
        let error = client
            .request_text(request)
            .await
            .expect_err("nobody is there");
        let want = format!("127.0.0.1:{port} refused the connection");
        assert_eq!(chain(&error).to_string(), want);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("failed to read the token")]
    struct Outer(#[source] std::io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("failed to renew")]
    struct Boxed(#[source] Box<kube::Error>);

    #[test]
    fn an_answer_of_the_api_server_is_shown_as_its_sentence() {
        let status = kube::core::Status {
            message: "clusters \"m1\" not found".into(),
            code: 404,
            ..Default::default()
        };
        let error = kube::Error::Api(Box::new(status));
        assert_eq!(chain(&error).to_string(), "clusters \"m1\" not found");
        let error = Boxed(Box::new(error));
        assert_eq!(
            chain(&error).to_string(),
            "failed to renew: clusters \"m1\" not found"
        );
    }

    #[test]
    fn chain_prints_every_link_once() {
        let error = Outer(std::io::Error::other("no such file"));
        assert_eq!(
            chain(&error).to_string(),
            "failed to read the token: no such file"
        );
    }
}
