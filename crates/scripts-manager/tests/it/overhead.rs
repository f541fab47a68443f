//! Overhead of the manager in a run.

use std::time::{Duration, Instant};

use futures_util::{
    StreamExt,
    stream::{BoxStream, TryStreamExt},
};
use k8s_openapi::{
    api::core::v1::{Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::api::{Api, DeleteParams, LogParams, PostParams, WatchEvent, WatchParams};

use crate::fixture::{in_cluster, run};

/// The time until the pod was created, and from the exit of its container until the output was read.
#[derive(Clone, Copy)]
struct Times {
    creation: Duration,
    completion: Duration,
}

#[tokio::test]
async fn manager_overhead_is_small() {
    in_cluster(async |cluster| {
        let runner = cluster.runner();
        let (mut runs, mut managed, mut direct) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..7 {
            let watched = cluster.pods().watch(&WatchParams::default(), "").await.unwrap();
            let start = Instant::now();
            let (end, observed) = tokio::join!(
                async {
                    run(&runner, "print(1)").await.unwrap();
                    Instant::now()
                },
                observe_next_pod(watched.into_stream().boxed())
            );
            runs.push(end - start);
            let completion = end.saturating_duration_since(observed.exited);
            managed.push(Times { creation: observed.created - start, completion });
            direct.push(run_directly(&cluster.pods(), observed.pod).await);
        }
        let median_of = |times: &[Times], part: fn(&Times) -> Duration| {
            median(&mut times.iter().map(part).collect::<Vec<_>>())
        };
        let [creation, completion]: [fn(&Times) -> Duration; 2] =
            [|times| times.creation, |times| times.completion];
        let overhead =
            |part| median_of(&managed, part).saturating_sub(median_of(&direct, part));
        let (run, share) = (median(&mut runs), overhead(creation) + overhead(completion));
        println!(
            "a script takes {run:?}: {:?} until its pod is created and {:?} after its exit; the cluster \
             alone takes {:?} and {:?}; the overhead of the manager is {share:?}",
            median_of(&managed, creation),
            median_of(&managed, completion),
            median_of(&direct, creation),
            median_of(&direct, completion),
        );
        // The goal is 50 ms; a machine that also runs the cluster may be busy.
        assert!(share < Duration::from_millis(50) || share < run / 4, "{share:?} of {run:?}");
    })
    .await;
}

/// Runs a copy of a pod with a plain client of the API.
async fn run_directly(pods: &Api<Pod>, like: Pod) -> Times {
    let name = format!("{}-copy", like.metadata.name.unwrap_or_default());
    let metadata = ObjectMeta {
        name: Some(name.clone()),
        annotations: like.metadata.annotations,
        ..ObjectMeta::default()
    };
    let spec = like.spec.map(|spec| PodSpec { node_name: None, ..spec });
    let pod = Pod { metadata, spec, status: None };
    let watched = pods.watch(&WatchParams::default(), "").await.unwrap();
    let (start, params) = (Instant::now(), PostParams::default());
    let (_, observed) = tokio::join!(
        async { pods.create(&params, &pod).await.unwrap() },
        observe_next_pod(watched.into_stream().boxed())
    );
    pods.logs(&name, &LogParams::default()).await.unwrap();
    let completion = observed.exited.elapsed();
    pods.delete(&name, &DeleteParams::default().grace_period(0)).await.unwrap();
    Times { creation: observed.created - start, completion }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// A pod as observed by a separate watch.
struct ObservedPod {
    /// The pod when it was created.
    pod: Pod,
    created: Instant,
    exited: Instant,
}

/// Observes the next pod until its container has exited.
async fn observe_next_pod(mut events: BoxStream<'_, kube::Result<WatchEvent<Pod>>>) -> ObservedPod {
    let mut first = None;
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event.unwrap() else { continue };
        match &first {
            // The previous pod still exists.
            None if has_exited(&pod) => {}
            None => first = Some((pod, Instant::now())),
            Some((created, since))
                if created.metadata.uid == pod.metadata.uid && has_exited(&pod) =>
            {
                return ObservedPod {
                    pod: created.clone(),
                    created: *since,
                    exited: Instant::now(),
                };
            }
            Some(_) => {}
        }
    }
    panic!("the watch ended");
}

fn has_exited(pod: &Pod) -> bool {
    let containers =
        pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.filter_map(|one| one.state.as_ref()).any(|state| state.terminated.is_some())
}
