//! Notifications of servers whose protocol has no handshake.

use std::time::Duration;

use futures_util::FutureExt;
use rmcp::{
    model::{ServerNotification, SubscriptionFilter},
    service::Subscription,
};
use tokio::time::timeout;

use crate::{client::Client, session::Session};

/// The time limit for subscribing to change notifications.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The stream of notifications about changed tools, prompts and followed resources. Servers with a handshake
/// send them over the session.
pub(crate) struct ChangeStream(Option<Subscription>);

impl ChangeStream {
    /// Opens the stream. It stays empty if the server does not open it.
    pub(crate) async fn open(session: &Session, client: &Client) -> Self {
        if session.has_handshake() {
            return Self(None);
        }
        let mut filter = SubscriptionFilter::builder().tools_list_changed();
        if session.has_prompts {
            filter = filter.prompts_list_changed();
        }
        let followed = client.resources().all();
        if session.has_subscriptions && !followed.is_empty() {
            filter = filter.resource_subscriptions(followed);
        }
        let opened = timeout(SUBSCRIBE_TIMEOUT, session.peer().listen(filter.build())).await;
        Self(opened.ok().and_then(Result::ok))
    }

    /// Opens the stream again, with the resources that are followed now. If the server does not open it, the
    /// earlier one stays.
    pub(crate) async fn reopen(&mut self, session: &Session, client: &Client) {
        let opened = Self::open(session, client).await;
        if opened.0.is_none() {
            return;
        }
        if self.drain(client) {
            client.notify_tools_changed();
        }
        *self = opened;
    }

    /// Opens the stream again if it has ended and resources are followed.
    pub(crate) async fn restore(&mut self, session: &Session, client: &Client) {
        let is_needed = session.has_subscriptions && !client.resources().all().is_empty();
        if self.0.is_none() && is_needed {
            self.reopen(session, client).await;
        }
    }

    /// Completes at the next change of tools or prompts; never when the server sends no notifications. Changes
    /// of resources are reported to `client`.
    pub(crate) async fn next(&mut self, client: &Client) {
        while let Some(subscription) = &mut self.0 {
            match subscription.next().await {
                Ok(Some(notification)) => {
                    if !report(notification, client) {
                        return;
                    }
                }
                // Later changes of tools are found by the next listing.
                Ok(None) | Err(_) => self.0 = None,
            }
        }
        std::future::pending::<()>().await;
    }

    /// Removes the notifications that have arrived. Returns whether tools or prompts changed.
    pub(crate) fn drain(&mut self, client: &Client) -> bool {
        let mut has_changed = false;
        while let Some(Some(Ok(Some(notification)))) =
            self.0.as_mut().map(|subscription| subscription.next().now_or_never())
        {
            has_changed |= !report(notification, client);
        }
        has_changed
    }
}

/// Reports a changed resource. Returns `false` for other notifications.
fn report(notification: ServerNotification, client: &Client) -> bool {
    match notification {
        ServerNotification::ResourceUpdatedNotification(updated) => {
            client.resources().report(updated.params.uri);
            true
        }
        _ => false,
    }
}
