//! Leases.

use std::{sync::Arc, time::Duration};

use rockbot_store::{Lease, LeaseError, Store};
use tokio::task::JoinSet;

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, key},
};

const TERM: Duration = Duration::from_secs(30);

async fn acquire(store: &Arc<dyn Store>, owner: &str) -> Result<Lease, LeaseError> {
    let lease = Lease::acquire(Arc::clone(store), key("lease/x"), owner, TERM);
    within_timeout("acquire the lease", lease).await
}

async fn renew(lease: &mut Lease) -> Result<(), LeaseError> {
    within_timeout("renew the lease", lease.renew()).await
}

fn lost() -> Result<(), LeaseError> {
    Err(LeaseError::Lost { key: key("lease/x") })
}

pub async fn lease_has_one_holder(fixture: StoreFixture) {
    let until = Some(fixture.clock.now().after(TERM));
    let held = acquire(&fixture.local, "one").await.expect("free");
    for owner in ["two", "one"] {
        let Err(rejected) = acquire(&fixture.remote, owner).await else { panic!("held twice") };
        let version = Some(held.token());
        let holder =
            LeaseError::HeldBy { key: key("lease/x"), owner: "one".into(), until, version };
        assert_eq!(rejected, holder);
    }
}

pub async fn one_concurrent_acquire_succeeds(fixture: StoreFixture) {
    let mut tasks = JoinSet::new();
    for number in 0..32 {
        let store = Arc::clone(if number % 2 == 0 { &fixture.local } else { &fixture.remote });
        tasks.spawn(async move { acquire(&store, &format!("owner {number}")).await.is_ok() });
    }
    let outcomes = within_timeout("all results", tasks.join_all()).await;
    assert_eq!(outcomes.into_iter().filter(|acquired| *acquired).count(), 1);
}

pub async fn expired_lease_is_reacquired_with_larger_token(fixture: StoreFixture) {
    let mut first = acquire(&fixture.local, "one").await.expect("free");
    renew(&mut first).await.expect("held");
    fixture.clock.advance(TERM);
    let second = acquire(&fixture.remote, "two").await.expect("expired");
    assert!(second.token() > first.token());
}

pub async fn renewed_lease_keeps_its_token(fixture: StoreFixture) {
    let mut lease = acquire(&fixture.local, "one").await.expect("free");
    let token = lease.token();
    for _ in 0..4 {
        fixture.clock.advance(TERM / 2);
        renew(&mut lease).await.expect("held");
    }
    assert_eq!(lease.token(), token);
    assert!(matches!(acquire(&fixture.remote, "two").await, Err(LeaseError::HeldBy { .. })));
}

pub async fn stale_holder_cannot_renew(fixture: StoreFixture) {
    let mut stale = acquire(&fixture.local, "one").await.expect("free");
    fixture.clock.advance(TERM);
    let mut next = acquire(&fixture.remote, "two").await.expect("expired");
    assert_eq!(renew(&mut stale).await, lost());
    renew(&mut next).await.expect("the next holder keeps the lease");
}

pub async fn expired_lease_cannot_be_renewed(fixture: StoreFixture) {
    let mut lease = acquire(&fixture.local, "one").await.expect("free");
    fixture.clock.advance(TERM);
    assert_eq!(renew(&mut lease).await, lost());
    acquire(&fixture.remote, "two").await.expect("free");
}

pub async fn released_lease_is_free_at_once(fixture: StoreFixture) {
    let mut first = acquire(&fixture.local, "one").await.expect("free");
    renew(&mut first).await.expect("held");
    let token = first.token();
    assert_eq!(within_timeout("release the lease", first.release()).await, Ok(true));
    assert!(acquire(&fixture.remote, "two").await.expect("free").token() > token);
}

pub async fn release_of_lost_lease_has_no_effect(fixture: StoreFixture) {
    let stale = acquire(&fixture.local, "one").await.expect("free");
    fixture.clock.advance(TERM);
    let mut next = acquire(&fixture.remote, "two").await.expect("expired");
    assert_eq!(within_timeout("release the lease", stale.release()).await, Ok(false));
    renew(&mut next).await.expect("still held");
}
