//! One holder at a time.

use std::{sync::Arc, time::Duration};

use rockbot_store::{Lease, LeaseError, Store};
use tokio::task::JoinSet;

use crate::{
    bed::soon,
    store_bed::{StoreBed, key},
};

const TERM: Duration = Duration::from_secs(30);

async fn acquire(store: &Arc<dyn Store>, owner: &str) -> Result<Lease, LeaseError> {
    let lease = Lease::acquire(Arc::clone(store), key("lease/x"), owner, TERM);
    soon("an answer about the lease", lease).await
}

async fn renew(lease: &mut Lease) -> Result<(), LeaseError> {
    soon("an answer about the renewal", lease.renew()).await
}

fn lost() -> Result<(), LeaseError> {
    Err(LeaseError::Lost { key: key("lease/x") })
}

pub async fn a_lease_has_one_holder(bed: StoreBed) {
    let until = Some(bed.hand.now().after(TERM));
    let _held = acquire(&bed.here, "one").await.expect("free");
    for owner in ["two", "one"] {
        let Err(refused) = acquire(&bed.there, owner).await else { panic!("held twice") };
        let holder = LeaseError::HeldBy { key: key("lease/x"), owner: "one".into(), until };
        assert_eq!(refused, holder);
    }
}

pub async fn of_many_that_want_a_lease_one_gets_it(bed: StoreBed) {
    let mut tasks = JoinSet::new();
    for number in 0..32 {
        let store = Arc::clone(if number % 2 == 0 { &bed.here } else { &bed.there });
        tasks.spawn(async move { acquire(&store, &format!("owner {number}")).await.is_ok() });
    }
    let outcomes = soon("all answers", tasks.join_all()).await;
    assert_eq!(outcomes.into_iter().filter(|got| *got).count(), 1);
}

pub async fn a_lease_that_ended_goes_to_somebody_else_with_a_larger_token(bed: StoreBed) {
    let mut first = acquire(&bed.here, "one").await.expect("free");
    renew(&mut first).await.expect("held");
    bed.hand.advance(TERM);
    let second = acquire(&bed.there, "two").await.expect("its time is over");
    assert!(second.token() > first.token());
}

pub async fn a_renewed_lease_outlives_its_first_time_and_keeps_its_token(bed: StoreBed) {
    let mut lease = acquire(&bed.here, "one").await.expect("free");
    let token = lease.token();
    for _ in 0..4 {
        bed.hand.advance(TERM / 2);
        renew(&mut lease).await.expect("held");
    }
    assert_eq!(lease.token(), token);
    assert!(matches!(acquire(&bed.there, "two").await, Err(LeaseError::HeldBy { .. })));
}

pub async fn a_stale_holder_finds_its_loss_when_it_renews(bed: StoreBed) {
    let mut stale = acquire(&bed.here, "one").await.expect("free");
    bed.hand.advance(TERM);
    let mut next = acquire(&bed.there, "two").await.expect("its time is over");
    assert_eq!(renew(&mut stale).await, lost());
    renew(&mut next).await.expect("the next holder is not disturbed");
}

pub async fn a_lease_that_ended_is_lost_even_if_nobody_took_it(bed: StoreBed) {
    let mut lease = acquire(&bed.here, "one").await.expect("free");
    bed.hand.advance(TERM);
    assert_eq!(renew(&mut lease).await, lost());
    acquire(&bed.there, "two").await.expect("nobody holds it");
}

pub async fn a_released_lease_is_free_at_once(bed: StoreBed) {
    let mut first = acquire(&bed.here, "one").await.expect("free");
    renew(&mut first).await.expect("held");
    let token = first.token();
    assert_eq!(soon("the release", first.release()).await, Ok(true));
    assert!(acquire(&bed.there, "two").await.expect("free").token() > token);
}

pub async fn releasing_a_lost_lease_takes_nothing_from_its_new_holder(bed: StoreBed) {
    let stale = acquire(&bed.here, "one").await.expect("free");
    bed.hand.advance(TERM);
    let mut next = acquire(&bed.there, "two").await.expect("its time is over");
    assert_eq!(soon("the release", stale.release()).await, Ok(false));
    renew(&mut next).await.expect("still held");
}
