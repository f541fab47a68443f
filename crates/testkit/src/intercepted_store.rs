//! A store of which a test replaces some operations.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use rockbot_store::{
    Entry, Expected, Extension, Key, Prefix, Store, StoreError, Timestamp, Write, Written,
};

/// The outcome of [`Store::list`].
pub type Listed<'a> = BoxFuture<'a, Result<Vec<(Key, Entry)>, StoreError>>;

/// The operations that a test may replace. Each one delegates to the store unless it is replaced.
pub trait StoreInterceptor: Send + Sync + 'static {
    /// Replaces [`Store::get`].
    fn get<'a>(
        &'a self,
        store: &'a dyn Store,
        key: &'a Key,
    ) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        store.get(key)
    }

    /// Replaces [`Store::write`].
    fn write<'a>(
        &'a self,
        store: &'a dyn Store,
        write: Write,
    ) -> BoxFuture<'a, Result<Written, StoreError>> {
        store.write(write)
    }

    /// Replaces [`Store::extend`].
    fn extend<'a>(
        &'a self,
        store: &'a dyn Store,
        extensions: Vec<Extension>,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Vec<Written>, StoreError>> {
        store.extend(extensions, ttl)
    }

    /// Replaces [`Store::remove`].
    fn remove<'a>(
        &'a self,
        store: &'a dyn Store,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        store.remove(key, expected)
    }

    /// Replaces [`Store::list`].
    fn list<'a>(
        &'a self,
        store: &'a dyn Store,
        prefix: &'a Prefix,
        after: Option<&'a Key>,
        limit: usize,
    ) -> Listed<'a> {
        store.list(prefix, after, limit)
    }
}

/// A wrapper of a store with an interceptor of its operations.
pub struct InterceptedStore<I> {
    store: Arc<dyn Store>,
    /// The interceptor.
    pub interceptor: I,
}

impl<I: StoreInterceptor> InterceptedStore<I> {
    /// Wraps `store`.
    pub fn wrap(store: Arc<dyn Store>, interceptor: I) -> Arc<Self> {
        Arc::new(Self { store, interceptor })
    }
}

impl<I: StoreInterceptor> Store for InterceptedStore<I> {
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Entry>, StoreError>> {
        self.interceptor.get(self.store.as_ref(), key)
    }

    fn write(&self, write: Write) -> BoxFuture<'_, Result<Written, StoreError>> {
        self.interceptor.write(self.store.as_ref(), write)
    }

    fn extend(
        &self,
        extensions: Vec<Extension>,
        ttl: Duration,
    ) -> BoxFuture<'_, Result<Vec<Written>, StoreError>> {
        self.interceptor.extend(self.store.as_ref(), extensions, ttl)
    }

    fn remove<'a>(
        &'a self,
        key: &'a Key,
        expected: Expected,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.interceptor.remove(self.store.as_ref(), key, expected)
    }

    fn list<'a>(&'a self, prefix: &'a Prefix, after: Option<&'a Key>, limit: usize) -> Listed<'a> {
        self.interceptor.list(self.store.as_ref(), prefix, after, limit)
    }

    fn sweep(&self, limit: usize) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.store.sweep(limit)
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.store.now()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.store.close()
    }
}
