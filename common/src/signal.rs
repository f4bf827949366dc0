//! A value that changes, and wakes whoever waits for that: tokio's `sync::watch`, but for the order in which
//! it wakes. There it is drawn, and no run could be repeated; here who waited first is woken first.

use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::Notify;

/// Nobody can change the value any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody can change it any more")]
pub struct Closed;

/// Changes the value. Clones change the same.
pub struct Sender<T>(Arc<Shared<T>>);

/// Looks at the value, and knows which one it has seen. Clones have seen the same.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The value, which does not change while this is held: briefly, and never while something is waited for.
#[derive(Debug)]
pub struct Ref<'a, T>(RwLockReadGuard<'a, Current<T>>);

struct Shared<T> {
    current: RwLock<Current<T>>,
    senders: AtomicUsize,
    changed: Notify,
}

#[derive(Debug)]
struct Current<T> {
    value: T,
    /// Counts the changes.
    version: u64,
}

/// Both ends of a value; the receiver has seen it.
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(value);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Shared<T> {
    fn read(&self) -> RwLockReadGuard<'_, Current<T>> {
        // A value is replaced whole, or by code that does not panic half-way.
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the value is another one than that of version `seen`.
    async fn changed(&self, seen: &mut u64) -> Result<(), Closed> {
        loop {
            // Enrolled before looking, so that what comes after the look wakes.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let closed = self.senders.load(Ordering::Acquire) == 0;
            let version = self.read().version;
            if version != *seen {
                *seen = version;
                return Ok(());
            }
            if closed {
                return Err(Closed);
            }
            changed.await;
        }
    }
}

impl<T> Sender<T> {
    /// A value that nobody looks at yet.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            current: RwLock::new(Current { value, version: 0 }),
            senders: AtomicUsize::new(1),
            changed: Notify::new(),
        }))
    }

    /// Somebody who looks, and has seen what there is.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = self.0.read().version;
        Receiver {
            shared: self.0.clone(),
            seen,
        }
    }

    /// The value.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.0.read())
    }

    /// Puts another value in place, and returns the earlier one.
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|current| std::mem::swap(current, &mut value));
        value
    }

    /// Changes the value, and tells everybody.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            change(value);
            true
        });
    }

    /// Changes the value, and tells everybody if `change` says that it did.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        {
            let current = self.0.current.write();
            let mut current = current.unwrap_or_else(PoisonError::into_inner);
            if !change(&mut current.value) {
                return false;
            }
            current.version += 1;
        }
        self.0.changed.notify_waiters();
        true
    }
}

impl<T> Receiver<T> {
    /// The value; what was not seen before stays so.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.read())
    }

    /// The value, which is seen with that.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let current = self.shared.read();
        self.seen = current.version;
        Ref(current)
    }

    /// Takes the value of this moment for seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.read().version;
    }

    /// Whether there is a value that was not seen.
    pub fn has_changed(&self) -> Result<bool, Closed> {
        let closed = self.shared.senders.load(Ordering::Acquire) == 0;
        match self.shared.read().version != self.seen {
            false if closed => Err(Closed),
            changed => Ok(changed),
        }
    }

    /// Waits for a value that was not seen, which is seen with that. Can be dropped while it waits, and no
    /// change is lost.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        self.shared.changed(&mut self.seen).await
    }

    /// Waits until the value is as it is wanted; it may be already.
    pub async fn wait_for(
        &mut self,
        mut wanted: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, Closed> {
        let Self { shared, seen } = self;
        loop {
            {
                let current = shared.read();
                *seen = current.version;
                if wanted(&current.value) {
                    return Ok(Ref(current));
                }
            }
            shared.changed(seen).await?;
        }
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.senders.fetch_add(1, Ordering::Relaxed);
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.0.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.changed.notify_waiters();
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
            seen: self.seen,
        }
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&*self.borrow()).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&*self.borrow()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn who_waits_first_is_woken_first() {
        let sender = Sender::new(0_usize);
        let order: Arc<Mutex<Vec<u32>>> = Arc::default();
        let mut waiting = JoinSet::new();
        for number in 0..64 {
            let (mut receiver, order) = (sender.subscribe(), order.clone());
            waiting.spawn(async move {
                for _ in 0..3 {
                    receiver.changed().await.expect("open");
                    order.lock().expect("no panic").push(number);
                }
            });
        }
        let told = || order.lock().expect("no panic").len();
        for round in 1..=3 {
            // Until all wait: as often as there are tasks is enough.
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
            sender.send_replace(round);
            while told() < 64 * round {
                tokio::task::yield_now().await;
            }
        }
        while waiting.join_next().await.is_some() {}
        let order = order.lock().expect("no panic").clone();
        let turn: Vec<u32> = (0..64).collect();
        assert_eq!(order, [turn.as_slice(); 3].concat());
    }

    #[tokio::test]
    async fn a_change_is_told_once_and_the_last_one_after_the_end() {
        let (sender, mut receiver) = channel(1);
        assert_eq!(receiver.has_changed(), Ok(false));
        assert!(!sender.send_if_modified(|_| false));
        assert_eq!(receiver.has_changed(), Ok(false));
        assert_eq!(sender.send_replace(2), 1);
        sender.send_modify(|value| *value += 1);
        receiver.changed().await.expect("open");
        assert_eq!((*receiver.borrow(), *sender.borrow()), (3, 3));
        assert_eq!(receiver.has_changed(), Ok(false));
        let found = receiver.wait_for(|value| *value == 3).await;
        assert_eq!(*found.expect("it is"), 3);
        let other = sender.clone();
        drop(sender);
        let mut late = other.subscribe();
        other.send_replace(4);
        drop(other);
        assert_eq!(*receiver.borrow(), 4);
        assert_eq!(receiver.changed().await, Ok(()));
        assert_eq!(receiver.changed().await, Err(Closed));
        assert!(late.wait_for(|value| *value == 5).await.is_err());
    }

    #[tokio::test]
    async fn the_end_wakes_who_waits() {
        let (sender, mut receiver) = channel(());
        let waits = tokio::spawn(async move { receiver.changed().await });
        tokio::task::yield_now().await;
        drop(sender);
        assert_eq!(waits.await.expect("no panic"), Err(Closed));
    }
}
