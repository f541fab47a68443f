//! Times and rates of calls, for benchmarks that compare paths of a call.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::{task::JoinSet, time::Instant};

/// Number of calls whose times are measured.
pub const CALLS: usize = 400;
const IN_FLIGHT: usize = 16;

/// A call over one of the paths.
pub type MeasuredCall = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Returns the median of the times of [`CALLS`] calls, one after the other.
pub async fn p50(call: &MeasuredCall) -> Duration {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let started_at = Instant::now();
        call().await;
        times.push(started_at.elapsed());
    }
    times.sort_unstable();
    times[CALLS / 2]
}

/// Returns the calls per second with 16 concurrent calls.
pub async fn rate(call: &MeasuredCall) -> f64 {
    let started_at = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let call = call.clone();
        tasks.spawn(async move {
            for _ in 0..2 * CALLS / IN_FLIGHT {
                call().await;
            }
        });
    }
    tasks.join_all().await;
    (2 * CALLS) as f64 / started_at.elapsed().as_secs_f64()
}

/// Returns the median.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
