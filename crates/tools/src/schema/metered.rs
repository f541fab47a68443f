//! Evaluation of schemas within limits.
//!
//! The evaluator reads arguments through [`Metered`], which counts every access. An evaluation that
//! exceeds its limits is unwound from there, so it ends even if the rest of it would take forever.

use std::{
    any::Any,
    borrow::Cow,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::Instant,
};

use jsonschema::{
    JsonType,
    json::{Array, Json, Node, NodeIdentity, Object, SerdeJson, cmp},
};
use serde_json::{Map, Number, Value};

/// Bytes of a string that cost one step, unless regular expressions read it.
const BYTES_PER_STEP: usize = 32;
/// Steps between two readings of the clock.
const STEPS_PER_CLOCK: u64 = 512;

/// Limits of an evaluation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Maximum number of accesses to the arguments.
    pub(super) steps: u64,
    /// Steps for each byte of a string that regular expressions may read.
    pub(super) steps_per_byte: u64,
    /// Maximum size of the evaluation's stack, in bytes.
    pub(super) stack_bytes: usize,
    /// Time by which it must end.
    pub(super) until: Option<Instant>,
}

/// The limit that an evaluation exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exceeded {
    Steps,
    Stack,
    Time,
}

struct Meter {
    steps: Cell<u64>,
    steps_per_byte: Cell<u64>,
    stack_top: Cell<usize>,
    stack_bytes: Cell<usize>,
    until: Cell<Option<Instant>>,
}

thread_local! {
    static METER: Meter = const {
        Meter {
            steps: Cell::new(0),
            steps_per_byte: Cell::new(0),
            stack_top: Cell::new(0),
            stack_bytes: Cell::new(0),
            until: Cell::new(None),
        }
    };
}

/// Runs an evaluation within limits.
///
/// # Errors
/// Returns the limit that it exceeded.
pub(super) fn within<T>(limits: Limits, evaluate: impl FnOnce() -> T) -> Result<T, Exceeded> {
    METER.with(|meter| {
        meter.steps.set(limits.steps);
        meter.steps_per_byte.set(limits.steps_per_byte);
        meter.stack_top.set(stack_position());
        meter.stack_bytes.set(limits.stack_bytes);
        meter.until.set(limits.until);
    });
    catch_unwind(AssertUnwindSafe(evaluate)).map_err(|panic: Box<dyn Any + Send>| {
        let exceeded = panic.downcast_ref::<Exceeded>().copied();
        exceeded.unwrap_or_else(|| resume_unwind(panic))
    })
}

#[inline(never)]
fn stack_position() -> usize {
    let here = 0_u8;
    std::ptr::from_ref(&here).addr()
}

fn charge(amount: u64) {
    let exceeded = METER.with(|meter| {
        let before = meter.steps.get();
        let Some(left) = before.checked_sub(amount) else { return Some(Exceeded::Steps) };
        meter.steps.set(left);
        if meter.stack_top.get().abs_diff(stack_position()) > meter.stack_bytes.get() {
            return Some(Exceeded::Stack);
        }
        let reads_clock = before / STEPS_PER_CLOCK != left / STEPS_PER_CLOCK;
        let until = meter.until.get().filter(|_| reads_clock);
        until.is_some_and(|until| Instant::now() >= until).then_some(Exceeded::Time)
    });
    if let Some(exceeded) = exceeded {
        // Unlike a panic, this calls no panic hook.
        resume_unwind(Box::new(exceeded));
    }
}

/// Charges for reading a text.
fn charge_text(text: &str) {
    let bytes = steps(text.len());
    let matching = METER.with(|meter| bytes.saturating_mul(meter.steps_per_byte.get()));
    charge(matching.max(steps(text.len() / BYTES_PER_STEP)));
}

fn steps(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// JSON values whose accesses are counted.
pub(super) struct Metered;

/// A value whose accesses are counted.
#[derive(Clone, Copy)]
pub(super) struct MeteredValue<'a>(pub(super) &'a Value);

impl MeteredValue<'_> {
    fn visit(&self) {
        charge(1);
    }
}

impl Json for Metered {
    type Node<'a> = MeteredValue<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut Value,
        string: &str,
        f: impl FnOnce(MeteredValue<'_>) -> T,
    ) -> T {
        SerdeJson::with_string_node(buffer, string, |value| f(MeteredValue(value)))
    }
}

impl<'a> Node<'a, Metered> for MeteredValue<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        self.visit();
        self.0.as_object().map(MeteredObject)
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        self.visit();
        self.0.as_array().map(|items| MeteredArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        self.visit();
        let text = self.0.as_str()?;
        charge_text(text);
        Some(Cow::Borrowed(text))
    }

    fn as_number(&self) -> Option<&'a Number> {
        self.visit();
        self.0.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.visit();
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        self.visit();
        self.0.is_null()
    }

    fn is_number(&self) -> bool {
        self.visit();
        self.0.is_number()
    }

    fn json_type(&self) -> JsonType {
        self.visit();
        JsonType::from(self.0)
    }

    fn string_length(&self) -> Option<u64> {
        self.visit();
        let text = self.0.as_str()?;
        charge(steps(text.len() / BYTES_PER_STEP));
        Some(steps(text.chars().count()))
    }

    fn equals_value(&self, expected: &Value) -> bool {
        self.visit();
        cmp::equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        self.visit();
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        self.visit();
        Some(NodeIdentity::new(std::ptr::from_ref(self.0).addr()))
    }
}

pub(super) struct MeteredObject<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, Metered> for MeteredObject<'a> {
    type Node = MeteredValue<'a>;
    type MemberName = &'a str;
    type MembersIter = MeteredMembers<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<MeteredValue<'a>> {
        charge(1);
        self.0.get(key.as_str()).map(MeteredValue)
    }

    fn members(&self) -> MeteredMembers<'a> {
        MeteredMembers(self.0.iter())
    }
}

pub(super) struct MeteredMembers<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for MeteredMembers<'a> {
    type Item = (&'a str, MeteredValue<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        charge(1);
        charge_text(name);
        Some((name.as_str(), MeteredValue(value)))
    }
}

pub(super) struct MeteredArray<'a>(&'a [Value]);

impl<'a> Array<'a, Metered> for MeteredArray<'a> {
    type Node = MeteredValue<'a>;
    type ElementsIter = MeteredElements<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> MeteredElements<'a> {
        MeteredElements(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        charge(steps(self.0.len()));
        <&[Value] as Array<'a, SerdeJson>>::is_unique(&self.0)
    }
}

pub(super) struct MeteredElements<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for MeteredElements<'a> {
    type Item = MeteredValue<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        charge(1);
        self.0.next().map(MeteredValue)
    }
}
