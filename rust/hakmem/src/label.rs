//! Labels: what a thread or a task works for. Samples of the heap profiler carry them, so that a profile tells bytes per tenant or
//! query (`hakmem profile --by tenant`).
//!
//! ```
//! # #[global_allocator] static GLOBAL: hakmem::Hakmem = hakmem::Hakmem;
//! use hakmem::label;
//!
//! let _tenant = label::scope("tenant", "acme");
//! let rows = vec![0u8; 1 << 20]; // a sample of it is acme's
//! # assert_eq!(rows.len(), 1 << 20);
//! ```
//!
//! In an async program labels belong to a task, not to a thread. [`Labelled`] sets them whenever the task is polled:
//!
//! ```ignore
//! tokio::spawn(label::task(async move { label::set("tenant", &tenant); serve(request).await }));
//! ```

use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::task::{Context, Poll};

use crate::sys;

/// All labels of a thread or task at one moment: one word, valid for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labels(*const sys::hak_labels_t);

// SAFETY: what it points to never changes and never ends.
unsafe impl Send for Labels {}
unsafe impl Sync for Labels {}

impl Labels {
    /// No label.
    pub const NONE: Labels = Labels(core::ptr::null());

    /// Those of the calling thread.
    pub fn current() -> Labels {
        // SAFETY: has no precondition.
        Labels(unsafe { sys::hak_label_get() })
    }

    /// Gives the calling thread these labels; returns its former ones.
    pub fn set(self) -> Labels {
        // SAFETY: the pointer is the library's.
        Labels(unsafe { sys::hak_label_switch(self.0) })
    }

    /// The same until the scope ends.
    pub fn scope(self) -> Scope {
        Scope { former: self.set(), thread: PhantomData }
    }
}

/// Restores the calling thread's labels when it is dropped. Scopes end in reverse order, as variables do.
#[derive(Debug)]
#[must_use = "the labels are restored when this is dropped"]
pub struct Scope {
    former: Labels,
    thread: PhantomData<*const ()>, // neither Send nor Sync
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.former.set();
    }
}

const LONGEST: usize = 256;

/// The text for C, as far as the library keeps it, and up to its first NUL.
fn terminated(text: &str) -> [u8; LONGEST + 1] {
    let mut out = [0; LONGEST + 1];
    let length = text.len().min(LONGEST);
    out[..length].copy_from_slice(&text.as_bytes()[..length]);
    out
}

/// Sets one label of the calling thread, and in a [`Labelled`] future of its task, until something else sets it.
pub fn set(key: &str, value: &str) -> Labels {
    let (key, value) = (terminated(key), terminated(value));
    // SAFETY: both end in a NUL.
    Labels(unsafe { sys::hak_label_set(key.as_ptr().cast(), value.as_ptr().cast()) })
}

/// The same until the scope ends.
pub fn scope(key: &str, value: &str) -> Scope {
    Scope { former: set(key, value), thread: PhantomData }
}

/// A future with labels of its own: the thread that polls it has them meanwhile.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Labelled<F> {
    labels: Labels,
    future: F,
}

/// The future as a task with the labels that the calling thread has now.
pub fn task<F: Future>(future: F) -> Labelled<F> {
    Labelled { labels: Labels::current(), future }
}

impl<F: Future> Future for Labelled<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is pinned with the structure, from which nothing moves it; the labels are no part of that.
        let this = unsafe { self.get_unchecked_mut() };
        let thread = this.labels.scope();
        let result = unsafe { Pin::new_unchecked(&mut this.future) }.poll(context);
        this.labels = Labels::current();
        drop(thread);
        result
    }
}
