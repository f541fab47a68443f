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
        let mut shares = Vec::new();
        for _ in 0..7 {
            let begun = Instant::now();
            let (ended, (made, done)) = tokio::join!(
                async {
                    run(&runner, "print(1)").await.unwrap();
                    Instant::now()
                },
                seen_from_beside(&bed)
            );
            // From the question to a pod, and from the last state of the pod to the answer.
            let ours = (made - begun) + (ended - done);
            shares.push(ours);
            println!("{:?} in all, {ours:?} of it ours", ended - begun);
        }
        shares.sort();
        let median = shares[shares.len() / 2];
        println!("median of our share: {median:?}");
        // The goal is 50 ms on a machine of one's own.
        assert!(median < Duration::from_millis(250), "{shares:?}");
    })
    .await;
}

/// When the next pod is made, and when its script has ended, as another watch is told.
async fn seen_from_beside(bed: &Bed) -> (Instant, Instant) {
    let watched = bed.pods().watch(&WatchParams::default(), "").await;
    let mut events = watched.unwrap().into_stream().boxed();
    let mut made = None;
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event.unwrap() else { continue };
        if has_ended(&pod) {
            return (made.expect("it was made before"), Instant::now());
        }
        made.get_or_insert_with(Instant::now);
    }
    panic!("the watch ended");
}

fn has_ended(pod: &Pod) -> bool {
    let containers =
        pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.filter_map(|one| one.state.as_ref()).any(|state| state.terminated.is_some())
}
