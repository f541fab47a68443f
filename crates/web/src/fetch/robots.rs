//! The decision whether robots may read a page.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use reqwest::Method;
use rockbot_egress::{Fetch, GuardedClient, read_prefix};
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout_at},
};
use url::{Origin, Url};

use super::robots_rules::RobotsRules;

/// Maximum number of sites whose rules are kept.
const MAX_SITES: usize = 1000;
/// Maximum size of a robots.txt, in bytes. The rest is ignored.
const MAX_BYTES: usize = 512 * 1024;
/// Time for which rules are kept.
const RULES_TTL: Duration = Duration::from_secs(24 * 60 * 60);
/// Time until the rules of a site that did not reply are requested again.
const FAILURE_TTL: Duration = Duration::from_secs(60);
/// Time limit for reading the rules of a site.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The decision about a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Permission {
    Granted,
    /// The rules of the site exclude the page.
    Denied,
    /// The rules of the site cannot be read, which means that nothing may be.
    Unknown,
}

/// The deadline of a call passed before the rules of a site were read.
struct DeadlinePassed;

/// Rules of sites.
#[derive(Debug, Default)]
pub(super) struct Robots {
    sites: Mutex<HashMap<Origin, Site>>,
}

#[derive(Debug, Clone)]
struct Site {
    expires: Instant,
    /// Filled by the first caller that has the time; the others wait for it. `None` inside: the rules are
    /// not known.
    rules: Arc<OnceCell<Option<RobotsRules>>>,
}

impl Robots {
    /// Returns whether a page may be read. Reads the rules of its site if necessary, until the deadline.
    pub(super) async fn permission(
        &self,
        client: &GuardedClient,
        page: &Url,
        deadline: Instant,
    ) -> Permission {
        let origin = page.origin();
        let rules = self.rules(&origin);
        let known = rules.get_or_try_init(|| async {
            let limit = Instant::now() + TIMEOUT;
            let until = deadline.min(limit);
            match timeout_at(until, read(client, page, until)).await {
                Ok(Some(rules)) => Ok(Some(rules)),
                // The deadline of one caller says nothing about the site.
                _ if until < limit && Instant::now() >= until => Err(DeadlinePassed),
                _ => {
                    self.expire_early(&origin);
                    Ok(None)
                }
            }
        });
        match timeout_at(deadline, known).await {
            Ok(Ok(Some(rules))) if rules.allows(&path_and_query(page)) => Permission::Granted,
            Ok(Ok(Some(_))) => Permission::Denied,
            Ok(Ok(None) | Err(DeadlinePassed)) | Err(_) => Permission::Unknown,
        }
    }

    fn rules(&self, origin: &Origin) -> Arc<OnceCell<Option<RobotsRules>>> {
        let now = Instant::now();
        let mut sites = self.sites.lock();
        if let Some(site) = sites.get(origin).filter(|site| site.expires > now) {
            return site.rules.clone();
        }
        if sites.len() >= MAX_SITES {
            sites.retain(|_, site| site.expires > now);
        }
        if sites.len() >= MAX_SITES {
            let first = sites.iter().min_by_key(|(_, site)| site.expires);
            let first = first.map(|(origin, _)| origin.clone());
            first.map(|origin| sites.remove(&origin));
        }
        let site = Site { expires: now + RULES_TTL, rules: Arc::default() };
        sites.insert(origin.clone(), site.clone());
        site.rules
    }

    fn expire_early(&self, origin: &Origin) {
        if let Some(site) = self.sites.lock().get_mut(origin) {
            site.expires = Instant::now() + FAILURE_TTL;
        }
    }
}

/// Reads the rules of a site. Without a file everything is allowed; `None` means that they are unknown.
async fn read(client: &GuardedClient, page: &Url, deadline: Instant) -> Option<RobotsRules> {
    let url = page.join("/robots.txt").ok()?;
    let fetch = Fetch::new(client, Method::GET, url).with_deadline(deadline);
    let response = fetch.finish().await.ok()?.response;
    match response.status().as_u16() {
        200..=299 => {
            let body = read_prefix(response, MAX_BYTES, Some(deadline)).await.ok()?;
            Some(RobotsRules::parse(&String::from_utf8_lossy(&body.bytes)))
        }
        // Too many requests concerns the client, not the file.
        429 | 500..=599 => None,
        _ => Some(RobotsRules::default()),
    }
}

fn path_and_query(page: &Url) -> String {
    match page.query() {
        Some(query) => format!("{}?{query}", page.path()),
        None => page.path().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn number_of_sites_is_limited() {
        let robots = Robots::default();
        let origin = |number| Url::parse(&format!("https://{number}.example/")).unwrap().origin();
        for number in 0..MAX_SITES + 10 {
            robots.rules(&origin(number));
        }
        assert_eq!(robots.sites.lock().len(), MAX_SITES);
        let first = robots.rules(&origin(MAX_SITES));
        assert!(Arc::ptr_eq(&first, &robots.rules(&origin(MAX_SITES))));
        robots.expire_early(&origin(MAX_SITES));
        tokio::time::advance(FAILURE_TTL).await;
        assert!(!Arc::ptr_eq(&first, &robots.rules(&origin(MAX_SITES))));
    }
}
