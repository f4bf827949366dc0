//! What `towline join` leaves on the hub about a member that the hub reaches itself: Secret `karmada-cluster/<cluster>`,
//! written by the command and read by `towline-agent push`.
//!
//! `token` and `caBundle` are the keys that Karmada's join writes. The rest is ours: the credentials go nowhere but
//! where the Secret itself says, for whoever may write Clusters could otherwise have them sent to a place of their own.

use crate::client::MemberTarget;
use crate::secret::Secret;
use crate::tunnel::Mode;
use k8s_openapi::ByteString;
use std::collections::BTreeMap;

/// Key of the token of a ServiceAccount of the member.
const TOKEN: &str = "token";
/// Key of the certificates, as PEM, by which the member's API server is verified; without it those of the machine.
const CA_BUNDLE: &str = "caBundle";
/// Key of the URL of the member's API server.
const SERVER: &str = "server";
/// Key of the name in its certificate, where that is not the host of the URL.
const SERVER_NAME: &str = "tls-server-name";
/// Key of the proxy towards the member, which may hold a password.
const PROXY: &str = "proxy-url";
/// Key of what the proxy is told besides, as an object in JSON.
const PROXY_HEADERS: &str = "proxy-header";
/// Key of the reserved namespaces that Works may reach, split by commas.
const ALLOWED: &str = "allow-namespace";
/// Key of what of the member is open to users of the hub.
const MODE: &str = "proxy";

/// The credentials of a member, where they may be sent, and what its owner said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// URL of its API server.
    pub server: String,
    /// Certificates as PEM; those of the machine without.
    pub ca_pem: Option<String>,
    /// Name in the server's certificate; the host of the URL without.
    pub server_name: Option<String>,
    /// Token of the agent's ServiceAccount in it.
    pub token: Secret<String>,
    /// The proxy on the way.
    pub proxy: Option<Secret<String>>,
    /// Headers that it is told.
    pub proxy_headers: Secret<BTreeMap<String, String>>,
    /// Reserved namespaces that Works may reach.
    pub allowed: Vec<String>,
    /// What is open to users of the hub.
    pub mode: Mode,
}

/// The way to a member as its Cluster shows it: `spec.apiEndpoint` and `spec.proxyURL`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Way {
    /// URL of the API server.
    pub api_endpoint: Option<String>,
    /// The proxy, without user and password.
    pub proxy_url: Option<String>,
}

/// Why a Secret is not one of `towline join`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A key is not there, or empty.
    #[error("it has no key {0:?}")]
    Missing(&'static str),
    /// A value is no text.
    #[error("the value of its key {0:?} is no text")]
    NotText(&'static str),
    /// Another word than there is.
    #[error("the value of its key {MODE:?} is none of off, read-only and impersonate")]
    Mode,
    /// No object in JSON. What it is is not repeated.
    #[error("the value of its key {PROXY_HEADERS:?} is no object of texts in JSON")]
    Headers,
}

impl Joined {
    /// What the Secret's `stringData` is.
    pub fn data(&self) -> BTreeMap<&'static str, String> {
        let mut data = BTreeMap::from([
            (SERVER, self.server.clone()),
            (TOKEN, self.token.expose().clone()),
            (MODE, self.mode.to_string()),
        ]);
        let proxy = self.proxy.as_ref().map(|proxy| proxy.expose().clone());
        let headers = self.proxy_headers.expose();
        let headers = (!headers.is_empty()).then(|| serde_json::json!(headers).to_string());
        let allowed = (!self.allowed.is_empty()).then(|| self.allowed.join(","));
        for (key, value) in [
            (CA_BUNDLE, self.ca_pem.clone()),
            (SERVER_NAME, self.server_name.clone()),
            (PROXY, proxy),
            (PROXY_HEADERS, headers),
            (ALLOWED, allowed),
        ] {
            data.extend(value.map(|value| (key, value)));
        }
        data
    }

    /// Reads a Secret's `data`.
    pub fn read(data: &BTreeMap<String, ByteString>) -> Result<Self, Invalid> {
        let text = |key: &'static str| match data.get(key).map(|bytes| str::from_utf8(&bytes.0)) {
            None | Some(Ok("")) => Ok(None),
            Some(Ok(text)) => Ok(Some(text.to_owned())),
            Some(Err(_)) => Err(Invalid::NotText(key)),
        };
        let needed = |key: &'static str| text(key)?.ok_or(Invalid::Missing(key));
        let headers = text(PROXY_HEADERS)?.unwrap_or_else(|| "{}".to_owned());
        let headers = serde_json::from_str(&headers).map_err(|_| Invalid::Headers)?;
        let allowed = text(ALLOWED)?.unwrap_or_default();
        let allowed = allowed.split(',').filter(|name| !name.is_empty());
        let mode = match text(MODE)? {
            None => Mode::Off,
            Some(mode) => Mode::named(&mode).ok_or(Invalid::Mode)?,
        };
        Ok(Self {
            server: needed(SERVER)?,
            ca_pem: text(CA_BUNDLE)?,
            server_name: text(SERVER_NAME)?,
            token: Secret::new(needed(TOKEN)?.trim().to_owned()),
            proxy: text(PROXY)?.map(Secret::new),
            proxy_headers: Secret::new(headers),
            allowed: allowed.map(str::to_owned).collect(),
            mode,
        })
    }

    /// How the member is spoken to.
    pub fn target(&self) -> MemberTarget {
        MemberTarget {
            server: self.server.clone(),
            ca_pem: self.ca_pem.clone(),
            server_name: self.server_name.clone(),
            token: self.token.clone(),
            proxy: self.proxy.clone(),
            proxy_headers: self.proxy_headers.clone(),
        }
    }

    /// The way as the Cluster is to show it.
    pub fn way(&self) -> Way {
        Way {
            api_endpoint: Some(self.server.clone()),
            proxy_url: self.proxy.as_ref().map(|proxy| shown(proxy.expose())),
        }
    }
}

/// A proxy's URL without who one is there, and without the `/` at its end that some write.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    format!("{scheme}://{}", place.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined() -> Joined {
        Joined {
            server: "https://member:6443".into(),
            ca_pem: Some("PEM".into()),
            server_name: None,
            token: Secret::new("aaa.bbb.ccc".into()),
            proxy: Some(Secret::new("http://me:hunter2@proxy:3128/".into())),
            proxy_headers: Secret::new(BTreeMap::from([("X-Team".into(), "hunter2".into())])),
            allowed: vec!["kube-a".into(), "kube-b".into()],
            mode: Mode::ReadOnly,
        }
    }

    fn stored(joined: &Joined) -> BTreeMap<String, ByteString> {
        let data = joined.data().into_iter();
        data.map(|(key, value)| (key.to_owned(), ByteString(value.into_bytes())))
            .collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let whole = joined();
        assert_eq!(Joined::read(&stored(&whole)), Ok(whole));
        let least = Joined {
            ca_pem: None,
            proxy: None,
            proxy_headers: Secret::default(),
            allowed: Vec::new(),
            mode: Mode::Off,
            ..joined()
        };
        assert_eq!(Joined::read(&stored(&least)), Ok(least));
    }

    #[test]
    fn no_password_is_shown() {
        let whole = joined();
        assert!(!format!("{whole:?}").contains("hunter2"));
        let way = whole.way();
        assert_eq!(way.proxy_url.as_deref(), Some("http://proxy:3128"));
        assert_eq!(way.api_endpoint.as_deref(), Some("https://member:6443"));
    }

    #[test]
    fn other_secrets_are_refused() {
        let mut karmadas = stored(&joined());
        karmadas.remove(SERVER);
        assert_eq!(Joined::read(&karmadas), Err(Invalid::Missing(SERVER)));
        let mut odd = stored(&joined());
        odd.insert(MODE.to_owned(), ByteString(b"on".to_vec()));
        assert_eq!(Joined::read(&odd), Err(Invalid::Mode));
        let mut text = stored(&joined());
        text.insert(PROXY_HEADERS.to_owned(), ByteString(b"[1]".to_vec()));
        assert_eq!(Joined::read(&text), Err(Invalid::Headers));
        odd.insert(TOKEN.to_owned(), ByteString(vec![0xff]));
        assert_eq!(Joined::read(&odd), Err(Invalid::Mode));
        odd.remove(MODE);
        assert_eq!(Joined::read(&odd), Err(Invalid::NotText(TOKEN)));
    }
}
