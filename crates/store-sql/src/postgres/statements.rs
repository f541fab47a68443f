//! The statements. Their second parameter is the moment that a test chose, or null for the
//! server's time.
//!
//! Writes of one key take turns, by a lock that the server holds until the commit. So the
//! versions of a key, taken from the sequence during the turn, come into force in their order,
//! also when the entry was removed in between; nothing else needs the turn.

/// The moment, chosen or the server's, in milliseconds.
macro_rules! now {
    ($parameter:literal) => {
        concat!(
            "coalesce(",
            $parameter,
            "::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
        )
    };
}

/// The turn, and the moment it came. 1382761076 is "RkBt" in ASCII: the house's own locks.
macro_rules! in_turn {
    ($statement:literal) => {
        concat!(
            "WITH turn AS MATERIALIZED (SELECT pg_advisory_xact_lock(1382761076, hashtext($1))), \
             clock AS MATERIALIZED (SELECT ",
            now!("$2"),
            " AS now FROM turn) ",
            $statement
        )
    };
}

/// Key, now, value, ttl.
pub(super) const PUT: &str = in_turn!(
    "INSERT INTO rockbot_entries (key, value, version, expires_at)
     SELECT $1, $3, nextval('rockbot_version'), now + $4::bigint FROM clock
     ON CONFLICT (key) DO UPDATE SET
         value = excluded.value, version = excluded.version, expires_at = excluded.expires_at
     RETURNING version"
);

/// Key, now, value, ttl.
pub(super) const PUT_IF_ABSENT: &str = in_turn!(
    "INSERT INTO rockbot_entries AS old (key, value, version, expires_at)
     SELECT $1, $3, nextval('rockbot_version'), now + $4::bigint FROM clock
     ON CONFLICT (key) DO UPDATE SET
         value = excluded.value, version = excluded.version, expires_at = excluded.expires_at
     WHERE old.expires_at <= (SELECT now FROM clock)
     RETURNING version"
);

/// Key, now, value, ttl, version.
pub(super) const PUT_IF_VERSION: &str = in_turn!(
    "UPDATE rockbot_entries
     SET value = $3, version = nextval('rockbot_version'), expires_at = now + $4::bigint
     FROM clock
     WHERE key = $1 AND version = $5 AND (expires_at IS NULL OR expires_at > now)
     RETURNING version"
);

/// Key, now, version or null.
pub(super) const REMOVE: &str = concat!(
    "DELETE FROM rockbot_entries WHERE key = $1 AND (expires_at IS NULL OR expires_at > ",
    now!("$2"),
    ") AND ($3::bigint IS NULL OR version = $3)"
);

/// Key, now.
pub(super) const GET: &str = concat!(
    "SELECT value, version, expires_at FROM rockbot_entries
     WHERE key = $1 AND (expires_at IS NULL OR expires_at > ",
    now!("$2"),
    ")"
);

/// Key before the first, now, key after the last, limit.
pub(super) const LIST: &str = concat!(
    "SELECT key, value, version, expires_at FROM rockbot_entries
     WHERE key > $1 AND key < $3 AND (expires_at IS NULL OR expires_at > (SELECT ",
    now!("$2"),
    ")) ORDER BY key LIMIT $4"
);

/// Limit, now. What another process is about to sweep or to change is left alone.
pub(super) const SWEEP: &str = concat!(
    "DELETE FROM rockbot_entries WHERE key IN (
         SELECT key FROM rockbot_entries WHERE expires_at <= (SELECT ",
    now!("$2"),
    ") LIMIT $1 FOR UPDATE SKIP LOCKED)"
);

/// Now, chosen by the first parameter.
pub(super) const NOW: &str = concat!("SELECT ", now!("$1"));
