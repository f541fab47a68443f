//! The options of push notifications.

use std::time::Duration;

use rockbot_egress::{ClientOptions, DialPolicy, EgressError, GuardedClient};

/// Options for the targets of push notifications.
#[derive(Debug, Clone)]
pub struct PushOptions {
    /// Dials what its policy allows, and follows no redirects.
    pub client: GuardedClient,
    /// Delay before the second attempt to deliver an event; the next ones double. Default 1 s.
    pub first_delay: Duration,
    /// Longest delay between two attempts. Default 5 min.
    pub max_delay: Duration,
    /// Time after the first failed attempt at which a target is given up. Default 1 h.
    pub give_up: Duration,
    /// Interval at which a process looks for targets that no process notifies. Default 5 s.
    pub scan_interval: Duration,
    /// Time after which another process notifies a target whose process has died. Default 30 s.
    pub lease: Duration,
}

impl PushOptions {
    /// Creates the default options for a policy.
    ///
    /// # Errors
    /// When the trusted certificates of the system cannot be read.
    pub fn new(policy: DialPolicy) -> Result<Self, EgressError> {
        let client = GuardedClient::new(policy.into(), ClientOptions::default())?;
        Ok(Self {
            client,
            first_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(5 * 60),
            give_up: Duration::from_secs(60 * 60),
            scan_interval: Duration::from_secs(5),
            lease: Duration::from_secs(30),
        })
    }
}
