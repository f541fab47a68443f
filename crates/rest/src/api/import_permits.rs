//! Permits to read and import documents, shared by all APIs of the process.

use std::sync::LazyLock;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::openapi::ImportLimits;

/// Number of documents that are read at the same time.
const DOCUMENTS: usize = 8;

static READING: Semaphore = Semaphore::const_new(DOCUMENTS);
/// One at a time: an import may need a quarter of the memory, and as much again for its result.
static IMPORTING: Semaphore = Semaphore::const_new(1);
static LIMITS: LazyLock<ImportLimits> = LazyLock::new(ImportLimits::for_this_process);

/// Returns the limits of an import in this process.
pub(super) fn limits() -> ImportLimits {
    *LIMITS
}

/// Waits until another document may be read. The permit covers it until its import has ended.
pub(super) async fn reading() -> Option<SemaphorePermit<'static>> {
    READING.acquire().await.ok()
}

/// Waits until a document may be imported.
pub(super) async fn importing() -> Option<SemaphorePermit<'static>> {
    IMPORTING.acquire().await.ok()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use rockbot_egress::DialPolicy;
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;
    use crate::api::{ApiClient, ApiEntry, ApiTools};

    #[tokio::test(start_paused = true)]
    async fn imports_of_different_clients_run_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://api.test"}],
            "paths": {"/x": {"get": {"operationId": "read"}}}});
        std::fs::write(folder.path().join("api.json"), document.to_string()).unwrap();
        let entry = ApiEntry::new(&json!({"spec": "api.json"}), folder.path(), &|_| None).unwrap();
        let client = ApiClient::new(Arc::new(DialPolicy::default())).unwrap();
        let other = importing().await.unwrap();
        let read = ApiTools::read("api", &entry, &client);
        tokio::pin!(read);
        assert!(timeout(Duration::from_secs(60), &mut read).await.is_err());
        drop(other);
        assert_eq!(read.await.unwrap().tools().len(), 1);
    }
}
