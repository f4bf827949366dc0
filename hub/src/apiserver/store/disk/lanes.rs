//! Work on a sequence by several threads, whose results come in its order.

use std::collections::VecDeque;
use std::sync::mpsc::sync_channel;
use std::thread::{available_parallelism, scope};

/// More than so many threads wait for whoever reads.
const MOST: usize = 4;
/// So much of the sequence waits for each thread.
const WAITING: usize = 2;

/// Has each of what `next` gives be worked on by one of some threads, each with a `worker` of its own, and `take`s
/// what comes of it in the same order. Ends with the first error, of whichever of the three.
pub(super) fn in_order<I, O, E, W>(
    mut next: impl FnMut() -> Result<Option<I>, E>,
    worker: impl Fn() -> W,
    mut take: impl FnMut(O) -> Result<(), E>,
) -> Result<(), E>
where
    I: Send,
    O: Send,
    E: Send,
    W: FnMut(I) -> Result<O, E> + Send,
{
    let threads = available_parallelism().map_or(1, usize::from).min(MOST);
    scope(|scope| {
        let lanes: Vec<_> = (0..threads)
            .map(|_| {
                let (give, given) = sync_channel::<I>(WAITING);
                let (done, taken) = sync_channel::<Result<O, E>>(WAITING);
                let mut work = worker();
                scope.spawn(move || {
                    for one in given {
                        // Nobody takes any more: there was an error.
                        if done.send(work(one)).is_err() {
                            return;
                        }
                    }
                });
                (give, taken)
            })
            .collect();
        let mut under_way = VecDeque::new();
        for (give, taken) in lanes.iter().cycle() {
            if under_way.len() >= threads * WAITING
                && let Some(first) = under_way.pop_front()
            {
                take(received(first)?)?;
            }
            let Some(one) = next()? else { break };
            // A thread that is gone has panicked, which the scope passes on.
            if give.send(one).is_err() {
                break;
            }
            under_way.push_back(taken);
        }
        for lane in under_way {
            take(received(lane)?)?;
        }
        Ok(())
    })
}

/// What a thread that lives answers.
fn received<O, E>(lane: &std::sync::mpsc::Receiver<Result<O, E>>) -> Result<O, E> {
    lane.recv()
        .expect("invariant: whoever is given something answers")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(numbers: u32, bad: Option<u32>) -> (Result<(), u32>, Vec<u32>) {
        let mut next = 0..numbers;
        let mut taken = Vec::new();
        let ended = in_order(
            || Ok(next.next()),
            || {
                move |one| {
                    if Some(one) == bad {
                        Err(one)
                    } else {
                        Ok(one * 2)
                    }
                }
            },
            |two| {
                taken.push(two);
                Ok(())
            },
        );
        (ended, taken)
    }

    #[test]
    fn what_comes_of_it_is_in_order() {
        for numbers in [0, 1, 2, 7, 1000] {
            let (ended, taken) = run(numbers, None);
            assert_eq!(ended, Ok(()));
            assert_eq!(taken, (0..numbers).map(|it| it * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        for bad in [0, 3, 999] {
            let (ended, taken) = run(1000, Some(bad));
            assert_eq!(ended, Err(bad));
            assert_eq!(taken.len(), bad as usize);
        }
    }
}
