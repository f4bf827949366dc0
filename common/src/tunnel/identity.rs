//! On whose behalf a request is made in the member.

use super::headers::{GROUP, USER};
use http::{HeaderMap, HeaderValue};

/// What stands before users and groups of the hub that begin with `system:`: a name that means something to every API
/// server is another one in the member, where its owner may give rights to it.
pub const HUB_PREFIX: &str = "towline:hub:";
/// The one user as whom members of groups come into a member whose owner lists groups alone; nobody's own name.
pub const PROXIED: &str = "towline:proxied";
/// Where the member then finds the name of who it is, in its audit log for one.
pub const PROXIED_USER: &str = "towline.dev/user";
/// Names that mean something to every API server.
const SYSTEM: &str = "system:";
/// The member gives this group itself, to everybody who has a name.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Most groups of one user.
const GROUPS_MAX: usize = 100;

/// A user of the hub by the names that the member knows them by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    user: String,
    groups: Vec<String>,
}

/// An identity that a member cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// No user, or more than one.
    #[error("a request through the tunnel must have one user")]
    NoUser,
    /// Not to be written in a header.
    #[error("user or group {0:?} has characters that no header may have")]
    Unwritable(String),
    /// A name of the member's own, or that of another one there.
    #[error("{0:?} is a name of the member's own, as which nobody comes through the tunnel")]
    Reserved(String),
    /// More groups than anybody has.
    #[error("a user has more than {GROUPS_MAX} groups")]
    Groups,
}

impl Identity {
    /// What the member calls a user of the hub. Extra fields and the UID stay on the hub.
    pub fn of(user: &str, groups: &[String]) -> Result<Self, Unfit> {
        let groups = groups.iter().filter(|group| *group != AUTHENTICATED);
        // Another one's name in the member, whoever gave it to them here.
        let mut names = groups.clone().map(String::as_str).chain([user]);
        if let Some(name) = names.find(|name| name.starts_with(HUB_PREFIX)) {
            return Err(Unfit::Reserved(name.to_owned()));
        }
        let identity = Self {
            user: in_member(user),
            groups: groups.map(|group| in_member(group)).collect(),
        };
        identity.checked()
    }

    /// The user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The groups.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// Says it in the head of a request.
    pub fn write(&self, headers: &mut HeaderMap) -> Result<(), Unfit> {
        headers.insert(USER, value(&self.user)?);
        headers.remove(GROUP);
        for group in &self.groups {
            headers.append(GROUP, value(group)?);
        }
        Ok(())
    }

    /// Reads what a hub said, and believes it no name that is the member's own.
    pub fn read(headers: &HeaderMap) -> Result<Self, Unfit> {
        let mut users = headers.get_all(USER).iter();
        let (Some(user), None) = (users.next(), users.next()) else {
            return Err(Unfit::NoUser);
        };
        let groups = headers.get_all(GROUP).iter().map(text);
        let identity = Self {
            user: text(user)?,
            groups: groups.collect::<Result<_, _>>()?,
        };
        identity.checked()
    }

    fn checked(self) -> Result<Self, Unfit> {
        if self.user.is_empty() {
            return Err(Unfit::NoUser);
        }
        if self.groups.len() > GROUPS_MAX {
            return Err(Unfit::Groups);
        }
        let own = {
            let mut names = self.groups.iter().chain([&self.user]);
            names
                .find(|name| name.starts_with(SYSTEM) || *name == PROXIED)
                .cloned()
        };
        own.map_or(Ok(self), |own| Err(Unfit::Reserved(own)))
    }
}

/// What a member calls a user or group of the hub.
pub fn in_member(name: &str) -> String {
    match name.starts_with(SYSTEM) {
        true => format!("{HUB_PREFIX}{name}"),
        false => name.to_owned(),
    }
}

/// What the hub calls a user or group of its own that a member calls so.
pub fn on_hub(name: &str) -> &str {
    let of_hub = name.strip_prefix(HUB_PREFIX);
    of_hub
        .filter(|name| name.starts_with(SYSTEM))
        .unwrap_or(name)
}

fn value(name: &str) -> Result<HeaderValue, Unfit> {
    HeaderValue::from_bytes(name.as_bytes()).map_err(|_| Unfit::Unwritable(name.to_owned()))
}

fn text(value: &HeaderValue) -> Result<String, Unfit> {
    let bytes = value.as_bytes();
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned)
        .map_err(|_| Unfit::Unwritable(String::from_utf8_lossy(bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(user: &str, groups: &[&str]) -> Result<Identity, Unfit> {
        let groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
        Identity::of(user, &groups)
    }

    #[test]
    fn nobody_is_called_as_members_of_groups_are() {
        for got in [of(PROXIED, &["dev"]), of("ann", &[PROXIED])] {
            assert_eq!(got, Err(Unfit::Reserved(PROXIED.to_owned())));
        }
        let mut headers = HeaderMap::new();
        headers.insert(USER, HeaderValue::from_static(PROXIED));
        assert!(Identity::read(&headers).is_err());
        assert!(of("towline:proxied2", &[]).is_ok());
    }

    #[test]
    fn names_of_the_system_are_others_in_the_member() {
        let got = of(
            "system:serviceaccount:kube-system:x",
            &["system:masters", "system:authenticated", "dev"],
        );
        let got = got.expect("fit");
        assert_eq!(
            got.user(),
            "towline:hub:system:serviceaccount:kube-system:x"
        );
        assert_eq!(got.groups(), ["towline:hub:system:masters", "dev"]);
        for (user, groups) in [
            ("towline:hub:system:admin", &[][..]),
            ("ann", &["dev", "towline:hub:system:masters"]),
        ] {
            assert!(
                matches!(of(user, groups), Err(Unfit::Reserved(_))),
                "{user}"
            );
        }
        for name in ["system:masters", "dev", "towline:hub:dev"] {
            assert_eq!(on_hub(&in_member(name)), name);
        }
    }

    #[test]
    fn what_a_hub_says_is_one_whole_identity_or_none() {
        let head = |pairs: &[(&'static str, &str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_str(value).expect("a value"));
            }
            Identity::read(&headers)
        };
        let ann = head(&[(USER, "ann"), (GROUP, "dev"), (GROUP, "ops")]).expect("fit");
        assert_eq!((ann.user(), ann.groups().len()), ("ann", 2));
        assert_eq!(head(&[(GROUP, "dev")]), Err(Unfit::NoUser));
        assert_eq!(head(&[(USER, "")]), Err(Unfit::NoUser));
        assert_eq!(head(&[(USER, "a"), (USER, "b")]), Err(Unfit::NoUser));
        for pairs in [
            [(USER, "system:admin"), (GROUP, "dev")],
            [(USER, "ann"), (GROUP, "system:masters")],
        ] {
            assert!(matches!(head(&pairs), Err(Unfit::Reserved(_))), "{pairs:?}");
        }
        let many = vec!["g"; GROUPS_MAX + 1];
        assert_eq!(of("ann", &many), Err(Unfit::Groups));
        assert!(
            of("a\nb", &[])
                .expect("fit")
                .write(&mut HeaderMap::new())
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(user in "[ -~äß]{1,20}", groups in prop::collection::vec("[!-~ü]{1,9}", 0..5)) {
            let said = Identity::of(&user, &groups).expect("fit");
            let mut headers = HeaderMap::new();
            said.write(&mut headers).expect("written");
            prop_assert_eq!(Identity::read(&headers), Ok(said));
        }
    }
}
