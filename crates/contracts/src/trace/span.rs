//! A span, and what is done within it.

use std::{
    cell::RefCell,
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;

use super::{Kind, Recorded, Recorder, Value, recorder};
use crate::envelope::TraceContext;

thread_local! {
    static CURRENT: RefCell<Span> = const { RefCell::new(Span::none()) };
}

/// Something that is done, from now until the last of its clones is dropped. Where nobody records
/// traces it is nothing.
#[derive(Clone, Default)]
pub struct Span(Option<Arc<dyn Recorded>>);

impl Span {
    /// No span.
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    /// The span that this is done within.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.with_borrow(Self::clone)
    }

    /// Begins a span within the current one, or a trace where there is none. `describe` is called
    /// when it is recorded.
    #[must_use]
    pub fn begin(kind: Kind, describe: impl FnOnce(&dyn Recorded)) -> Self {
        match recorder() {
            Some(_) => Self::current().child(kind, describe),
            None => Self::none(),
        }
    }

    /// Begins a span within this one, or a trace where this is none.
    #[must_use]
    pub fn child(&self, kind: Kind, describe: impl FnOnce(&dyn Recorded)) -> Self {
        match (&self.0, recorder()) {
            (Some(parent), _) => Self::described(parent.child(kind), describe),
            (None, Some(recorder)) => Self::described(recorder.begin(kind), describe),
            (None, None) => Self::none(),
        }
    }

    /// Begins a span that goes on with the trace of `parent`, which came with a message; as
    /// [`begin`](Self::begin) where none came, or none that can be read.
    #[must_use]
    pub fn follow(parent: &TraceContext, kind: Kind, describe: impl FnOnce(&dyn Recorded)) -> Self {
        let follow = |recorder: &'static dyn Recorder| recorder.follow(kind, parent);
        match recorder().and_then(follow) {
            Some(span) => Self::described(span, describe),
            None => Self::begin(kind, describe),
        }
    }

    fn described(span: Arc<dyn Recorded>, describe: impl FnOnce(&dyn Recorded)) -> Self {
        if span.is_told() {
            describe(&*span);
        }
        Self(Some(span))
    }

    /// Says something of it.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        if let Some(span) = self.told() {
            span.set(key, value.into());
        }
    }

    /// It did not succeed: `why`, in a word.
    pub fn fail(&self, why: impl Into<Value>) {
        if let Some(span) = self.told() {
            span.set("error.type", why.into());
            span.failed();
        }
    }

    /// The span as it is recorded; `None` where nobody is told of it.
    #[must_use]
    pub fn told(&self) -> Option<&dyn Recorded> {
        self.0.as_deref().filter(|span| span.is_told())
    }

    /// The context that goes with a message that is sent within it; empty where it is not recorded.
    #[must_use]
    pub fn context(&self) -> TraceContext {
        self.0.as_deref().map(Recorded::context).unwrap_or_default()
    }

    /// Makes it current while `future` is polled and when it is dropped; no span changes nothing.
    pub fn within<F: Future>(self, future: F) -> Within<F> {
        Within { future: Some(future), span: self }
    }

    /// Makes it current until the guard is dropped.
    fn enter(&self) -> Option<Entered> {
        self.0.as_ref()?;
        let before = CURRENT.with_borrow_mut(|current| mem::replace(current, self.clone()));
        Some(Entered(before))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Span").field(&self.context()).finish()
    }
}

/// Has the span before be current again when dropped.
struct Entered(Span);

impl Drop for Entered {
    fn drop(&mut self) {
        let before = mem::take(&mut self.0);
        // Dropped when the cell is free again: that may end it.
        let _left = CURRENT.with_borrow_mut(|current| mem::replace(current, before));
    }
}

pin_project! {
    /// A future that is polled within a span.
    #[must_use = "futures do nothing unless polled"]
    pub struct Within<F> {
        #[pin]
        future: Option<F>,
        span: Span,
    }

    impl<F> PinnedDrop for Within<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            let _entered = this.span.enter();
            this.future.set(None);
        }
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = this.span.enter();
        match this.future.as_pin_mut() {
            Some(future) => future.poll(context),
            // Only a future that is being dropped has none.
            None => Poll::Pending,
        }
    }
}
