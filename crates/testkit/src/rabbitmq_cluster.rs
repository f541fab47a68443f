//! A private cluster of three RabbitMQ nodes.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::broker::PrivateBroker;

/// The time limit for the start of all nodes, which share the cores.
const START_LIMIT: Duration = Duration::from_secs(150);

/// A RabbitMQ cluster on this machine for one test. Dropping it stops the nodes and removes their data.
#[derive(Debug)]
pub struct PrivateCluster {
    // The first node owns the port mapper of all, so it is dropped last.
    others: Vec<PrivateBroker>,
    first: PrivateBroker,
}

impl PrivateCluster {
    /// Starts three nodes and joins them. Blocks for about 30 s on two cores.
    ///
    /// # Errors
    /// When a node does not start or does not join; the message holds the node's output.
    pub fn start() -> Result<Self> {
        let first = PrivateBroker::start()?;
        let others =
            vec![PrivateBroker::launch_beside(&first)?, PrivateBroker::launch_beside(&first)?];
        let mut cluster = Self { others, first };
        cluster.wait_for_others()?;
        let leader = cluster.first.node_name();
        for other in &cluster.others {
            other.ctl(&["stop_app"])?;
            other.ctl(&["join_cluster", &leader])?;
            other.ctl(&["start_app"])?;
        }
        Ok(cluster)
    }

    /// Returns the URL of the node that always runs.
    #[must_use]
    pub fn amqp_url(&self) -> String {
        self.first.amqp_url()
    }

    /// Kills two of the three nodes, which leaves no majority. Their data is kept.
    ///
    /// # Errors
    /// When a node cannot be killed.
    pub fn crash_majority(&mut self) -> Result<()> {
        self.others.iter_mut().try_for_each(PrivateBroker::crash)
    }

    /// Restarts the two nodes and returns when they accept AMQP connections.
    ///
    /// # Errors
    /// When a node does not start.
    pub fn restore_majority(&mut self) -> Result<()> {
        for other in &mut self.others {
            other.relaunch()?;
        }
        self.wait_for_others()
    }

    fn wait_for_others(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        self.others.iter_mut().try_for_each(|other| other.wait_until_ready(deadline))
    }
}
