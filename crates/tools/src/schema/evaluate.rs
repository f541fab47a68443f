//! Validation of arguments within limits.

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
    let limits = Limits {
        steps: IN_PLACE_STEPS,
        steps_per_byte: schema.patterns,
        stack_bytes: IN_PLACE_STACK,
        until: None,
    };
    if let Ok(accepted) = schema.evaluate(&arguments, limits) {
        return accepted.map(|replaced| replaced.unwrap_or(arguments));
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
            let accepted = schema.evaluate(&arguments, limits);
            accepted.map(|accepted| accepted.map(|replaced| replaced.unwrap_or(arguments)))
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
            Ok(Some(Err(exceeded))) => Err(too_complex(exceeded)),
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

fn too_complex(exceeded: Exceeded) -> ToolFailure {
    ToolFailure::invalid(match exceeded {
        Exceeded::Stack => "they nest too deeply for the tool's schema; send fewer levels",
        Exceeded::Steps | Exceeded::Time => {
            "their validation against the tool's schema takes too long; send fewer or shorter values"
        }
    })
}

/// Returns arguments to use in place of the given ones, if they had to be changed.
type Accepted = Result<Option<Value>, ToolFailure>;

impl ArgumentSchema {
    fn evaluate(&self, arguments: &Value, limits: Limits) -> Result<Accepted, Exceeded> {
        if self.is_valid(arguments, limits)? {
            return Ok(Ok(None));
        }
        if let Some(without_nulls) = self.without_nulls(arguments) {
            if self.is_valid(&without_nulls, limits)? {
                return Ok(Ok(Some(without_nulls)));
            }
            return Ok(Err(self.problems(&without_nulls, limits)));
        }
        Ok(Err(self.problems(arguments, limits)))
    }

    fn is_valid(&self, arguments: &Value, limits: Limits) -> Result<bool, Exceeded> {
        metered::within(limits, || self.validator.is_valid(MeteredValue(arguments)))
    }

    /// Returns the failure for arguments that are not valid.
    fn problems(&self, arguments: &Value, limits: Limits) -> ToolFailure {
        let limits = Limits { steps: PROBLEM_STEPS, ..limits };
        let problems = metered::within(limits, || {
            let errors = self.validator.iter_errors(MeteredValue(arguments)).take(MAX_PROBLEMS);
            let problems = errors.map(|error| {
                let path = error.instance_path().to_string();
                let path = if path.is_empty() { "arguments" } else { path.as_str() };
                // Without the value: it may be long, and the model knows it.
                format!("{path}: {}", error.masked_with("the value"))
            });
            // The schema may come from outside.
            stripped(&problems.collect::<Vec<_>>().join("; ")).into_owned()
        });
        ToolFailure::invalid(problems.unwrap_or_else(|_| {
            "they do not match the tool's schema, and are too complex to list the problems"
                .to_owned()
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
