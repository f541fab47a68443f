//! Validation of arguments and structured results within limits.

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{Executed, outside_text::stripped};
use serde_json::Value;
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use super::{
    ArgumentSchema,
    metered::{self, Exceeded, Limits, MeteredValue},
};
use crate::{context::ToolContext, failure::ToolFailure};

/// Steps that run in place, on the thread of the caller.
const IN_PLACE_STEPS: u64 = 20_000;
/// Stack of an evaluation in place.
const IN_PLACE_STACK: usize = 256 * 1024;

/// Threads for longer evaluations, in the whole process.
static THREADS: Semaphore = Semaphore::const_new(2);
/// Steps on such a thread.
const THREAD_STEPS: u64 = 20_000_000;
/// Stack on such a thread. It has 2 MiB.
const THREAD_STACK: usize = 1024 * 1024;
/// Time limit on such a thread.
const THREAD_TIME: Duration = Duration::from_secs(2);
/// Time limit of the wait for such a thread and its evaluation.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Steps of the search for problems in arguments that are not valid. Each problem needs memory.
const PROBLEM_STEPS: u64 = 50_000;
/// Maximum number of problems in one error. The rest is reported after the model has corrected these.
const MAX_PROBLEMS: usize = 5;

/// Validates arguments, and returns them as the tool receives them: models write null for
/// arguments that they omit.
///
/// # Errors
/// [`ToolFailure::InvalidArguments`] with the path and the expected form of each problem, or when the
/// evaluation takes too long. [`ToolFailure::Overloaded`] when too many evaluations are running. The
/// tool has not run.
pub(crate) async fn accept(
    schema: &Arc<ArgumentSchema>,
    arguments: Value,
    context: &ToolContext,
) -> Result<Value, ToolFailure> {
    validate(schema, Subject::Arguments, arguments, context).await
}

/// Returns how the structured content of a result violates the schema that its tool declares, or that it
/// could not be validated; `None` if it is valid. Takes at most 10 s.
pub async fn output_violation(
    schema: &Arc<ArgumentSchema>,
    content: &Value,
    context: &ToolContext,
) -> Option<String> {
    match validate(schema, Subject::Output, content.clone(), context).await {
        Ok(_) => None,
        Err(ToolFailure::InvalidArguments { message }) => Some(message),
        Err(_) => Some("it could not be validated in time".to_owned()),
    }
}

/// The validated value.
#[derive(Debug, Clone, Copy)]
enum Subject {
    /// Arguments of a call. Optional ones that are null count as omitted.
    Arguments,
    /// Structured content of a result.
    Output,
}

/// Validates a value, in place or on another thread.
async fn validate(
    schema: &Arc<ArgumentSchema>,
    subject: Subject,
    value: Value,
    context: &ToolContext,
) -> Result<Value, ToolFailure> {
    let limits = Limits {
        steps: IN_PLACE_STEPS,
        steps_per_byte: schema.patterns,
        stack_bytes: IN_PLACE_STACK,
        until: None,
    };
    if let Ok(accepted) = schema.evaluate(subject, &value, limits) {
        return accepted.map(|replaced| replaced.unwrap_or(value));
    }
    let deadline = context.deadline.min(Instant::now() + MAX_WAIT);
    let on_thread = async {
        let permit = THREADS.acquire().await.ok()?;
        let schema = schema.clone();
        let evaluation = spawn_blocking(move || {
            // Released when the evaluation has ended, even if the caller has left.
            let _permit = permit;
            let until = Instant::now() + THREAD_TIME;
            let until = Some(until.min(deadline).into_std());
            let limits = Limits { steps: THREAD_STEPS, stack_bytes: THREAD_STACK, until, ..limits };
            let accepted = schema.evaluate(subject, &value, limits);
            accepted.map(|accepted| accepted.map(|replaced| replaced.unwrap_or(value)))
        });
        evaluation.await.ok()
    };
    tokio::select! {
        biased;
        () = context.cancellation.cancelled() => {
            Err(ToolFailure::Cancelled { executed: Executed::No })
        }
        accepted = timeout_at(deadline, on_thread) => match accepted {
            Ok(Some(Ok(accepted))) => accepted,
            Ok(Some(Err(exceeded))) => Err(too_complex(subject, exceeded)),
            Ok(None) => Err(ToolFailure::Overloaded {
                message: "the arguments could not be validated; try again".to_owned(),
            }),
            Err(_) if context.remaining().is_zero() => Err(ToolFailure::TimedOut {
                after: Duration::ZERO,
                executed: Executed::No,
                repeatable: true,
            }),
            Err(_) => Err(ToolFailure::Overloaded {
                message: "too many arguments are being validated; try again".to_owned(),
            }),
        }
    }
}

fn too_complex(subject: Subject, exceeded: Exceeded) -> ToolFailure {
    ToolFailure::invalid(match (subject, exceeded) {
        (Subject::Arguments, Exceeded::Stack) => {
            "they nest too deeply for the tool's schema; send fewer levels"
        }
        (Subject::Arguments, Exceeded::Steps | Exceeded::Time) => {
            "their validation against the tool's schema takes too long; send fewer or shorter values"
        }
        (Subject::Output, Exceeded::Stack) => "it nests too deeply to be validated",
        (Subject::Output, Exceeded::Steps | Exceeded::Time) => "its validation takes too long",
    })
}

/// Returns arguments to use in place of the given ones, if they had to be changed.
type Accepted = Result<Option<Value>, ToolFailure>;

impl ArgumentSchema {
    fn evaluate(
        &self,
        subject: Subject,
        value: &Value,
        limits: Limits,
    ) -> Result<Accepted, Exceeded> {
        if self.is_valid(value, limits)? {
            return Ok(Ok(None));
        }
        let without_nulls = match subject {
            Subject::Arguments => self.without_nulls(value),
            Subject::Output => None,
        };
        if let Some(without_nulls) = without_nulls {
            if self.is_valid(&without_nulls, limits)? {
                return Ok(Ok(Some(without_nulls)));
            }
            return Ok(Err(self.problems(subject, &without_nulls, limits)));
        }
        Ok(Err(self.problems(subject, value, limits)))
    }

    fn is_valid(&self, arguments: &Value, limits: Limits) -> Result<bool, Exceeded> {
        metered::within(limits, || self.validator.is_valid(MeteredValue(arguments)))
    }

    /// Returns the failure for a value that is not valid.
    fn problems(&self, subject: Subject, value: &Value, limits: Limits) -> ToolFailure {
        let root = match subject {
            Subject::Arguments => "arguments",
            Subject::Output => "structured content",
        };
        let limits = Limits { steps: PROBLEM_STEPS, ..limits };
        let problems = metered::within(limits, || {
            let errors = self.validator.iter_errors(MeteredValue(value)).take(MAX_PROBLEMS);
            let problems = errors.map(|error| {
                let path = error.instance_path().to_string();
                let path = if path.is_empty() { root } else { path.as_str() };
                // Without the value: it may be long, and the model knows it.
                format!("{path}: {}", error.masked_with("the value"))
            });
            // The schema may come from outside.
            stripped(&problems.collect::<Vec<_>>().join("; ")).into_owned()
        });
        ToolFailure::invalid(problems.unwrap_or_else(|_| {
            format!("{root}: too complex to list the differences from the tool's schema")
        }))
    }

    /// Returns the arguments without optional ones that are null, or `None` without any.
    fn without_nulls(&self, arguments: &Value) -> Option<Value> {
        let given = arguments.as_object()?;
        let remaining: serde_json::Map<_, _> = given
            .iter()
            .filter(|(name, value)| !value.is_null() || self.required.contains(*name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        (remaining.len() < given.len()).then_some(Value::Object(remaining))
    }
}
