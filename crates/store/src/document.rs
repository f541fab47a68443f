//! JSON documents of one type, below one prefix of a store.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use tracing::warn;

use crate::{
    clock::Timestamp,
    key::{InvalidKey, Key, Prefix},
    port::{Entry, Expected, MAX_PAGE_ENTRIES, Store, StoreError, Version, Write, Written},
};

/// The longest segment of a prefix that is used verbatim, in bytes. A longer one is replaced by its hash,
/// which is longer than this, so that no two segments collide.
const MAX_SEGMENT_BYTES: usize = 48;

/// JSON documents of one type, each with a name of one or more segments.
///
/// Documents are isolated by prefix: those of another owner, or of a prefix with a longer last segment,
/// are not visible.
pub struct DocumentStore<T> {
    store: Arc<dyn Store>,
    prefix: Vec<String>,
    kind: PhantomData<fn() -> T>,
}

/// A document with its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document<T> {
    /// The value.
    pub value: T,
    /// The version assigned by its write.
    pub version: Version,
    /// The expiry time; `None` for documents that do not expire.
    pub expires_at: Option<Timestamp>,
}

/// Name and version of an entry that is not a document of the expected type, and why.
pub type UnreadableDocument = (Vec<String>, Version, StoreError);

/// The outcome of a put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutOutcome<T> {
    /// The document was written, with this version.
    Done(Version),
    /// Nothing was written, because the current document does not meet the precondition.
    Conflict(Option<Document<T>>),
}

/// Why an operation on documents failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The name is not a valid key.
    #[error(transparent)]
    Name(#[from] InvalidKey),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<T: Serialize + DeserializeOwned> DocumentStore<T> {
    /// Creates a view of the documents below a prefix, such as a type and an owner.
    #[must_use]
    pub fn new<S: AsRef<str>>(store: Arc<dyn Store>, prefix: impl IntoIterator<Item = S>) -> Self {
        let prefix = prefix.into_iter().map(|segment| bounded(segment.as_ref())).collect();
        Self { store, prefix, kind: PhantomData }
    }

    /// Returns the underlying store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the document with this name.
    ///
    /// # Errors
    /// See [`DocumentError`]; [`StoreError::Unusable`] when the entry is not a document of this type.
    pub async fn get<S: AsRef<str>>(
        &self,
        name: &[S],
    ) -> Result<Option<Document<T>>, DocumentError> {
        let found = self.store.get(&self.key(name)?).await?;
        Ok(found.map(read).transpose()?)
    }

    /// Returns the entry with this name, also if it is not a document of this type.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub async fn entry<S: AsRef<str>>(&self, name: &[S]) -> Result<Option<Entry>, DocumentError> {
        Ok(self.store.get(&self.key(name)?).await?)
    }

    /// Writes a document if the current one meets `expected`. Without a `ttl` it does not expire.
    ///
    /// # Errors
    /// See [`DocumentError`] and [`Store::write`].
    ///
    /// # Cancellation
    /// Dropping the future leaves the document either written or not.
    pub async fn put<S: AsRef<str>>(
        &self,
        name: &[S],
        value: &T,
        ttl: Option<Duration>,
        expected: Expected,
    ) -> Result<PutOutcome<T>, DocumentError> {
        let value = serde_json::to_vec(value).map_err(|error| unusable(&error))?;
        let write = Write { ttl, ..Write::new(self.key(name)?, value).with_expected(expected) };
        match self.store.write(write).await? {
            Written::Done(version) => Ok(PutOutcome::Done(version)),
            Written::Conflict(found) => Ok(PutOutcome::Conflict(found.map(read).transpose()?)),
        }
    }

    /// Removes a document if it meets `expected`. Returns whether a document was removed.
    ///
    /// # Errors
    /// See [`DocumentError`] and [`Store::remove`].
    pub async fn remove<S: AsRef<str>>(
        &self,
        name: &[S],
        expected: Expected,
    ) -> Result<bool, DocumentError> {
        Ok(self.store.remove(&self.key(name)?, expected).await?)
    }

    /// Returns up to `limit` documents whose names start with the segments of `below`, ordered by key.
    /// Entries that are not documents of this type are skipped.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub async fn list<S: AsRef<str>>(
        &self,
        below: &[S],
        limit: usize,
    ) -> Result<Vec<(Vec<String>, Document<T>)>, DocumentError> {
        let (found, unreadable) = self.list_all(below, limit).await?;
        for (_, _, error) in unreadable {
            warn!(%error, "unreadable document skipped");
        }
        Ok(found)
    }

    /// Returns up to `limit` documents whose names start with the segments of `below`, ordered by key, and
    /// the names and versions of entries among them that are not documents of this type, up to `limit` too.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub async fn list_all<S: AsRef<str>>(
        &self,
        below: &[S],
        limit: usize,
    ) -> Result<(Vec<(Vec<String>, Document<T>)>, Vec<UnreadableDocument>), DocumentError> {
        let prefix = Prefix::new(self.segments(below))?;
        let (mut found, mut unreadable, mut after) = (Vec::new(), Vec::new(), None);
        while found.len() < limit {
            let page_limit = (limit - found.len()).min(MAX_PAGE_ENTRIES);
            let page = self.store.list(&prefix, after.as_ref(), page_limit).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (key, entry) in page {
                let (name, version) =
                    (key.segments().skip(self.prefix.len()).collect(), entry.version);
                match read(entry) {
                    Ok(document) => found.push((name, document)),
                    Err(error) if unreadable.len() < limit => {
                        unreadable.push((name, version, error));
                    }
                    Err(_) => {}
                }
            }
        }
        Ok((found, unreadable))
    }

    /// Returns the names and versions of up to `limit` entries whose names start with the segments of `below`,
    /// ordered by key, without reading them as documents.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub async fn versions<S: AsRef<str>>(
        &self,
        below: &[S],
        limit: usize,
    ) -> Result<Vec<(Vec<String>, Version)>, DocumentError> {
        let prefix = Prefix::new(self.segments(below))?;
        let (mut found, mut after) = (Vec::new(), None);
        while found.len() < limit {
            let page_limit = (limit - found.len()).min(MAX_PAGE_ENTRIES);
            let page = self.store.list(&prefix, after.as_ref(), page_limit).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (key, entry) in page {
                found.push((key.segments().skip(self.prefix.len()).collect(), entry.version));
            }
        }
        Ok(found)
    }

    fn key<S: AsRef<str>>(&self, name: &[S]) -> Result<Key, InvalidKey> {
        Key::new(self.segments(name))
    }

    fn segments<'a, S: AsRef<str>>(&'a self, name: &'a [S]) -> impl Iterator<Item = &'a str> {
        self.prefix.iter().map(String::as_str).chain(name.iter().map(AsRef::as_ref))
    }
}

/// Returns a unique segment that is short also when encoded.
fn bounded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if !text.is_empty() && text.len() <= MAX_SEGMENT_BYTES && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read<T: DeserializeOwned>(entry: Entry) -> Result<Document<T>, StoreError> {
    let Entry { value, version, expires_at } = entry;
    let value = serde_json::from_slice(&value).map_err(|error| unusable(&error))?;
    Ok(Document { value, version, expires_at })
}

/// Returns an error without the content, which is private.
fn unusable(error: &serde_json::Error) -> StoreError {
    let (line, column) = (error.line(), error.column());
    StoreError::Unusable {
        reason: format!(
            "a document does not have the expected format (line {line}, column {column}); \
             another version may have written it"
        ),
    }
}

impl<T> Clone for DocumentStore<T> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), prefix: self.prefix.clone(), kind: PhantomData }
    }
}

impl<T> fmt::Debug for DocumentStore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentStore").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, memory::MemoryStore};

    fn documents(store: &Arc<dyn Store>, prefix: &[&str]) -> DocumentStore<u32> {
        DocumentStore::new(store.clone(), prefix)
    }

    fn store() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(Clock::System))
    }

    #[tokio::test]
    async fn documents_are_isolated_by_prefix() {
        let store = store();
        let (own, other) = (documents(&store, &["kind", "a"]), documents(&store, &["kind", "ab"]));
        let version = match own.put(&["x", "y"], &7, None, Expected::Absent).await.unwrap() {
            PutOutcome::Done(version) => version,
            PutOutcome::Conflict(found) => panic!("{found:?}"),
        };
        let found = own.get(&["x", "y"]).await.unwrap().unwrap();
        assert_eq!((found.value, found.version), (7, version));
        let listed = own.list::<&str>(&[], 10).await.unwrap();
        assert_eq!(listed[0].0, ["x", "y"]);
        assert_eq!(own.list(&["x"], 10).await.unwrap().len(), 1);
        assert!(own.list(&["x", "y"], 10).await.unwrap().is_empty());
        assert!(other.list::<&str>(&[], 10).await.unwrap().is_empty());
        assert_eq!(other.get(&["x", "y"]).await.unwrap(), None);
        assert!(!other.remove(&["x", "y"], Expected::Anything).await.unwrap());
        assert!(own.remove(&["x", "y"], Expected::Version(version)).await.unwrap());
    }

    #[tokio::test]
    async fn second_writer_gets_conflict() {
        let documents = documents(&store(), &["kind"]);
        documents.put(&["x"], &1, None, Expected::Absent).await.unwrap();
        match documents.put(&["x"], &2, None, Expected::Absent).await.unwrap() {
            PutOutcome::Conflict(Some(found)) => assert_eq!(found.value, 1),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn document_of_another_type_is_skipped_in_lists() {
        let store = store();
        let (numbers, texts) =
            (documents(&store, &["kind"]), DocumentStore::new(store.clone(), ["kind"]));
        numbers.put(&["x"], &1, None, Expected::Absent).await.unwrap();
        texts.put(&["y"], &"secret".to_owned(), None, Expected::Absent).await.unwrap();
        assert_eq!(numbers.list::<&str>(&[], 10).await.unwrap().len(), 1);
        let versions = numbers.versions::<&str>(&[], 10).await.unwrap();
        assert_eq!((versions[0].0[0].as_str(), versions[1].0[0].as_str()), ("x", "y"));
        assert!(versions[0].1 < versions[1].1, "the later write has the larger version");
        assert_eq!(numbers.versions::<&str>(&[], 1).await.unwrap().len(), 1);
        let error = numbers.get(&["y"]).await.unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn unusual_owner_names_have_distinct_prefixes() {
        let store = store();
        let names = ["", "a", "a/b", "%", &"x".repeat(48), &"x".repeat(49), &"x".repeat(50)];
        let prefixes: std::collections::HashSet<_> =
            names.iter().map(|name| documents(&store, &["kind", name]).prefix).collect();
        assert_eq!(prefixes.len(), names.len());
        assert!(prefixes.iter().all(|prefix| prefix[1].len() <= 64));
    }
}
