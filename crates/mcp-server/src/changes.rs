//! Notifications of changed lists.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use rmcp::{
    RoleServer,
    service::{Peer, SubscriptionContext},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    catalog_changes::CatalogChanges, client::McpClient, fleet::McpFleet, prompts, tool_listing,
};

/// Time limit for sending a notification to a client.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Digests of the lists of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Lists {
    tools: u64,
    prompts: u64,
}

impl Lists {
    fn new(fleet: &McpFleet, client: &McpClient) -> Self {
        let mut tools = DefaultHasher::new();
        for tool in tool_listing::listed(fleet, client).tools {
            tool.fingerprint().hash(&mut tools);
        }
        let mut guides = DefaultHasher::new();
        for guide in prompts::guides(fleet, client) {
            (guide.name, guide.summary).hash(&mut guides);
        }
        Self { tools: tools.finish(), prompts: guides.finish() }
    }
}

/// The lists that changed.
struct Changed {
    tools: bool,
    prompts: bool,
}

/// Watches the lists of a client.
struct ListWatch {
    fleet: Arc<McpFleet>,
    client: McpClient,
    changes: CatalogChanges,
    seen: Lists,
}

impl ListWatch {
    fn new(fleet: Arc<McpFleet>, client: McpClient) -> Self {
        let (changes, seen) = (fleet.changes(), Lists::new(&fleet, &client));
        Self { fleet, client, changes, seen }
    }

    /// Waits for a change of a list. Returns `None` when nothing can change any more.
    async fn changed(&mut self) -> Option<Changed> {
        loop {
            if !self.changes.changed().await {
                return None;
            }
            let now = Lists::new(&self.fleet, &self.client);
            let before = std::mem::replace(&mut self.seen, now);
            if now != before {
                let (tools, prompts) = (now.tools != before.tools, now.prompts != before.prompts);
                return Some(Changed { tools, prompts });
            }
        }
    }
}

/// Notifies a client with a session of changed lists, until `stop` or until it cannot be reached.
pub(crate) async fn notify_session(
    fleet: Arc<McpFleet>,
    client: McpClient,
    peer: Peer<RoleServer>,
    stop: CancellationToken,
) {
    let mut watch = ListWatch::new(fleet, client);
    loop {
        let changed = tokio::select! {
            () = stop.cancelled() => return,
            changed = watch.changed() => changed,
        };
        let Some(changed) = changed else { return };
        let notified = timeout(SEND_TIMEOUT, async {
            if changed.tools {
                peer.notify_tool_list_changed().await?;
            }
            if changed.prompts {
                peer.notify_prompt_list_changed().await?;
            }
            Ok::<_, rmcp::ServiceError>(())
        });
        if !matches!(notified.await, Ok(Ok(()))) {
            debug!("client not notified of changed lists; it reads them again later");
            if peer.is_transport_closed() {
                return;
            }
        }
    }
}

/// Notifies the subscriber of changed lists, until the subscription ends.
pub(crate) async fn notify_subscriber(
    fleet: Arc<McpFleet>,
    client: McpClient,
    subscription: &SubscriptionContext,
) {
    let mut watch = ListWatch::new(fleet, client);
    loop {
        let changed = tokio::select! {
            () = subscription.cancelled() => return,
            changed = watch.changed() => changed,
        };
        let Some(changed) = changed else { return };
        let (sink, accepted) = (subscription.sink(), subscription.accepted());
        let notified = timeout(SEND_TIMEOUT, async {
            if changed.tools && accepted.tools_list_changed == Some(true) {
                sink.notify_tool_list_changed().await?;
            }
            if changed.prompts && accepted.prompts_list_changed == Some(true) {
                sink.notify_prompt_list_changed().await?;
            }
            Ok::<_, rmcp::service::SubscriptionSendError>(())
        });
        if !matches!(notified.await, Ok(Ok(()))) {
            debug!("subscriber not notified of changed lists; it reads them again later");
        }
    }
}
