//! Bootstrap tokens in kubeadm's form: `<id>.<secret>`, where only the id may be shown.

use crate::identity::BOOTSTRAP_USER_PREFIX;
use crate::secret::Secret;
use rand::{CryptoRng, Rng};
use std::fmt;

const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Why a text is not a bootstrap token. It never repeats the text: it may be a mistyped secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a bootstrap token must have the form abcdef.0123456789abcdef (lower case letters and digits)"
)]
pub struct InvalidToken;

/// A bootstrap token. `Debug` shows the id only.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    id: String,
    secret: Secret<String>,
}

impl BootstrapToken {
    /// Reads a token; surrounding white space, as files have it, is ignored.
    pub fn parse(text: &str) -> Result<Self, InvalidToken> {
        let (id, secret) = text.trim().split_once('.').ok_or(InvalidToken)?;
        let valid = |part: &str, length: usize| {
            part.len() == length && part.bytes().all(|b| ALPHABET.contains(&b))
        };
        if !valid(id, ID_LENGTH) || !valid(secret, SECRET_LENGTH) {
            return Err(InvalidToken);
        }
        Ok(Self {
            id: id.to_owned(),
            secret: Secret::new(secret.to_owned()),
        })
    }

    /// Makes a token. A chosen secret can be guessed offline from the public signature that it keys,
    /// so this is the only way to make one.
    pub fn generate(rng: &mut (impl Rng + CryptoRng)) -> Self {
        let mut text = |length: usize| -> String {
            (0..length)
                .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
                .collect()
        };
        Self {
            id: text(ID_LENGTH),
            secret: Secret::new(text(SECRET_LENGTH)),
        }
    }

    /// The public half.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The secret half.
    pub fn secret(&self) -> &Secret<String> {
        &self.secret
    }

    /// The whole token, as it is sent to the API server.
    pub fn bearer(&self) -> Secret<String> {
        Secret::new(format!("{}.{}", self.id, self.secret.expose()))
    }

    /// Name of the Secret in `kube-system` that holds the token.
    pub fn secret_name(&self) -> String {
        secret_name(&self.id)
    }

    /// The user the API server knows the token's holder as.
    pub fn user_name(&self) -> String {
        format!("{BOOTSTRAP_USER_PREFIX}{}", self.id)
    }
}

/// Name of the Secret of the token with this id.
pub fn secret_name(id: &str) -> String {
    format!("bootstrap-token-{id}")
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({}.[redacted])", self.id)
    }
}

impl std::str::FromStr for BootstrapToken {
    type Err = InvalidToken;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::parse(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    #[test]
    fn tokens_are_read_and_hidden() {
        let token = BootstrapToken::parse(" abcdef.0123456789abcdef\n").expect("valid");
        assert_eq!(token.secret_name(), "bootstrap-token-abcdef");
        assert_eq!(token.user_name(), "system:bootstrap:abcdef");
        assert_eq!(token.bearer().expose(), "abcdef.0123456789abcdef");
        assert_eq!(format!("{token:?}"), "BootstrapToken(abcdef.[redacted])");
        for bad in [
            "",
            "abcdef",
            "abcdef.0123456789abcde",
            "abcdeF.0123456789abcdef",
            "abcdef.0123456789abcdef.x",
            "abcdef.0123456789abcde\u{e9}",
        ] {
            assert_eq!(BootstrapToken::parse(bad), Err(InvalidToken), "{bad}");
        }
    }

    #[test]
    fn generated_tokens_read_back_and_differ() {
        let mut rng = StdRng::seed_from_u64(7);
        let (a, b) = (
            BootstrapToken::generate(&mut rng),
            BootstrapToken::generate(&mut rng),
        );
        assert_ne!(a, b);
        assert_eq!(BootstrapToken::parse(a.bearer().expose()), Ok(a.clone()));
    }
}
