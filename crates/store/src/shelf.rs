//! JSON documents of one kind, below one place of a store.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use tracing::warn;

use crate::{
    clock::Timestamp,
    key::{InvalidKey, Key, Prefix},
    port::{Entry, Expected, MAX_PAGE_ENTRIES, Store, StoreError, Version, Write, Written},
};

/// The longest segment of a place that is kept as it is, in bytes; a longer one becomes its hash,
/// which is longer, so that no segment is taken for another.
const MAX_SEGMENT_BYTES: usize = 48;

/// Documents of one kind, each under a name of one or more segments.
///
/// A document is never seen from another place: neither that of another owner, nor one whose
/// segments only begin alike.
pub struct Shelf<T> {
    store: Arc<dyn Store>,
    place: Vec<String>,
    kind: PhantomData<fn() -> T>,
}

/// A document with what its store knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document<T> {
    /// What was written.
    pub value: T,
    /// Which write it comes from.
    pub version: Version,
    /// When it is gone; never when `None`.
    pub expires_at: Option<Timestamp>,
}

/// What became of a document on its way to a shelf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed<T> {
    /// It is there, with this version.
    Done(Version),
    /// It is not, because this is there (or nothing is): never what was expected.
    Conflict(Option<Document<T>>),
}

/// Why a shelf did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShelfError {
    /// The name makes no key.
    #[error(transparent)]
    Name(#[from] InvalidKey),
    /// The store did not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<T: Serialize + DeserializeOwned> Shelf<T> {
    /// The shelf at a place: what is kept there, and whose it is.
    #[must_use]
    pub fn new<S: AsRef<str>>(store: Arc<dyn Store>, place: impl IntoIterator<Item = S>) -> Self {
        let place = place.into_iter().map(|segment| bounded(segment.as_ref())).collect();
        Self { store, place, kind: PhantomData }
    }

    /// The store below it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The document of a name, if there is one.
    ///
    /// # Errors
    /// See [`ShelfError`]; [`StoreError::Unusable`] for what is no document of this kind.
    pub async fn get<S: AsRef<str>>(&self, name: &[S]) -> Result<Option<Document<T>>, ShelfError> {
        let found = self.store.get(&self.key(name)?).await?;
        Ok(found.map(read).transpose()?)
    }

    /// Puts a document under a name if that is as expected, for ever without `ttl`.
    ///
    /// # Errors
    /// See [`ShelfError`] and [`Store::write`].
    ///
    /// # Cancellation
    /// Dropping the future leaves the document either put or not.
    pub async fn put<S: AsRef<str>>(
        &self,
        name: &[S],
        value: &T,
        ttl: Option<Duration>,
        expected: Expected,
    ) -> Result<Placed<T>, ShelfError> {
        let value = serde_json::to_vec(value).map_err(|error| unusable(&error))?;
        let write = Write { ttl, ..Write::new(self.key(name)?, value).expecting(expected) };
        match self.store.write(write).await? {
            Written::Done(version) => Ok(Placed::Done(version)),
            Written::Conflict(found) => Ok(Placed::Conflict(found.map(read).transpose()?)),
        }
    }

    /// Takes the document of a name away if it is as expected. Whether one was.
    ///
    /// # Errors
    /// See [`ShelfError`] and [`Store::remove`].
    pub async fn remove<S: AsRef<str>>(
        &self,
        name: &[S],
        expected: Expected,
    ) -> Result<bool, ShelfError> {
        Ok(self.store.remove(&self.key(name)?, expected).await?)
    }

    /// At most `most` documents whose names begin with all of `below`, each with its name, in order
    /// of their keys. What is no document of this kind is left out.
    ///
    /// # Errors
    /// See [`ShelfError`].
    pub async fn list<S: AsRef<str>>(
        &self,
        below: &[S],
        most: usize,
    ) -> Result<Vec<(Vec<String>, Document<T>)>, ShelfError> {
        let prefix = Prefix::new(self.segments(below))?;
        let (mut found, mut after) = (Vec::new(), None);
        while found.len() < most {
            let limit = (most - found.len()).min(MAX_PAGE_ENTRIES);
            let page = self.store.list(&prefix, after.as_ref(), limit).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            for (key, entry) in page {
                match read(entry) {
                    Ok(document) => {
                        found.push((key.segments().skip(self.place.len()).collect(), document));
                    }
                    Err(error) => warn!(%error, "a document is left out of a list"),
                }
            }
        }
        Ok(found)
    }

    fn key<S: AsRef<str>>(&self, name: &[S]) -> Result<Key, InvalidKey> {
        Key::new(self.segments(name))
    }

    fn segments<'a, S: AsRef<str>>(&'a self, name: &'a [S]) -> impl Iterator<Item = &'a str> {
        self.place.iter().map(String::as_str).chain(name.iter().map(AsRef::as_ref))
    }
}

/// A segment of a place that is short in every encoding, different for different texts.
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

/// Without what was read: it is somebody's data.
fn unusable(error: &serde_json::Error) -> StoreError {
    let (line, column) = (error.line(), error.column());
    StoreError::Unusable {
        reason: format!(
            "a document is not of the kind that this version keeps (line {line}, column {column}); \
             another version may have written it"
        ),
    }
}

impl<T> Clone for Shelf<T> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), place: self.place.clone(), kind: PhantomData }
    }
}

impl<T> fmt::Debug for Shelf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("place", &self.place).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, memory::MemoryStore};

    fn shelf(store: &Arc<dyn Store>, place: &[&str]) -> Shelf<u32> {
        Shelf::new(store.clone(), place)
    }

    fn store() -> Arc<dyn Store> {
        Arc::new(MemoryStore::new(Clock::System))
    }

    #[tokio::test]
    async fn a_document_is_put_read_listed_and_removed_in_its_place_only() {
        let store = store();
        let (own, other) = (shelf(&store, &["kind", "a"]), shelf(&store, &["kind", "ab"]));
        let version = match own.put(&["x", "y"], &7, None, Expected::Absent).await.unwrap() {
            Placed::Done(version) => version,
            Placed::Conflict(found) => panic!("{found:?}"),
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
    async fn of_two_writers_who_expect_nothing_one_hears_of_the_other() {
        let shelf = shelf(&store(), &["kind"]);
        shelf.put(&["x"], &1, None, Expected::Absent).await.unwrap();
        match shelf.put(&["x"], &2, None, Expected::Absent).await.unwrap() {
            Placed::Conflict(Some(found)) => assert_eq!(found.value, 1),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn what_is_no_document_of_the_kind_is_left_out_of_a_list_and_refused_alone() {
        let store = store();
        let (numbers, texts) = (shelf(&store, &["kind"]), Shelf::new(store.clone(), ["kind"]));
        numbers.put(&["x"], &1, None, Expected::Absent).await.unwrap();
        texts.put(&["y"], &"secret".to_owned(), None, Expected::Absent).await.unwrap();
        assert_eq!(numbers.list::<&str>(&[], 10).await.unwrap().len(), 1);
        let error = numbers.get(&["y"]).await.unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn owners_with_long_or_odd_names_have_places_of_their_own() {
        let store = store();
        let names = ["", "a", "a/b", "%", &"x".repeat(48), &"x".repeat(49), &"x".repeat(50)];
        let places: std::collections::HashSet<_> =
            names.iter().map(|name| shelf(&store, &["kind", name]).place).collect();
        assert_eq!(places.len(), names.len());
        assert!(places.iter().all(|place| place[1].len() <= 64));
    }
}
