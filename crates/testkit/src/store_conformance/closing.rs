//! The end of a store.

use rockbot_store::{Expected, StoreError, Write};

use crate::{
    bed::soon,
    store_bed::{StoreBed, key, prefix},
};

pub async fn a_closed_store_refuses(bed: StoreBed) {
    bed.put("a", "").await;
    soon("the end", bed.here.close()).await;
    let (store, a) = (&bed.here, key("a"));
    assert_eq!(soon("a refusal", store.get(&a)).await, Err(StoreError::Closed));
    let write = Write::new(a.clone(), "");
    assert_eq!(soon("a refusal", store.write(write)).await, Err(StoreError::Closed));
    for expected in [Expected::Anything, Expected::Absent] {
        let refused = soon("a refusal", store.remove(&a, expected)).await;
        assert_eq!(refused, Err(StoreError::Closed));
    }
    let listed = soon("a refusal", store.list(&prefix("a"), None, 1)).await;
    assert_eq!(listed, Err(StoreError::Closed));
    assert_eq!(soon("a refusal", store.sweep(1)).await, Err(StoreError::Closed));
    assert_eq!(soon("a refusal", store.now()).await, Err(StoreError::Closed));
}

pub async fn closing_twice_is_no_error(bed: StoreBed) {
    soon("the end", bed.here.close()).await;
    soon("the end", bed.here.close()).await;
}
