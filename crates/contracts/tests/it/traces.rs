//! What is within what, as a recorder is told.

use std::{
    pin::pin,
    sync::{Arc, Mutex, Once, PoisonError},
    task::{Context, Poll, Waker},
};

use rockbot_contracts::{
    TraceContext,
    trace::{self, Kind, Recorded, Recorder, Span, Value},
};

/// Names each span by its place, as in `1/2`, and writes down what it is told. One in `dark` is not
/// told of anything.
struct Notes;

struct Noted {
    place: String,
    children: Mutex<u32>,
}

/// What was told within the test on this thread; spans of other tests have other roots.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn note(text: String) {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).push(text);
}

fn told_of(root: &str) -> Vec<String> {
    let told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    told.iter().filter(|line| line.starts_with(root)).cloned().collect()
}

impl Noted {
    fn at(place: &str) -> Arc<Self> {
        Arc::new(Self { place: place.to_owned(), children: Mutex::new(0) })
    }
}

impl Recorder for Notes {
    fn begin(&self, _: Kind) -> Arc<dyn Recorded> {
        Noted::at("root")
    }

    fn follow(&self, _: Kind, parent: &TraceContext) -> Option<Arc<dyn Recorded>> {
        let place = parent.parent.as_deref()?;
        (place != "unreadable").then(|| Noted::at(place) as _)
    }

    fn records_content(&self) -> bool {
        false
    }
}

impl Recorded for Noted {
    fn child(&self, _: Kind) -> Arc<dyn Recorded> {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        *children += 1;
        Self::at(&format!("{}/{children}", self.place))
    }

    fn context(&self) -> TraceContext {
        TraceContext { parent: Some(self.place.as_str().into()), state: None }
    }

    fn is_told(&self) -> bool {
        !self.place.starts_with("dark")
    }

    fn name(&self, name: String) {
        note(format!("{} is {name}", self.place));
    }

    fn set(&self, key: &'static str, value: Value) {
        note(format!("{} {key}={value:?}", self.place));
    }

    fn failed(&self) {
        note(format!("{} failed", self.place));
    }

    fn happened(&self, what: String, _: Vec<(&'static str, Value)>) {
        note(format!("{}: {what}", self.place));
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        note(format!("{} ended", self.place));
    }
}

/// A span with the name of a test, which is the root of what the test does.
fn root(name: &str) -> Span {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| assert!(trace::install(Notes)));
    let parent = TraceContext { parent: Some(name.into()), state: None };
    Span::follow(&parent, Kind::Internal, |span| span.name(name.to_owned()))
}

fn place(span: &Span) -> String {
    span.context().parent.as_deref().unwrap_or_default().to_owned()
}

fn here() -> String {
    place(&Span::current())
}

fn begin() -> Span {
    Span::begin(Kind::Internal, |_| {})
}

/// Is pending once.
async fn once() {
    let mut pending = true;
    std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        match std::mem::take(&mut pending) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    })
    .await;
}

fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        assert_eq!(here(), "", "what waits is not current");
    }
}

#[test]
fn what_begins_within_a_span_is_its_child_also_after_a_wait() {
    run(root("nested").within(async {
        assert_eq!(here(), "nested");
        once().await;
        let first = begin();
        assert_eq!(place(&first), "nested/1");
        first
            .within(async {
                once().await;
                assert_eq!(place(&begin()), "nested/1/1");
            })
            .await;
        assert_eq!(here(), "nested");
        Span::none().within(async { assert_eq!(here(), "nested") }).await;
        assert_eq!(place(&begin()), "nested/2");
        let unreadable = TraceContext { parent: Some("unreadable".into()), state: None };
        for none in [unreadable, TraceContext::default()] {
            let span = Span::follow(&none, Kind::Producer, |_| {});
            assert!(place(&span).starts_with("nested/"), "no parent that can be read: {span:?}");
        }
    }));
    assert_eq!(here(), "");
    assert_eq!(place(&root("other").child(Kind::Internal, |_| {})), "other/1");
    assert_eq!(place(&begin()), "root");
}

#[test]
fn two_that_take_turns_each_see_their_own() {
    let (one, two) = (root("one"), root("two"));
    let see = async |name: &str| {
        for _ in 0..3 {
            assert_eq!(here(), name);
            once().await;
        }
    };
    let mut first = pin!(one.within(see("one")));
    let mut second = pin!(two.within(see("two")));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
    }
    assert!(first.poll(&mut context).is_ready() && second.poll(&mut context).is_ready());
}

#[test]
fn what_is_dropped_is_dropped_within_its_span() {
    struct Told;
    impl Drop for Told {
        fn drop(&mut self) {
            note(format!("dropped/here is {}", here()));
        }
    }
    let told = Told;
    let mut waits = Box::pin(root("dropped").within(async {
        once().await;
        drop(told);
    }));
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(waits);
    assert_eq!(
        told_of("dropped"),
        ["dropped is dropped", "dropped/here is dropped", "dropped ended"]
    );
    assert_eq!(here(), "");
}

#[test]
fn a_panic_leaves_no_span_behind() {
    let panics = root("panics").within(async { panic!("on purpose") });
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(panics)));
    assert!(caught.is_err());
    assert_eq!(here(), "");
    assert_eq!(told_of("panics"), ["panics is panics", "panics ended"]);
}

#[test]
fn nobody_is_told_of_what_is_not_sampled_and_its_context_goes_on() {
    let dark = root("dark");
    let child = dark.child(Kind::Client, |_| panic!("described for nobody"));
    child.set("key", "value");
    child.fail("broken");
    assert_eq!(place(&child), "dark/1");
    assert!(child.told().is_none());
    assert_eq!(told_of("dark"), [""; 0]);
}

#[test]
fn a_failure_is_told_with_its_reason() {
    let span = root("fails");
    span.fail("timeout");
    let told = ["fails is fails", r#"fails error.type=Known("timeout")"#, "fails failed"];
    assert_eq!(told_of("fails"), told);
}
