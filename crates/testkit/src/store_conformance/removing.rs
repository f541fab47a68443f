//! Entries that are taken away.

use rockbot_store::Expected;

use crate::store_bed::{StoreBed, conflict, done};

pub async fn a_removed_entry_is_absent(bed: StoreBed) {
    bed.put("a", "").await;
    assert!(bed.remove("a", Expected::Anything).await);
    assert_eq!(bed.get("a").await, None);
    let version = bed.put("b", "").await;
    assert!(bed.remove("b", Expected::Version(version)).await);
    done(bed.write("b", "", Expected::Absent).await);
}

pub async fn a_removal_of_another_version_removes_nothing(bed: StoreBed) {
    let first = bed.put("a", "one").await;
    bed.put("a", "two").await;
    assert!(!bed.remove("a", Expected::Version(first)).await);
    assert!(!bed.remove("a", Expected::Absent).await);
    assert_eq!(bed.value("a").await.expect("it is there"), "two");
}

pub async fn removing_what_is_absent_is_no_error(bed: StoreBed) {
    for expected in [Expected::Anything, Expected::Absent] {
        assert!(!bed.remove("a", expected).await);
    }
}

pub async fn a_version_never_goes_back_after_a_removal(bed: StoreBed) {
    let mut last = bed.put("a", "").await;
    for _ in 0..5 {
        assert!(bed.remove("a", Expected::Anything).await);
        assert_eq!(conflict(bed.write("a", "", Expected::Version(last)).await), None);
        let version = done(bed.write("a", "", Expected::Absent).await);
        assert!(version > last, "{version} after {last}");
        last = version;
    }
}
