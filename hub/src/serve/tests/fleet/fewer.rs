//! The smallest part of a plan that still fails.

/// Leaves out of these steps what can be left out while the rest `still` fails: halves first, single steps last. Asks
/// at most so often.
pub(super) fn fewer<S: Clone>(
    steps: &[S],
    most: usize,
    mut still: impl FnMut(&[S]) -> bool,
) -> Vec<S> {
    let mut steps = steps.to_vec();
    let mut asked = 0;
    let mut part = steps.len().div_ceil(2);
    while part > 0 && asked < most {
        let mut from = 0;
        while from < steps.len() && asked < most {
            let mut less = steps.clone();
            less.drain(from..(from + part).min(steps.len()));
            asked += 1;
            if still(&less) {
                steps = less;
            } else {
                from += part;
            }
        }
        part /= 2;
    }
    steps
}

#[test]
fn what_is_needed_stays() {
    let steps: Vec<u32> = (0..50).collect();
    let needs = |less: &[u32]| less.contains(&7) && less.contains(&31);
    assert_eq!(fewer(&steps, 200, needs), [7, 31]);
    let mut asked = 0;
    let some = fewer(&steps, 3, |less| {
        asked += 1;
        needs(less)
    });
    assert_eq!(asked, 3);
    assert!(needs(&some), "{some:?}");
    assert_eq!(fewer(&steps, 200, |_| false), steps);
    assert!(fewer(&steps, 200, |_| true).is_empty());
}
