//! Who had which right when, and how long what goes on may outlive it. Pure: times are those since the beginning.

use std::collections::BTreeMap;
use std::time::Duration;

/// The hub ends what goes on without a right, a registration or a certificate within a second; so long is what it says
/// on its way at most.
pub(super) const BY_HUB: Duration = Duration::from_millis(1_100);
/// An agent ends what goes on for somebody who is let in no more, and of what it takes for true as it is asked.
pub(super) const BY_MEMBER: Duration = Duration::from_secs(30);
pub(super) const READ: Duration = Duration::from_secs(5);
/// A tunnel that carries nothing is given up after this: until then nobody hears what its agent decides.
pub(super) const GIVEN_UP: Duration = Duration::from_secs(36);

/// Whose word a right is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Word {
    Hub,
    Member,
}

/// What was given and taken, in order.
#[derive(Debug, Default)]
pub(super) struct Rights {
    has: BTreeMap<(String, u8, Word), Vec<(Duration, bool)>>,
    /// When a member's registration became another one.
    registered: BTreeMap<u8, Vec<Duration>>,
    /// When nobody hears what an agent decides.
    deaf: BTreeMap<u8, Vec<(Duration, Duration)>>,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Duration,
    pub(super) to: Duration,
}

impl Rights {
    pub(super) fn set(&mut self, user: &str, member: u8, word: Word, at: Duration, has: bool) {
        let all = self.has.entry((user.to_owned(), member, word)).or_default();
        if all.last().is_none_or(|(_, last)| *last != has) {
            all.push((at, has));
        }
    }

    /// The registration of a member is another one from now on, or none.
    pub(super) fn register_anew(&mut self, member: u8, at: Duration) {
        self.registered.entry(member).or_default().push(at);
    }

    pub(super) fn deafen(&mut self, member: u8, at: Duration, lasts: Duration) {
        let until = at + lasts + GIVEN_UP;
        self.deaf.entry(member).or_default().push((at, until));
    }

    /// When a right was away within a stretch.
    fn away(&self, user: &str, member: u8, word: Word, within: Span) -> Vec<Span> {
        let all = self.has.get(&(user.to_owned(), member, word));
        let all = all.map(Vec::as_slice).unwrap_or_default();
        let mut away = Vec::new();
        for (number, (at, has)) in all.iter().enumerate() {
            let next = all.get(number + 1).map_or(within.to, |(at, _)| *at);
            let (from, to) = ((*at).max(within.from), next.min(within.to));
            if !has && from < to {
                away.push(Span { from, to });
            }
        }
        away
    }

    /// What it outlived, of something that went on for a user in a member.
    pub(super) fn outlived(&self, user: &str, member: u8, was: Span) -> Option<String> {
        let deaf = self.deaf.get(&member).map(Vec::as_slice);
        for (word, what, bound) in [
            (Word::Hub, "the right on the hub", BY_HUB),
            (Word::Member, "being let in", BY_MEMBER),
        ] {
            for away in self.away(user, member, word, was) {
                let end = away.from + bound;
                let mut deaf = deaf.unwrap_or_default().iter();
                let is_late = word == Word::Member
                    && deaf.any(|(from, to)| {
                        *from <= end && *to >= away.from && *to + bound >= away.to
                    });
                if away.to > end && !is_late {
                    let by = away.to - away.from;
                    return Some(format!(
                        "{what}, which ended {:?} after the beginning, by {by:?}",
                        away.from
                    ));
                }
            }
        }
        let all = self.registered.get(&member);
        let mut all = all.into_iter().flatten();
        let outlived = all.find(|at| **at > was.from && **at + BY_HUB < was.to);
        outlived.map(|at| format!("the registration, which ended {at:?} after the beginning"))
    }

    /// Whether something could not have been let in, for what it needs had long been away when it began, and stayed away.
    pub(super) fn had_none(&self, user: &str, member: u8, was: Span) -> Option<&'static str> {
        let all_away = |word, before: Duration| {
            let from = was.from.saturating_sub(before);
            let within = Span { from, ..was };
            let away = self.away(user, member, word, within);
            was.from >= before && away.contains(&within)
        };
        if all_away(Word::Hub, Duration::from_millis(1)) {
            return Some("the right on the hub");
        }
        all_away(Word::Member, READ + Duration::from_millis(1)).then_some("being let in")
    }

    /// Whether a right was away at any time shortly before or meanwhile, so that a refusal is in order.
    pub(super) fn lacked(&self, user: &str, member: u8, was: Span) -> bool {
        let from = was.from.saturating_sub(READ + Duration::from_secs(1));
        let within = Span { from, ..was };
        let mut words = [Word::Hub, Word::Member].into_iter();
        words.any(|word| !self.away(user, member, word, within).is_empty())
    }

    /// Whether a member's registration was another one shortly before or meanwhile.
    pub(super) fn moved(&self, member: u8, was: Span) -> bool {
        let all = self.registered.get(&member);
        let mut all = all.into_iter().flatten();
        all.any(|at| *at <= was.to && *at + Duration::from_secs(2) >= was.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: u64, to: u64) -> Span {
        Span {
            from: Duration::from_millis(from),
            to: Duration::from_millis(to),
        }
    }

    #[test]
    fn what_goes_on_ends_soon_after_its_right() {
        let at = Duration::from_millis;
        let mut rights = Rights::default();
        for word in [Word::Hub, Word::Member] {
            rights.set("ann", 1, word, at(0), true);
        }
        assert_eq!(rights.outlived("ann", 1, span(10, 100_000)), None);
        rights.set("ann", 1, Word::Hub, at(20_000), false);
        rights.set("ann", 1, Word::Hub, at(22_000), true);
        let outlived = |from, to| rights.outlived("ann", 1, span(from, to)).is_some();
        assert!(!outlived(10, 21_000) && outlived(10, 21_500) && outlived(10, 30_000));
        assert!(
            !outlived(22_000, 90_000),
            "it began when the right was back"
        );
        assert_eq!(rights.outlived("bob", 1, span(10, 90_000)), None);
        rights.set("ann", 1, Word::Member, at(40_000), false);
        let outlived = |from, to| rights.outlived("ann", 1, span(from, to)).is_some();
        assert!(!outlived(30_000, 69_000) && outlived(30_000, 71_000));
        rights.deafen(1, at(60_000), at(1_000));
        assert_eq!(rights.outlived("ann", 1, span(30_000, 90_000)), None);
        rights.register_anew(1, at(31_000));
        assert!(rights.outlived("ann", 1, span(30_000, 33_000)).is_some());
        assert_eq!(rights.outlived("ann", 1, span(31_500, 33_000)), None);
    }

    #[test]
    fn who_lacks_a_right_gets_nothing() {
        let at = Duration::from_millis;
        let mut rights = Rights::default();
        rights.set("ann", 1, Word::Hub, at(0), true);
        rights.set("ann", 1, Word::Member, at(0), true);
        rights.set("ann", 1, Word::Member, at(10_000), false);
        let none = |from, to| rights.had_none("ann", 1, span(from, to));
        assert_eq!(none(12_000, 12_100), None, "it may not be known yet");
        assert_eq!(none(16_000, 16_100), Some("being let in"));
        assert!(rights.lacked("ann", 1, span(12_000, 12_100)));
        assert!(!rights.lacked("ann", 1, span(9_000, 9_100)));
        rights.set("ann", 1, Word::Hub, at(20_000), false);
        let none = |from, to| rights.had_none("ann", 1, span(from, to));
        assert_eq!(none(20_010, 20_020), Some("the right on the hub"));
    }
}
