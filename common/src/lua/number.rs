//! Whole numbers among those of scripts, which are all floats.

/// The first number that 64 bits do not hold any more.
const BEYOND: f64 = 9_223_372_036_854_775_808.0;

/// A number without a fraction as one of 64 bits; none where it has a fraction or does not fit. It is never written out
/// for that: the 301 digits of a large one take thousands of times as long, and a list may be full of them.
pub(super) fn whole(number: f64) -> Option<i64> {
    let fits = number.fract() == 0.0 && (-BEYOND..BEYOND).contains(&number);
    #[expect(clippy::cast_possible_truncation, reason = "its range is asked for")]
    let rounded = number as i64;
    fits.then_some(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_64_bits_hold_is_whole() {
        for (number, expected) in [
            (0.0, Some(0)),
            (-0.0, Some(0)),
            (1.5, None),
            (-3.0, Some(-3)),
            (9_007_199_254_740_992.0, Some(9_007_199_254_740_992)),
            (9_223_372_036_854_774_784.0, Some(9_223_372_036_854_774_784)),
            (BEYOND, None),
            (-BEYOND, Some(i64::MIN)),
            (-9_223_372_036_854_777_856.0, None),
            (1e300, None),
            (-1e300, None),
            (f64::INFINITY, None),
            (f64::NAN, None),
        ] {
            assert_eq!(whole(number), expected, "{number}");
        }
    }

    proptest! {
        /// As its digits say, when they are read.
        #[test]
        fn it_is_what_is_written(any in any::<f64>(), near in -1e19..1e19) {
            for number in [any, any.trunc(), near, near.trunc()] {
                let written = format!("{number:.0}").parse::<i64>().ok();
                prop_assert_eq!(whole(number), written.filter(|_| number.fract() == 0.0));
            }
        }
    }
}
