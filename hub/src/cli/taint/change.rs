//! Taints as a command line names them, and what they make of those of a Cluster. Pure.

use common::api::cluster::{Taint, TaintEffect};

/// Why a word is no change of a taint.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    /// No form of a taint.
    #[error(
        "invalid taint spec: {0}; it is KEY=VALUE:EFFECT or KEY:EFFECT to put one on, KEY:EFFECT- or KEY- to take it off"
    )]
    Form(String),
    /// Another effect than those there are.
    #[error("invalid taint effect: {0}, unsupported taint effect; it is NoSchedule or NoExecute")]
    Effect(String),
    /// Twice the same.
    #[error("duplicated taints with the same key and effect: {0}")]
    Duplicate(String),
    /// Put on and taken off at once.
    #[error("can not both modify and remove the following taint in the same command: {0}")]
    Both(String),
}

/// Why taints do not fit those that are there.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    /// Another value is there.
    #[error("already has {0} taints with the same effect; --overwrite replaces the value")]
    Present(String),
    /// None to take off.
    #[error("taint {0:?} not found")]
    Absent(String),
}

/// A taint that goes; of every effect without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removal {
    key: String,
    effect: Option<TaintEffect>,
}

/// What is to become of the taints of a Cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Change {
    put: Vec<Taint>,
    remove: Vec<Removal>,
    /// What is to go need not be there.
    lenient: bool,
}

impl Change {
    /// Reads words as `dedicated=db:NoSchedule`, `drain:NoExecute` and `dedicated-`.
    pub(crate) fn parse<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, Invalid> {
        let mut change = Self::default();
        for word in words {
            match word.strip_suffix('-') {
                Some(removal) => {
                    change.remove.push(read_removal(removal, word)?);
                }
                None => {
                    let taint = read_taint(word)?;
                    if change.put.iter().any(|other| is_same(other, &taint)) {
                        return Err(Invalid::Duplicate(word.to_owned()));
                    }
                    change.put.push(taint);
                }
            }
        }
        let both = change.put.iter().find(|taint| change.removes(taint));
        match both {
            Some(taint) => Err(Invalid::Both(taint.key.clone())),
            None => Ok(change),
        }
    }

    /// Puts one taint on.
    pub(crate) fn put(taint: Taint) -> Self {
        Self {
            put: vec![taint],
            ..Self::default()
        }
    }

    /// Takes one off, if it is there.
    pub(crate) fn remove_any(key: &str, effect: TaintEffect) -> Self {
        let removal = Removal {
            key: key.to_owned(),
            effect: Some(effect),
        };
        Self {
            remove: vec![removal],
            lenient: true,
            ..Self::default()
        }
    }

    /// The taints afterwards, those of others as they are; the new ones first, as the reference has them.
    pub(crate) fn apply(&self, before: &[Taint], overwrite: bool) -> Result<Vec<Taint>, Unfit> {
        for taint in &self.put {
            let other = before.iter().find(|other| is_same(other, taint));
            if !overwrite && other.is_some_and(|other| other.value != taint.value) {
                return Err(Unfit::Present(taint.key.clone()));
            }
        }
        for removal in &self.remove {
            if !self.lenient && !before.iter().any(|taint| removal.takes(taint)) {
                return Err(Unfit::Absent(removal.key.clone()));
            }
        }
        let unchanged = |taint: &Taint| {
            let mut others = before.iter().filter(|other| is_same(other, taint));
            others.any(|other| other.value == taint.value)
        };
        let new = self.put.iter().filter(|taint| !unchanged(taint));
        let kept = before.iter().filter(|taint| {
            let replaced = self
                .put
                .iter()
                .any(|new| is_same(new, taint) && !unchanged(new));
            !replaced && !self.removes(taint)
        });
        Ok(new.chain(kept).cloned().collect())
    }

    /// What was done, as kubectl says it.
    pub(crate) fn done(&self, overwrite: bool) -> &'static str {
        match (self.put.is_empty(), self.remove.is_empty()) {
            (true, _) => "untainted",
            (false, true) if !overwrite => "tainted",
            _ => "modified",
        }
    }

    fn removes(&self, taint: &Taint) -> bool {
        self.remove.iter().any(|removal| removal.takes(taint))
    }
}

impl Removal {
    fn takes(&self, taint: &Taint) -> bool {
        self.key == taint.key && self.effect.is_none_or(|effect| effect == taint.effect)
    }
}

fn is_same(one: &Taint, other: &Taint) -> bool {
    one.key == other.key && one.effect == other.effect
}

fn read_taint(word: &str) -> Result<Taint, Invalid> {
    let form = || Invalid::Form(word.to_owned());
    let (taint, effect) = word.split_once(':').ok_or_else(form)?;
    let (key, value) = match taint.split_once('=') {
        Some((key, value)) => (
            key,
            Some(value.to_owned()).filter(|value| !value.is_empty()),
        ),
        None => (taint, None),
    };
    if key.is_empty() {
        return Err(form());
    }
    Ok(Taint {
        key: key.to_owned(),
        value,
        effect: read_effect(effect)?,
        time_added: None,
    })
}

fn read_removal(removal: &str, word: &str) -> Result<Removal, Invalid> {
    let (key, effect) = match removal.split_once(':') {
        Some((key, effect)) => (key, Some(read_effect(effect)?)),
        None => (removal, None),
    };
    // kubectl takes KEY=VALUE:EFFECT- as well; the value says nothing.
    let key = key.split_once('=').map_or(key, |(key, _)| key);
    if key.is_empty() {
        return Err(Invalid::Form(word.to_owned()));
    }
    Ok(Removal {
        key: key.to_owned(),
        effect,
    })
}

fn read_effect(text: &str) -> Result<TaintEffect, Invalid> {
    match text {
        "NoSchedule" => Ok(TaintEffect::NoSchedule),
        "NoExecute" => Ok(TaintEffect::NoExecute),
        other => Err(Invalid::Effect(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taints(words: &[&str]) -> Vec<Taint> {
        words
            .iter()
            .map(|word| read_taint(word).expect("a taint"))
            .collect()
    }

    fn change(words: &[&str]) -> Change {
        Change::parse(words.iter().copied()).expect("a change")
    }

    #[test]
    fn what_words_make_of_taints() {
        for (before, words, overwrite, after, done) in [
            (
                &[][..],
                &["a=b:NoSchedule"][..],
                false,
                &["a=b:NoSchedule"][..],
                "tainted",
            ),
            (
                &["x:NoExecute"],
                &["a:NoSchedule"],
                false,
                &["a:NoSchedule", "x:NoExecute"],
                "tainted",
            ),
            // The same once more changes nothing, wherever it stands.
            (
                &["x:NoExecute", "a=b:NoSchedule"],
                &["a=b:NoSchedule"],
                false,
                &["x:NoExecute", "a=b:NoSchedule"],
                "tainted",
            ),
            (
                &["a=b:NoSchedule"],
                &["a=c:NoSchedule"],
                true,
                &["a=c:NoSchedule"],
                "modified",
            ),
            // Another effect is another taint.
            (
                &["a=b:NoSchedule"],
                &["a=c:NoExecute"],
                false,
                &["a=c:NoExecute", "a=b:NoSchedule"],
                "tainted",
            ),
            (
                &["a=b:NoSchedule", "a:NoExecute", "z:NoSchedule"],
                &["a-"],
                false,
                &["z:NoSchedule"],
                "untainted",
            ),
            (
                &["a=b:NoSchedule", "a:NoExecute"],
                &["a:NoExecute-"],
                false,
                &["a=b:NoSchedule"],
                "untainted",
            ),
            (
                &["a=b:NoSchedule"],
                &["a=b:NoSchedule-"],
                false,
                &[],
                "untainted",
            ),
            (
                &["a:NoSchedule"],
                &["a-", "b:NoSchedule"],
                false,
                &["b:NoSchedule"],
                "modified",
            ),
        ] {
            let change = change(words);
            let now = change.apply(&taints(before), overwrite).expect("fits");
            assert_eq!(now, taints(after), "{before:?} {words:?}");
            assert_eq!(change.done(overwrite), done, "{before:?} {words:?}");
        }
    }

    #[test]
    fn what_is_no_change() {
        for (words, expected) in [
            (&["a"][..], "invalid taint spec: a"),
            (&[":NoSchedule"], "invalid taint spec"),
            (&["a:Never"], "invalid taint effect: Never"),
            (
                &["a:PreferNoSchedule"],
                "invalid taint effect: PreferNoSchedule",
            ),
            (&["a=b:NoSchedule", "a=c:NoSchedule"], "duplicated taints"),
            (&["a=b:NoSchedule", "a-"], "both modify and remove"),
            (&["-"], "invalid taint spec"),
        ] {
            let error = Change::parse(words.iter().copied()).expect_err("no change");
            assert!(error.to_string().contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let before = taints(&["a=b:NoSchedule"]);
        let other = change(&["a=c:NoSchedule"]).apply(&before, false);
        assert_eq!(other, Err(Unfit::Present("a".to_owned())));
        let absent = change(&["b-"]).apply(&before, false);
        assert_eq!(absent, Err(Unfit::Absent("b".to_owned())));
    }
}
