//! Extensions of the time to live of several entries, with one statement.

use std::{collections::HashMap, time::Duration};

use rockbot_store::{Entry, Expected, Extension, StoreError, Version, Written, clock::millis};
use sqlx::PgConnection;

use super::{
    ATTEMPTS, MAX_TTL_MILLIS, PostgresStore,
    failure::{explain, explain_change},
    statements, with_timeout,
};
use crate::row::{self, KeyedRow};

impl PostgresStore {
    /// Extends the entries. Those that conflict although they have the named version, because they changed
    /// meanwhile, are extended again.
    pub(super) async fn extend_all(
        &self,
        extensions: Vec<Extension>,
        ttl: Duration,
    ) -> Result<Vec<Written>, StoreError> {
        Extension::check_number(&extensions)?;
        let mut outcomes = vec![None; extensions.len()];
        let mut is_changed = false;
        let mut connection = self.connection().await?;
        for _ in 0..ATTEMPTS {
            let open = || (0..).zip(&extensions).filter(|(at, _)| outcomes[*at].is_none());
            let open: Vec<(usize, &Extension)> = open().collect();
            if open.is_empty() {
                return Ok(outcomes.into_iter().flatten().collect());
            }
            let attempt = self.try_extend(&mut connection, &open, ttl).await;
            for (at, outcome) in attempt.map_err(|error| unconfirmed(error, is_changed))? {
                is_changed |= matches!(outcome, Written::Done(_));
                outcomes[at] = Some(outcome);
            }
        }
        let reason = "the keys change too often; try again".to_owned();
        Err(unconfirmed(StoreError::Unavailable { reason }, is_changed))
    }

    /// Extends the entries once. Returns the outcomes by their positions.
    async fn try_extend(
        &self,
        connection: &mut PgConnection,
        extensions: &[(usize, &Extension)],
        ttl: Duration,
    ) -> Result<Vec<(usize, Written)>, StoreError> {
        let keys: Vec<&str> = extensions.iter().map(|(_, one)| one.key.as_str()).collect();
        let versions: Vec<i64> = extensions.iter().map(|(_, one)| one.version.number()).collect();
        let query = sqlx::query_as(statements::EXTEND)
            .bind(&keys)
            .bind(self.manual_now())
            .bind(versions)
            .bind(millis(ttl).min(MAX_TTL_MILLIS));
        let extended: Vec<(i64, i64)> =
            with_timeout(explain_change, query.fetch_all(&mut *connection)).await?;
        let extended: HashMap<i64, i64> = extended.into_iter().collect();
        let (done, open): (Vec<_>, Vec<_>) =
            (1_i64..).zip(extensions).partition(|(item, _)| extended.contains_key(item));
        let mut outcomes: Vec<_> = done
            .into_iter()
            .map(|(item, (at, _))| (*at, Written::Done(Version::from_number(extended[&item]))))
            .collect();
        let keys: Vec<&str> = open.iter().map(|(_, (_, one))| one.key.as_str()).collect();
        let read = self.read_all(connection, &keys).await;
        let mut present = read.map_err(|error| unconfirmed(error, !extended.is_empty()))?;
        for (_, (at, Extension { key, version })) in open {
            let entry = present.remove(key.as_str());
            if !Expected::Version(*version).is_met_by(entry.as_ref()) {
                outcomes.push((*at, Written::Conflict(entry)));
            }
        }
        Ok(outcomes)
    }

    async fn read_all(
        &self,
        connection: &mut PgConnection,
        keys: &[&str],
    ) -> Result<HashMap<String, Entry>, StoreError> {
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let query = sqlx::query_as(statements::GET_ALL).bind(keys).bind(self.manual_now());
        let rows: Vec<KeyedRow> = with_timeout(explain, query.fetch_all(connection)).await?;
        let keyed =
            |(key, value, version, expires_at)| (key, row::entry((value, version, expires_at)));
        Ok(rows.into_iter().map(keyed).collect())
    }
}

/// Returns the error of a change of which a part was made.
fn unconfirmed(error: StoreError, is_changed: bool) -> StoreError {
    match error {
        StoreError::Unavailable { reason } if is_changed => StoreError::Unconfirmed { reason },
        error => error,
    }
}
