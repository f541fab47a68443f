//! How much of a run is ours.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};

use crate::bed::{Bed, in_cluster, run};

#[tokio::test]
async fn the_manager_adds_little_to_what_the_cluster_takes() {
    in_cluster(async |bed| {
        let runner = bed.runner();
        let (mut runs, mut shares) = (Vec::new(), Vec::new());
        for _ in 0..7 {
            let begun = Instant::now();
            let (ended, (made, done)) = tokio::join!(
                async {
                    run(&runner, "print(1)").await.unwrap();
                    Instant::now()
                },
                seen_from_beside(&bed)
            );
            runs.push(ended - begun);
            // From the question to a pod, and from the last state of the pod to the answer.
            shares.push((made - begun) + ended.saturating_duration_since(done));
        }
        let (run, share) = (median(&mut runs), median(&mut shares));
        println!("a script takes {run:?}, {share:?} of it ours: runs {runs:?}, shares {shares:?}");
        // 50 ms is the goal; on a machine that is the cluster as well, a part is what can be told.
        assert!(share < Duration::from_millis(50) || share < run / 4, "{share:?} of {run:?}");
    })
    .await;
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// When the next pod is made, and when its script has ended, as another watch is told.
async fn seen_from_beside(bed: &Bed) -> (Instant, Instant) {
    let watched = bed.pods().watch(&WatchParams::default(), "").await;
    let mut events = watched.unwrap().into_stream().boxed();
    let mut made = None;
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event.unwrap() else { continue };
        match &made {
            // The one before is still there.
            None if has_ended(&pod) => {}
            None => made = Some((pod.metadata.uid, Instant::now())),
            Some((uid, since)) if *uid == pod.metadata.uid && has_ended(&pod) => {
                return (*since, Instant::now());
            }
            Some(_) => {}
        }
    }
    panic!("the watch ended");
}

fn has_ended(pod: &Pod) -> bool {
    let containers =
        pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.filter_map(|one| one.state.as_ref()).any(|state| state.terminated.is_some())
}
