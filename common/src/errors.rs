//! The one way to print an error: the whole chain, each link once.

use std::error::Error;
use std::fmt;

/// Formats `error` and its sources as `a: b: c`.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl fmt::Display + fmt::Debug + 'a {
    Chain(error)
}

struct Chain<'a>(&'a (dyn Error + 'static));

/// One link. An API server's answer is shown as the sentence it is; its own `Display` and its sources
/// repeat it with the whole structure around it.
fn link<'a>(error: &'a (dyn Error + 'static)) -> (String, Option<&'a (dyn Error + 'static)>) {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => (answer(status), None),
        _ => (error.to_string(), error.source()),
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

    #[derive(Debug, thiserror::Error)]
    #[error("failed to read the token")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn an_answer_of_the_api_server_is_shown_as_its_sentence() {
        let status = kube::core::Status {
            message: "clusters \"m1\" not found".into(),
            code: 404,
            ..Default::default()
        };
        let error = kube::Error::Api(Box::new(status));
        assert_eq!(chain(&error).to_string(), "clusters \"m1\" not found");
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
