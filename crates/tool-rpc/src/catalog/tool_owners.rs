//! The pool that owns each tool name.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rockbot_contracts::HandlerPool;
use tokio::time::Instant;

use super::handler_list::HandlerList;

/// Time from the first announcement in which names go to pools by order rather than by arrival. A caller that
/// starts requests all announcements, and receives them within 0.1 s in any order.
const ORDERING_PERIOD: Duration = Duration::from_secs(1);

/// Maximum number of tool names of one pool.
const MAX_NAMES_OF_POOL: usize = 4096;

/// Owner of each announced tool name: the pool whose handlers receive its calls.
///
/// The first pool that announces a name owns it for as long as one of its live handlers announces it, so that
/// no other pool can take its calls.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolOwners {
    pools: BTreeMap<String, HandlerPool>,
    /// End of the period in which the order of pools decides; `None` before the first announcement.
    ordered_until: Option<Instant>,
}

impl ToolOwners {
    /// Returns the pool that owns the name `tool`.
    pub(super) fn owner(&self, tool: &str) -> Option<&HandlerPool> {
        self.pools.get(tool)
    }

    /// Updates the owners after a change of the handlers.
    pub(super) fn update(&mut self, handlers: &HandlerList) {
        let now = Instant::now();
        if self.ordered_until.is_none() && handlers.iter().next().is_some() {
            self.ordered_until = Some(now + ORDERING_PERIOD);
        }
        let keeps_owners = self.ordered_until.is_some_and(|until| now >= until);
        let owners = announcing_pools(handlers).into_iter().filter_map(|(name, pools)| {
            let current =
                self.pools.get(name).filter(|owner| keeps_owners && pools.contains(owner));
            let owner = current.or_else(|| pools.first().copied())?;
            Some((name.to_owned(), owner.clone()))
        });
        self.pools = owners.collect();
    }
}

/// Returns the pools that announce each name; of a pool, at most [`MAX_NAMES_OF_POOL`] names.
fn announcing_pools(handlers: &HandlerList) -> BTreeMap<&str, BTreeSet<&HandlerPool>> {
    let mut announced = BTreeMap::<&str, BTreeSet<&HandlerPool>>::new();
    let mut names_of_pools = BTreeMap::<&HandlerPool, usize>::new();
    for handler in handlers.iter() {
        let names = names_of_pools.entry(&handler.pool).or_default();
        for tool in handler.tools.iter() {
            if *names >= MAX_NAMES_OF_POOL {
                break;
            }
            if announced.entry(&tool.name).or_default().insert(&handler.pool) {
                *names += 1;
            }
        }
    }
    announced
}

#[cfg(test)]
mod tests {
    use rockbot_contracts::ToolCatalog;

    use super::{
        super::handler_list::tests::{catalog, pool},
        *,
    };

    const SIZE: usize = 1000;

    struct Fixture {
        handlers: HandlerList,
        owners: ToolOwners,
    }

    impl Fixture {
        fn new() -> Self {
            Self { handlers: HandlerList::default(), owners: ToolOwners::default() }
        }

        fn announce(&mut self, pool: &HandlerPool, instance: &str) {
            self.handlers.apply(catalog(pool, instance), None, 0, SIZE);
            self.owners.update(&self.handlers);
        }

        fn withdraw(&mut self, pool: &HandlerPool, instance: &str) {
            let withdrawn = ToolCatalog { tools: Vec::new(), ..catalog(pool, instance) };
            self.handlers.apply(withdrawn, None, 0, SIZE);
            self.owners.update(&self.handlers);
        }

        fn owner(&self) -> Option<&HandlerPool> {
            self.owners.owner("search")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn first_owner_keeps_a_name_while_alive() {
        let (web, other) = (pool("web"), pool("a"));
        let mut fixture = Fixture::new();
        fixture.announce(&web, "h-1");
        tokio::time::advance(ORDERING_PERIOD).await;
        fixture.announce(&other, "h-1");
        fixture.announce(&HandlerPool::Unnamed, "h-1");
        assert_eq!(fixture.owner(), Some(&web), "a pool that sorts first takes no name");
        fixture.announce(&web, "h-2");
        fixture.withdraw(&web, "h-1");
        assert_eq!(fixture.owner(), Some(&web), "another handler of the pool is alive");
        fixture.withdraw(&web, "h-2");
        assert_eq!(fixture.owner(), Some(&HandlerPool::Unnamed));
        fixture.announce(&web, "h-3");
        assert_eq!(fixture.owner(), Some(&HandlerPool::Unnamed), "the new owner keeps it too");
        fixture.withdraw(&HandlerPool::Unnamed, "h-1");
        fixture.withdraw(&other, "h-1");
        fixture.withdraw(&web, "h-3");
        assert_eq!(fixture.owner(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn first_announcements_are_ordered_by_pool() {
        let mut fixture = Fixture::new();
        fixture.announce(&pool("web"), "h-1");
        tokio::time::advance(ORDERING_PERIOD / 2).await;
        fixture.announce(&pool("a"), "h-1");
        assert_eq!(fixture.owner(), Some(&pool("a")));
        tokio::time::advance(ORDERING_PERIOD / 2).await;
        fixture.announce(&HandlerPool::Unnamed, "h-1");
        assert_eq!(fixture.owner(), Some(&pool("a")));
    }
}
