//! Which ServiceAccount of a member a user of the hub is, where its owner lets them in so. Pure.

use crate::names::{USERS_NAMESPACE, is_dns_label};
use ring::digest::{SHA256, digest};

/// Longest name, in bytes.
const LONGEST: usize = 63;
/// Hex digits of the digest: of its first 128 bits.
const DIGITS: usize = 32;
/// Bytes of the name that stay readable before a dash and the digest.
const KEPT: usize = LONGEST - 1 - DIGITS;
/// The account that every namespace has.
const DEFAULT: &str = "default";
/// What is kept of a name of which nothing can be.
const NOBODY: &str = "user";

/// The name of the ServiceAccount that a user of the hub is in a member, whose name for that user is given, as
/// [`super::in_member`] makes it. It is that name itself where a ServiceAccount may have it, in at most 63 bytes; else
/// what of it may be kept, a dash, and the first 32 hex digits of its SHA-256. A name that ends so already has its own
/// digest, and so has `default`: no two users are one account, and none is one that is there before.
pub fn service_account(user: &str) -> String {
    if user != DEFAULT && may_stay(user) && !ends_in_a_digest(user) {
        return user.to_owned();
    }
    let sum = digest(&SHA256, user.as_bytes());
    let hex = sum.as_ref().iter().take(DIGITS / 2);
    let hex: String = hex.map(|byte| format!("{byte:02x}")).collect();
    let plain = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_lowercase() || c.is_ascii_digit() => c,
        _ => '-',
    };
    let kept: String = user.chars().take(KEPT).map(plain).collect();
    match kept.trim_matches('-') {
        "" => format!("{NOBODY}-{hex}"),
        kept => format!("{kept}-{hex}"),
    }
}

/// The user as whom a ServiceAccount of this name acts.
pub fn service_account_user(name: &str) -> String {
    format!("system:serviceaccount:{USERS_NAMESPACE}:{name}")
}

/// Whether it is a DNS subdomain of at most 63 bytes.
fn may_stay(name: &str) -> bool {
    name.len() <= LONGEST && name.split('.').all(is_dns_label)
}

fn ends_in_a_digest(name: &str) -> bool {
    let hex = |tail: &str| {
        let digit = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        tail.len() == DIGITS && tail.bytes().all(digit)
    };
    name.rsplit_once('-').is_some_and(|(_, tail)| hex(tail))
}

#[cfg(test)]
mod tests {
    use super::super::{Identity, in_member};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_user_is_the_account_of_their_name_or_of_its_digest() {
        for name in ["ann", "ann.smith", "ci-robot-7", &"a".repeat(63)] {
            assert_eq!(service_account(name), name);
        }
        for (name, want) in [
            ("Ann@corp.com", "ann-corp-com-"),
            ("default", "default-"),
            ("ß", "user-"),
            (&"a".repeat(64), "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-"),
        ] {
            let got = service_account(name);
            let begin = want.rsplit_once('-').map_or(want, |(begin, _)| begin);
            assert!(got.starts_with(begin) && ends_in_a_digest(&got), "{got}");
        }
        assert_eq!(
            service_account_user(&service_account("ann")),
            "system:serviceaccount:towline-users:ann"
        );
    }

    #[test]
    fn nobody_is_anothers_account() {
        let victim = service_account("Ann");
        // Whoever takes on the name of the account of another, or that of the member's user, is a third one.
        for name in [
            victim.as_str(),
            &service_account_user("ann"),
            &in_member(&service_account_user("ann")),
            "ANN",
            "ann ",
            "-ann",
            "ann-",
            "ann..",
            "a\u{338}nn",
        ] {
            let account = service_account(name);
            assert!(account != victim && account != "ann", "{name:?}: {account}");
        }
        let robot = Identity::of("system:serviceaccount:towline-users:ann", &[]).expect("fit");
        assert!(service_account(robot.user()).starts_with("towline-hub-system-serviceacco-"));
    }

    proptest! {
        #[test]
        fn it_is_always_a_name_and_never_anothers(one in "\\PC{0,80}", other in "[a-fA-F0-9.@:-]{1,40}") {
            for name in [&one, &other] {
                let account = service_account(name);
                prop_assert!(may_stay(&account), "{}", account);
                if account != *name {
                    // Nor has anybody else that account by their own name.
                    prop_assert_ne!(&service_account(&account), &account);
                }
            }
            prop_assert_eq!(one == other, service_account(&one) == service_account(&other));
        }
    }
}
