//! Push notifications: the addresses to which clients want the events of a task.

mod records;
mod target;

use std::{sync::Arc, time::Duration};

use rockbot_contracts::{MessageId, trace};
use rockbot_egress::{AddressRefused, EgressError, GuardedClient};
use rockbot_store::Store;
use tokio::{sync::mpsc, time::timeout};
use tracing::debug;

pub(super) use self::{
    records::{OpenPush, PushEntry, PushRecords},
    target::{NewPushTarget, PushTarget},
};
use super::{caller::Caller, error::A2aError};
use crate::guard::{AuditAction, OpenRecord};

/// Time limit for the resolution of the name of a target.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of new targets that wait for their notifier. One more is found by its next scan.
const QUEUE: usize = 256;

/// The targets of push notifications.
#[derive(Debug)]
pub(super) struct Push {
    client: GuardedClient,
    pub(super) records: PushRecords,
    opened: mpsc::Sender<PushEntry>,
}

/// A registered target. Its notifications start when it is dropped.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) target: PushTarget,
    entry: Option<PushEntry>,
    opened: mpsc::Sender<PushEntry>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            // If too many wait, the next scan of a notifier finds it.
            let _ = self.opened.try_send(entry);
        }
    }
}

impl Push {
    /// Creates the targets in a store, and the receiver of those that are registered from now on.
    pub(super) fn new(
        client: GuardedClient,
        store: Arc<dyn Store>,
    ) -> (Self, mpsc::Receiver<PushEntry>) {
        let (opened, receiver) = mpsc::channel(QUEUE);
        (Self { client, records: PushRecords::new(store), opened }, receiver)
    }

    /// Checks that the address of a target may be dialed now. It is checked again at each connection.
    ///
    /// # Errors
    /// When it may not be dialed. The error is the same for every reason: names of the internal network are not
    /// revealed.
    async fn check(&self, target: &NewPushTarget) -> Result<(), A2aError> {
        let policy = self.client.policy();
        let url = target.url();
        let resolved = async {
            policy.check(url)?;
            if !matches!(url.scheme(), "https" | "http") {
                return Err(AddressRefused::Scheme(url.scheme().to_owned()).into());
            }
            let port = url.port_or_known_default().unwrap_or_default();
            // A literal address was checked with the URL.
            if let Some(url::Host::Domain(host)) = url.host() {
                policy.resolve(host, port).await?;
            }
            Ok::<_, EgressError>(())
        };
        match timeout(RESOLVE_TIMEOUT, resolved).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                debug!(%error, "target of push notifications refused");
                Err(refused())
            }
            Err(_) => Err(refused()),
        }
    }

    /// Registers a target of a task of the caller, instead of one with the same id. It is notified of the present
    /// state of the task, also if the same target was registered before, once the returned value is dropped.
    ///
    /// # Errors
    /// When the address may not be dialed, the task has too many targets, or the store does not respond.
    pub(super) async fn register(
        &self,
        caller: &Caller,
        task: &MessageId,
        target: NewPushTarget,
    ) -> Result<Registered, A2aError> {
        let detail = format!("{task} to {}", target.url().origin().ascii_serialization());
        let audited = OpenRecord::new(&caller.identity, AuditAction::PushTarget, detail);
        if let Err(error) = self.check(&target).await {
            audited.end("refused");
            return Err(error);
        }
        let target = target.into_target(caller, task);
        let open = OpenPush::new(caller, task, &target, trace::current().parent);
        let added = self.records.add(caller, task, &target, open).await;
        audited.end(match &added {
            Ok(_) => "registered",
            Err(error) if error.may_have_arrived() => "unknown",
            Err(_) => "not registered",
        });
        Ok(Registered { target, entry: Some(added?), opened: self.opened.clone() })
    }

    /// Removes a target of a task, if there is one.
    ///
    /// # Errors
    /// When the store does not respond.
    pub(super) async fn remove(
        &self,
        caller: &Caller,
        task: &MessageId,
        id: &str,
    ) -> Result<(), A2aError> {
        let detail = format!("{task} without {id}");
        let audited = OpenRecord::new(&caller.identity, AuditAction::PushTarget, detail);
        let removed = self.records.remove(caller, task, id).await;
        audited.end(match &removed {
            Ok(true) => "removed",
            Ok(false) => "not found",
            Err(_) => "unknown",
        });
        removed.map(drop)
    }

    pub(super) fn client(&self) -> &GuardedClient {
        &self.client
    }
}

fn refused() -> A2aError {
    A2aError::invalid(
        "the url cannot be notified; use an https URL whose host has public addresses",
    )
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::AgentName;
    use rockbot_egress::DialPolicy;
    use rockbot_store::{Clock, MemoryStore};
    use serde_json::json;

    use super::*;
    use crate::a2a_parts::PushOptions;

    /// More targets than the queue holds.
    const TARGETS: usize = QUEUE + 10;

    #[tokio::test]
    async fn targets_beyond_the_queue_are_left_to_the_next_scan() {
        let policy = DialPolicy {
            allow_plain_http: true,
            allow_private: vec!["127.0.0.0/8".parse().unwrap()],
            ..DialPolicy::default()
        };
        let client = PushOptions::new(policy).unwrap().client;
        let (push, opened) = Push::new(client, Arc::new(MemoryStore::new(Clock::System)));
        let caller = Caller::registered("peer".into(), AgentName::new("assistant").unwrap());
        for _ in 0..TARGETS {
            let target = NewPushTarget::parse(json!({"url": "http://127.0.0.1:9/"})).unwrap();
            let registered = push.register(&caller, &MessageId::generate(), target).await;
            drop(registered.unwrap());
        }
        assert_eq!(opened.len(), QUEUE);
        assert_eq!(push.records.open(2 * TARGETS).await.unwrap().len(), TARGETS);
    }
}
