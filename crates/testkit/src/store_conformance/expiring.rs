//! Entries whose time is over.

use std::time::Duration;

use rockbot_store::Expected;

use crate::{
    bed::soon,
    store_bed::{StoreBed, conflict, done},
};

const MINUTE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_millis(1);

async fn sweep(bed: &StoreBed, limit: usize) -> u64 {
    soon("a sweep", bed.here.sweep(limit)).await.expect("swept")
}

pub async fn an_entry_lives_until_its_time_and_not_longer(bed: StoreBed) {
    let end = bed.hand.now().after(MINUTE);
    bed.put_for("a", "value", MINUTE).await;
    assert_eq!(bed.get("a").await.expect("it is there").expires_at, Some(end));
    bed.hand.advance(MINUTE - MOMENT);
    assert!(bed.get("a").await.is_some());
    bed.hand.advance(MOMENT);
    assert_eq!(bed.get("a").await, None);
}

pub async fn an_expired_entry_is_not_listed(bed: StoreBed) {
    bed.put_for("a/short", "", MINUTE).await;
    bed.put_for("a/long", "", 2 * MINUTE).await;
    bed.put("a/ever", "").await;
    assert_eq!(bed.names("a").await, ["a/ever", "a/long", "a/short"]);
    bed.hand.advance(MINUTE);
    assert_eq!(bed.names("a").await, ["a/ever", "a/long"]);
}

pub async fn an_expired_entry_gives_way_to_a_write_that_expects_nothing(bed: StoreBed) {
    let first = bed.put_for("a", "one", MINUTE).await;
    assert!(conflict(bed.write("a", "two", Expected::Absent).await).is_some());
    bed.hand.advance(MINUTE);
    assert!(done(bed.write("a", "two", Expected::Absent).await) > first);
    assert_eq!(bed.value("a").await.expect("it is there"), "two");
}

pub async fn an_expired_version_is_not_what_was_expected(bed: StoreBed) {
    let version = bed.put_for("a", "one", MINUTE).await;
    bed.hand.advance(MINUTE);
    assert_eq!(conflict(bed.write("a", "two", Expected::Version(version)).await), None);
    assert_eq!(bed.get("a").await, None);
}

pub async fn an_expired_entry_is_not_there_to_be_removed(bed: StoreBed) {
    let version = bed.put_for("a", "", MINUTE).await;
    bed.hand.advance(MINUTE);
    assert!(!bed.remove("a", Expected::Version(version)).await);
    assert!(!bed.remove("a", Expected::Anything).await);
}

pub async fn a_write_replaces_the_time_to_live_too(bed: StoreBed) {
    bed.put_for("a", "one", MINUTE).await;
    bed.put("a", "two").await;
    bed.put("b", "one").await;
    bed.put_for("b", "two", MINUTE).await;
    bed.hand.advance(MINUTE);
    assert_eq!(bed.value("a").await.expect("it stays"), "two");
    assert_eq!(bed.get("b").await, None);
}

pub async fn a_time_to_live_may_be_longer_than_any_calendar(bed: StoreBed) {
    bed.put_for("a", "", Duration::MAX).await;
    bed.hand.advance(Duration::from_secs(1_000 * 365 * 24 * 3600));
    assert!(bed.get("a").await.is_some());
    bed.put_for("b", "", Duration::ZERO).await;
    assert_eq!(bed.get("b").await, None);
}

pub async fn a_sweep_removes_what_has_expired_and_nothing_else(bed: StoreBed) {
    bed.put_for("a/1", "", MINUTE).await;
    bed.put_for("a/2", "", MINUTE).await;
    bed.put_for("a/3", "", 2 * MINUTE).await;
    bed.put("a/4", "").await;
    assert_eq!(sweep(&bed, 100).await, 0);
    bed.hand.advance(MINUTE);
    assert_eq!(sweep(&bed, 100).await, 2);
    assert_eq!(sweep(&bed, 100).await, 0);
    assert_eq!(bed.names("a").await, ["a/3", "a/4"]);
}

pub async fn a_sweep_removes_no_more_than_its_limit(bed: StoreBed) {
    for name in ["a", "b", "c"] {
        bed.put_for(name, "", MINUTE).await;
    }
    bed.hand.advance(MINUTE);
    let mut swept = Vec::new();
    for limit in [0, 2, 2, 2] {
        swept.push(sweep(&bed, limit).await);
    }
    assert_eq!(swept, [0, 2, 1, 0]);
}

pub async fn a_version_never_goes_back_after_a_sweep(bed: StoreBed) {
    let first = bed.put_for("a", "", MINUTE).await;
    bed.hand.advance(MINUTE);
    assert_eq!(sweep(&bed, 100).await, 1);
    assert!(done(bed.write("a", "", Expected::Absent).await) > first);
}

pub async fn a_store_tells_the_time_it_expires_by(bed: StoreBed) {
    bed.hand.advance(MINUTE);
    assert_eq!(soon("the time", bed.here.now()).await, Ok(bed.hand.now()));
    assert_eq!(soon("the time", bed.there.now()).await, Ok(bed.hand.now()));
}
