//! Many requests for announcements of a tool handler's catalog.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use rockbot_bus::{Bus, Publication, Settlement, Subscription};
use rockbot_contracts::{
    Envelope, InstanceId, QueueSpec, ToolCatalog, ToolCatalogRefresh,
    json::Limits,
    topology::{tool_catalog_announce, tool_catalog_refresh},
};
use rockbot_testkit::fixture::{next_delivery, within_timeout};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::fleet::Fleet;

const REQUESTS: usize = 5000;
/// Requests that are sent at once.
const SENDS: usize = 64;
/// Shortest time between two announcements on request.
const INTERVAL: Duration = Duration::from_millis(100);

async fn request_announcements(bus: &Arc<dyn Bus>) {
    let refresh = || Envelope::from_payload(&ToolCatalogRefresh {}).with_source("mallory");
    let requests =
        (0..REQUESTS).map(|_| Publication::announcement(tool_catalog_refresh(), refresh()));
    let sent = stream::iter(requests).for_each_concurrent(SENDS, async |request| {
        bus.publish(request).await.expect("sent");
    });
    within_timeout("the requests", sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_get_few_announcements() {
    let fleet = Fleet::new();
    let bus = fleet.bus(|_| {}).await;
    let queue = QueueSpec::exclusive(&tool_catalog_announce(), &InstanceId::generate());
    let consuming = bus.consume(Subscription::new(queue, 64));
    let mut announcements = within_timeout("subscribe", consuming).await.expect("subscribed");
    let handler = fleet.handler("handler-1").await;

    let started = Instant::now();
    request_announcements(&bus).await;
    fleet.run(&["tools", "call", "list_files"]).await.assert_code(0);
    handler.send(Signal::TERM);
    handler.wait().await.assert_code(0);
    // The last announcement of a handler has no tools.
    let mut received = 0_u32;
    loop {
        let delivery = next_delivery(&mut announcements).await;
        let catalog: ToolCatalog =
            delivery.envelope().decode(Limits::default()).expect("a catalog");
        within_timeout("an ack", delivery.settle(Settlement::Ack)).await.expect("acked");
        if catalog.tools.is_empty() {
            break;
        }
        received += 1;
    }
    let elapsed = started.elapsed();
    println!("{received} announcements of {REQUESTS} requests in {elapsed:?}");
    // One at the start and one every 10 s are not requested.
    let heartbeats = 2 + elapsed.as_secs() / 10;
    let limit = elapsed.as_millis() / INTERVAL.as_millis() + u128::from(heartbeats);
    assert!(u128::from(received) <= limit, "{received} announcements in {elapsed:?}");
    assert!(received >= 2, "no announcement on request");
}
