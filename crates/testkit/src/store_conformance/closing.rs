//! Closing a store.

use rockbot_store::{Expected, StoreError, Write};

use crate::{
    fixture::within_timeout,
    store_fixture::{StoreFixture, key, prefix},
};

pub async fn closed_store_rejects_operations(fixture: StoreFixture) {
    fixture.put("a", "").await;
    within_timeout("close", fixture.local.close()).await;
    let (store, a) = (&fixture.local, key("a"));
    assert_eq!(within_timeout("an error", store.get(&a)).await, Err(StoreError::Closed));
    let write = Write::new(a.clone(), "");
    assert_eq!(within_timeout("an error", store.write(write)).await, Err(StoreError::Closed));
    for expected in [Expected::Anything, Expected::Absent] {
        let rejected = within_timeout("an error", store.remove(&a, expected)).await;
        assert_eq!(rejected, Err(StoreError::Closed));
    }
    let listed = within_timeout("an error", store.list(&prefix("a"), None, 1)).await;
    assert_eq!(listed, Err(StoreError::Closed));
    assert_eq!(within_timeout("an error", store.sweep(1)).await, Err(StoreError::Closed));
    assert_eq!(within_timeout("an error", store.now()).await, Err(StoreError::Closed));
}

pub async fn closing_twice_is_no_error(fixture: StoreFixture) {
    within_timeout("close", fixture.local.close()).await;
    within_timeout("close", fixture.local.close()).await;
}
