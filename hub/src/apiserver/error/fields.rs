//! What is wrong with the fields of an object: the first errors, and how many more there are.

use super::{BadValue, FieldError, FieldErrorKind};
use std::ops::{Deref, DerefMut};

/// So many errors are told of one object. A body of 3 MiB can have more than a million: nobody reads them,
/// and each would take a hundred times the room of what is wrong.
pub const MOST_TOLD: usize = 100;

/// Errors of fields, in the order in which they were found. From [`MOST_TOLD`] on they are only counted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldErrors {
    told: Vec<FieldError>,
    more: usize,
}

impl FieldErrors {
    /// No errors yet.
    pub const fn new() -> Self {
        Self {
            told: Vec::new(),
            more: 0,
        }
    }

    /// One more.
    pub fn push(&mut self, error: FieldError) {
        if error.kind == FieldErrorKind::More {
            self.more += counted(&error);
        } else if self.told.len() < MOST_TOLD {
            self.told.push(error);
        } else {
            self.more += 1;
        }
    }

    /// How many there are beside those that are told.
    pub fn more(&self) -> usize {
        self.more
    }

    /// Whether no other one will be told.
    pub fn is_full(&self) -> bool {
        self.told.len() >= MOST_TOLD
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.told.clear();
        self.more = 0;
    }
}

/// How many errors the one stands for that says how many more there are.
fn counted(error: &FieldError) -> usize {
    match &error.value {
        BadValue::Is(value) => value
            .as_u64()
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(1),
        _ => 1,
    }
}

impl Deref for FieldErrors {
    type Target = [FieldError];

    fn deref(&self) -> &[FieldError] {
        &self.told
    }
}

impl DerefMut for FieldErrors {
    fn deref_mut(&mut self) -> &mut [FieldError] {
        &mut self.told
    }
}

impl From<Vec<FieldError>> for FieldErrors {
    fn from(errors: Vec<FieldError>) -> Self {
        errors.into_iter().collect()
    }
}

impl From<FieldError> for FieldErrors {
    fn from(error: FieldError) -> Self {
        std::iter::once(error).collect()
    }
}

impl FromIterator<FieldError> for FieldErrors {
    fn from_iter<I: IntoIterator<Item = FieldError>>(errors: I) -> Self {
        let mut all = Self::new();
        all.extend(errors);
        all
    }
}

impl Extend<FieldError> for FieldErrors {
    fn extend<I: IntoIterator<Item = FieldError>>(&mut self, errors: I) {
        for error in errors {
            self.push(error);
        }
    }
}

impl IntoIterator for FieldErrors {
    type Item = FieldError;
    type IntoIter =
        std::iter::Chain<std::vec::IntoIter<FieldError>, std::option::IntoIter<FieldError>>;

    /// Those that are told, then one that counts the others.
    fn into_iter(self) -> Self::IntoIter {
        let more = (self.more > 0).then(|| {
            let count = serde_json::Value::from(self.more);
            FieldError::new("<nil>", FieldErrorKind::More, count, "")
        });
        self.told.into_iter().chain(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_told_is_counted_through_every_hand() {
        let one = || FieldError::required("a", "");
        let mut errors: FieldErrors = std::iter::repeat_with(one).take(MOST_TOLD + 20).collect();
        assert_eq!((errors.len(), errors.more()), (MOST_TOLD, 20));
        errors.push(one());
        let mut all = FieldErrors::from(vec![one(), one()]);
        all.extend(errors);
        assert_eq!((all.len(), all.more()), (MOST_TOLD, 23));
        all.clear();
        assert!(all.is_empty() && all.more() == 0);
    }
}
