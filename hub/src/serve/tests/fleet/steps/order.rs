//! What a Work wants of an object of a member is never undone by what one wanted before.

use super::super::books::{Books, Essence, Key, is_going, manifests};
use std::collections::BTreeMap;

/// What Works wanted an object to be, one after the other, none for not to be; and how far the member came.
#[derive(Default)]
pub(in super::super) struct Offered {
    all: Vec<Option<Essence>>,
    reached: usize,
}

/// The Works of a cluster changed.
pub(super) fn wanted(books: &mut Books, cluster: &str) {
    let namespace = format!("karmada-es-{cluster}");
    let works = books.all("Work");
    let works = works.filter(|(key, it)| key.namespace == namespace && !is_going(it));
    let all = works.flat_map(|(_, it)| manifests(it));
    let now: BTreeMap<Key, Essence> = all.map(|(key, it)| (key, super::essence_of(it))).collect();
    let known = books
        .offered
        .range((cluster.to_owned(), Key::new("", "", ""))..);
    let known = known.take_while(|((of, _), _)| of == cluster);
    let known: Vec<Key> = known.map(|((_, key), _)| key.clone()).collect();
    for key in known.into_iter().chain(now.keys().cloned()) {
        let wanted = now.get(&key).cloned();
        let offered = books.offered.entry((cluster.to_owned(), key)).or_default();
        if offered.all.last() != Some(&wanted) {
            offered.all.push(wanted);
        }
    }
}

/// An object of a member is this now.
pub(super) fn step(books: &mut Books, member: &str, key: &Key, is: Option<Essence>) {
    let place = (member.to_owned(), key.clone());
    // Users of members do what they like.
    if books.meddled.contains(&place) || books.tampered.get(&place) == is.as_ref() {
        return;
    }
    let Some(offered) = books.offered.get_mut(&place) else {
        return;
    };
    let later = offered
        .all
        .iter()
        .skip(offered.reached)
        .position(|it| *it == is);
    if let Some(later) = later {
        offered.reached += later;
        return;
    }
    let before = offered.all[..offered.reached].contains(&is);
    let reached = offered.all[offered.reached].clone();
    if before && is.is_some() {
        books.problem(format!(
            "order: {key} in {member} was {reached:?}, and is {is:?}, which was wanted before"
        ));
    }
}
