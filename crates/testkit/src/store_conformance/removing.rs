//! Removal of entries.

use rockbot_store::Expected;

use crate::store_fixture::{StoreFixture, expect_conflict, expect_written};

pub async fn removed_entry_is_absent(fixture: StoreFixture) {
    fixture.put("a", "").await;
    assert!(fixture.remove("a", Expected::Anything).await);
    assert_eq!(fixture.get("a").await, None);
    let version = fixture.put("b", "").await;
    assert!(fixture.remove("b", Expected::Version(version)).await);
    expect_written(fixture.write("b", "", Expected::Absent).await);
}

pub async fn removal_of_another_version_has_no_effect(fixture: StoreFixture) {
    let first = fixture.put("a", "one").await;
    fixture.put("a", "two").await;
    assert!(!fixture.remove("a", Expected::Version(first)).await);
    assert!(!fixture.remove("a", Expected::Absent).await);
    assert_eq!(fixture.value("a").await.expect("an entry"), "two");
}

pub async fn removal_of_absent_entry_is_no_error(fixture: StoreFixture) {
    for expected in [Expected::Anything, Expected::Absent] {
        assert!(!fixture.remove("a", expected).await);
    }
}

pub async fn versions_grow_after_removal(fixture: StoreFixture) {
    let mut last = fixture.put("a", "").await;
    for _ in 0..5 {
        assert!(fixture.remove("a", Expected::Anything).await);
        assert_eq!(expect_conflict(fixture.write("a", "", Expected::Version(last)).await), None);
        let version = expect_written(fixture.write("a", "", Expected::Absent).await);
        assert!(version > last, "{version} after {last}");
        last = version;
    }
}
