//! Whether another replica of the agent reports this member while this one cannot reach it.
//!
//! A leader that is cut off from the member's API server can neither renew its Lease there nor see who took it. It goes on
//! reporting all the same: mostly nobody else does, and the hub is to be told that the member cannot be reached. Where
//! another replica reaches it and leads, though, the two contradict each other for ever. That shows on the hub, for nobody
//! but an agent says there that a member is ready.
//!
//! Pure.

use super::threshold::Current;

/// So often it has to show: a hub that was restored from a backup contradicts us once.
const CONTRADICTIONS: u32 = 3;

/// What is known of another replica.
#[derive(Debug, Default)]
pub(super) struct Rival {
    /// The hub was told by us that the member is not ready, and has not said otherwise since.
    denied: bool,
    contradicted: u32,
}

impl Rival {
    /// Takes in what the hub has when a round begins, and says whether another replica is at work. `cut_off` says that
    /// this one takes part in an election, and that neither its Lease nor the member's health can be read.
    pub(super) fn is_at_work(&mut self, cut_off: bool, current: Current) -> bool {
        if !cut_off {
            *self = Self::default();
            return false;
        }
        if self.denied && current == Current::True {
            self.denied = false;
            self.contradicted += 1;
        }
        self.contradicted >= CONTRADICTIONS
    }

    /// The hub has taken from us that the member is not ready.
    pub(super) fn denied(&mut self) {
        self.denied = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What happens: a round of a replica that is cut off or not, with what the hub has; or that the hub takes our word.
    enum Comes {
        Round(bool, Current),
        Denied,
    }

    #[test]
    fn who_is_contradicted_again_and_again_has_a_rival() {
        use Comes::{Denied, Round};
        use Current::{NotTrue, True};
        let contradiction = || [Denied, Round(true, True)];
        let repeat =
            |times: usize| -> Vec<Comes> { (0..times).flat_map(|_| contradiction()).collect() };
        let table: [(&str, Vec<Comes>, bool); 7] = [
            (
                "nobody else reports",
                vec![Denied, Round(true, NotTrue), Denied, Round(true, NotTrue)],
                false,
            ),
            ("the hub was restored", repeat(1), false),
            ("twice", repeat(2), false),
            ("another replica reports", repeat(3), true),
            (
                "not believed yet that the member is away",
                (0..9).map(|_| Round(true, True)).collect(),
                false,
            ),
            (
                "the member answers in between",
                repeat(2)
                    .into_iter()
                    .chain([Round(false, True)])
                    .chain(repeat(2))
                    .collect(),
                false,
            ),
            (
                "the other one's word comes late",
                [Denied, Round(true, NotTrue), Round(true, True)]
                    .into_iter()
                    .chain(repeat(2))
                    .collect(),
                true,
            ),
        ];
        for (case, comes, want) in table {
            let (mut rival, mut is_at_work) = (Rival::default(), false);
            for one in comes {
                match one {
                    Denied => rival.denied(),
                    Round(cut_off, current) => is_at_work = rival.is_at_work(cut_off, current),
                }
            }
            assert_eq!(is_at_work, want, "{case}");
        }
    }
}
