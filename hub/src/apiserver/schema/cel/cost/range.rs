//! Between what and what a size or a cost lies.

use std::ops::{Add, Mul};

const TWO_TO_64: f64 = 18_446_744_073_709_551_616.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Range {
    pub(super) const UNKNOWN: Self = Self {
        min: 0,
        max: u64::MAX,
    };
    /// Of nothing yet.
    pub(super) const EMPTY: Self = Self {
        min: u64::MAX,
        max: 0,
    };

    pub(super) const fn just(value: u64) -> Self {
        Self {
            min: value,
            max: value,
        }
    }

    /// From zero up, where there was nothing.
    pub(super) const fn or_zero(self, nothing: bool) -> Self {
        if nothing { Self::just(0) } else { self }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    /// So much for each.
    pub(super) fn times(self, each: f64) -> Self {
        Self {
            min: scaled(self.min, each),
            max: scaled(self.max, each),
        }
    }
}

impl Add for Range {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }
}

impl Mul for Range {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }
}

/// Rounded up.
fn scaled(count: u64, each: f64) -> u64 {
    #[expect(clippy::cast_precision_loss, reason = "as the reference reckons")]
    let product = (count as f64 * each).ceil();
    if product >= TWO_TO_64 {
        return u64::MAX;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "neither negative nor too large"
    )]
    let product = product as u64;
    product
}
