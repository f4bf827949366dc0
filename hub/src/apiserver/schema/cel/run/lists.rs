//! Lists that a schema calls sets or maps: they are equal in any order, and a sum holds nothing twice.

use super::calls::held;
use super::{Stop, Told, invalid};
use crate::apiserver::schema::cel::escaped;
use crate::apiserver::schema::{Kind, ListType, Schema};
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How the items of a list are known.
#[derive(Debug, Clone)]
enum Form {
    /// By themselves, but for those at these places: a real server holds them in one form and looks them up
    /// in another, which finds nothing.
    Set { lost: Arc<[usize]> },
    /// By these fields; a name that CEL writes differently finds nothing.
    Map(Arc<[Option<Key>]>),
}

/// The lists among some values that are more than lists. Each is known by where it stands, and kept, so
/// that nothing else can stand there.
#[derive(Debug, Clone, Default)]
pub(in crate::apiserver::schema::cel) struct Lists {
    known: HashMap<usize, (Arc<Vec<Cel>>, Form)>,
    /// Whether there are values that are none.
    invalid: bool,
}

impl Lists {
    /// Takes note of a list, if its schema says more of it.
    pub(in crate::apiserver::schema::cel) fn note(
        &mut self,
        schema: &Schema,
        raw: &[Value],
        list: &Arc<Vec<Cel>>,
    ) {
        let form = match schema.list_type() {
            _ if schema.kind() != Kind::Array => return,
            ListType::Atomic => return,
            ListType::Set => {
                let both = list.iter().zip(raw).enumerate();
                let lost = both.filter(|(_, (seen, raw))| match seen {
                    Cel::Float(_) => !raw.is_f64(),
                    Cel::Timestamp(_) | Cel::Duration(_) | Cel::Bytes(_) => true,
                    _ => false,
                });
                Form::Set {
                    lost: lost.map(|(at, _)| at).collect(),
                }
            }
            ListType::Map => {
                let keys = schema.list_map_keys().iter();
                let plain = |key: &&str| escaped(key).as_deref() == Some(*key);
                let keys = keys.map(|key| {
                    let key = Some(key.as_ref()).filter(plain)?;
                    Some(Key::String(Arc::new(key.to_owned())))
                });
                Form::Map(keys.collect())
            }
        };
        self.put(list, form);
    }

    /// A value that is none, as its schema wants another one.
    pub(in crate::apiserver::schema::cel) fn invalid(&mut self, why: String) -> Cel {
        self.invalid = true;
        invalid::invalid(why)
    }

    fn put(&mut self, list: &Arc<Vec<Cel>>, form: Form) {
        self.known.insert(address(list), (list.clone(), form));
    }

    fn form(&self, list: &Arc<Vec<Cel>>) -> Option<&Form> {
        self.known.get(&address(list)).map(|(_, form)| form)
    }

    /// Operators over such lists; nothing if there is none.
    pub(super) fn known(&mut self, function: &str, values: &[Cel]) -> Option<Told> {
        if self.known.is_empty() && !self.invalid {
            return None;
        }
        match (function, values) {
            ("_==_", [a, b]) => Some(self.equal(a, b).map(Cel::Bool)),
            ("_!=_", [a, b]) => Some(self.equal(a, b).map(|equal| Cel::Bool(!equal))),
            ("@in", [one, Cel::List(list)]) => Some(self.is_in(one, list).map(Cel::Bool)),
            ("_+_", [Cel::List(a), Cel::List(b)]) => {
                let form = self.form(a)?.clone();
                let sum = Arc::new(match &form {
                    Form::Set { lost } => united(a, b, lost),
                    Form::Map(keys) => merged(a, b, keys),
                });
                self.put(&sum, form);
                Some(Ok(Cel::List(sum)))
            }
            _ => None,
        }
    }

    /// An item that is no value may be the one that is looked for, unless another one is.
    fn is_in(&self, one: &Cel, list: &[Cel]) -> Result<bool, Stop> {
        let mut failed = None;
        for item in list {
            match self.equal(item, one) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(false), Err)
    }

    /// Whether two values are equal; the left one says how.
    fn equal(&self, a: &Cel, b: &Cel) -> Result<bool, Stop> {
        match (a, b) {
            (Cel::List(a), Cel::List(b)) if a.len() == b.len() => self.equal_lists(a, b),
            (Cel::Map(a), Cel::Map(b)) if a.map.len() == b.map.len() => {
                all(a.map.iter(), |(key, one)| match b.map.get(key) {
                    Some(other) => self.equal(one, other),
                    None => Ok(false),
                })
            }
            (Cel::List(_), Cel::List(_)) | (Cel::Map(_), Cel::Map(_)) => Ok(false),
            _ => match invalid::error(a) {
                Some(error) => Err(error),
                None => Ok(self.equal_held(a, b)?.unwrap_or_else(|| a == b)),
            },
        }
    }

    /// Whether two optionals are equal that hold something.
    fn equal_held(&self, a: &Cel, b: &Cel) -> Result<Option<bool>, Stop> {
        match (held(a), held(b)) {
            (Some(Some(a)), Some(Some(b))) => self.equal(a, b).map(Some),
            _ => Ok(None),
        }
    }

    fn equal_lists(&self, a: &Arc<Vec<Cel>>, b: &[Cel]) -> Result<bool, Stop> {
        match self.form(a) {
            None => all(a.iter().zip(b), |(a, b)| self.equal(a, b)),
            Some(Form::Set { lost }) => {
                let known = all_but(a, lost);
                Ok(b.iter().all(|one| known.contains(&known_by(one))))
            }
            Some(Form::Map(keys)) => {
                let known = a.iter().filter_map(|one| Some((key_of(one, keys)?, one)));
                let known: HashMap<String, &Cel> = known.collect();
                let found = |one| known.get(&key_of(one, keys)?);
                all(b.iter(), |one| match found(one) {
                    Some(a) => self.equal(a, one),
                    None => Ok(false),
                })
            }
        }
    }
}

/// Whether something holds for all; what cannot be told ends the look.
fn all<T>(
    of: impl Iterator<Item = T>,
    holds: impl Fn(T) -> Result<bool, Stop>,
) -> Result<bool, Stop> {
    for one in of {
        if !holds(one)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn address(list: &Arc<Vec<Cel>>) -> usize {
    Arc::as_ptr(list).addr()
}

/// What tells plain values apart.
fn known_by(value: &Cel) -> String {
    format!("{value:?}")
}

/// What tells the items of a list apart that are known by keys.
fn key_of(item: &Cel, keys: &[Option<Key>]) -> Option<String> {
    let Cel::Map(Map { map }) = item else {
        return None;
    };
    let values = keys.iter().map(|key| map.get(key.as_ref()?));
    Some(values.map(|value| format!("{value:?},")).collect())
}

/// What is found in a set.
fn all_but(set: &[Cel], lost: &[usize]) -> HashSet<String> {
    let items = set.iter().enumerate();
    let found = items.filter(|(at, _)| !lost.contains(at));
    found.map(|(_, one)| known_by(one)).collect()
}

/// All of the one, then what else there is in the other.
fn united(a: &[Cel], b: &[Cel], lost: &[usize]) -> Vec<Cel> {
    let mut all = all_but(a, lost);
    let mut sum = a.to_vec();
    sum.extend(b.iter().filter(|one| all.insert(known_by(one))).cloned());
    sum
}

/// The one with the other's items in place of its own, then what else there is in the other.
fn merged(a: &[Cel], b: &[Cel], keys: &[Option<Key>]) -> Vec<Cel> {
    let keyed = a.iter().enumerate();
    let places = keyed.filter_map(|(at, one)| Some((key_of(one, keys)?, at)));
    let places: HashMap<String, usize> = places.collect();
    let mut sum = a.to_vec();
    for one in b {
        let place = key_of(one, keys).and_then(|key| places.get(&key));
        match place.and_then(|at| sum.get_mut(*at)) {
            Some(place) => *place = one.clone(),
            None => sum.push(one.clone()),
        }
    }
    sum
}
