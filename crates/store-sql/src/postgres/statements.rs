//! SQL statements. Their second parameter is the time of a manual clock, or null for the server's time.
//!
//! Writes of one key are serialized by an advisory lock that the server holds until the commit. The
//! versions of a key, taken from the sequence under the lock, therefore become visible in order, also when
//! the entry was removed in between. An extension acquires the locks of all its keys. Other statements do not
//! need the lock.

/// The current time in milliseconds: the parameter, or the server's time.
macro_rules! now {
    ($parameter:literal) => {
        concat!(
            "coalesce(",
            $parameter,
            "::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
        )
    };
}
pub(super) use now;

/// Acquires the lock of the key, and then reads the time. 1382761076 is "RkBt" in ASCII, the class of this
/// program's locks.
macro_rules! with_key_lock {
    ($statement:literal) => {
        concat!(
            "WITH key_lock AS MATERIALIZED (SELECT pg_advisory_xact_lock(1382761076, hashtext($1))), \
             clock AS MATERIALIZED (SELECT ",
            now!("$2"),
            " AS now FROM key_lock) ",
            $statement
        )
    };
}

/// Parameters: key, now, value, ttl.
pub(super) const PUT: &str = with_key_lock!(
    "INSERT INTO rockbot_entries (key, value, version, expires_at)
     SELECT $1, $3, nextval('rockbot_version'), now + $4::bigint FROM clock
     ON CONFLICT (key) DO UPDATE SET
         value = excluded.value, version = excluded.version, expires_at = excluded.expires_at
     RETURNING version"
);

/// Parameters: key, now, value, ttl.
pub(super) const PUT_IF_ABSENT: &str = with_key_lock!(
    "INSERT INTO rockbot_entries AS old (key, value, version, expires_at)
     SELECT $1, $3, nextval('rockbot_version'), now + $4::bigint FROM clock
     ON CONFLICT (key) DO UPDATE SET
         value = excluded.value, version = excluded.version, expires_at = excluded.expires_at
     WHERE old.expires_at <= (SELECT now FROM clock)
     RETURNING version"
);

/// Parameters: key, now, value, ttl, version.
pub(super) const PUT_IF_VERSION: &str = with_key_lock!(
    "UPDATE rockbot_entries
     SET value = $3, version = nextval('rockbot_version'), expires_at = now + $4::bigint
     FROM clock
     WHERE key = $1 AND version = $5 AND (expires_at IS NULL OR expires_at > now)
     RETURNING version"
);

/// Acquires the locks of all keys before it reads the time. Statements acquire them in one order, so that they
/// do not wait for each other. Parameters: keys, now, versions, ttl. Returns the positions of the extended
/// entries, from 1, and their new versions.
pub(super) const EXTEND: &str = concat!(
    "WITH extension AS MATERIALIZED (
         SELECT * FROM unnest($1::text[], $3::bigint[])
             WITH ORDINALITY AS extension (key, version, item)),
     key_locks AS MATERIALIZED (
         SELECT pg_advisory_xact_lock(1382761076, hash) FROM (
             SELECT DISTINCT hashtext(key) AS hash FROM extension ORDER BY hash) AS hashes),
     clock AS MATERIALIZED (SELECT ",
    now!("$2"),
    " AS now FROM (SELECT count(*) FROM key_locks) AS locked)
     UPDATE rockbot_entries AS entry
     SET version = nextval('rockbot_version'), expires_at = clock.now + $4::bigint
     FROM extension, clock
     WHERE entry.key = extension.key AND entry.version = extension.version
         AND (entry.expires_at IS NULL OR entry.expires_at > clock.now)
     RETURNING extension.item, entry.version"
);

/// Parameters: keys, now.
pub(super) const GET_ALL: &str = concat!(
    "SELECT key, value, version, expires_at FROM rockbot_entries
     WHERE key = ANY($1::text[]) AND (expires_at IS NULL OR expires_at > (SELECT ",
    now!("$2"),
    "))"
);

/// Parameters: key, now, version or null.
pub(super) const REMOVE: &str = concat!(
    "DELETE FROM rockbot_entries WHERE key = $1 AND (expires_at IS NULL OR expires_at > ",
    now!("$2"),
    ") AND ($3::bigint IS NULL OR version = $3)"
);

/// Parameters: key, now.
pub(super) const GET: &str = concat!(
    "SELECT value, version, expires_at FROM rockbot_entries
     WHERE key = $1 AND (expires_at IS NULL OR expires_at > ",
    now!("$2"),
    ")"
);

/// Parameters: exclusive lower bound, now, exclusive upper bound, limit.
pub(super) const LIST: &str = concat!(
    "SELECT key, value, version, expires_at FROM rockbot_entries
     WHERE key > $1 AND key < $3 AND (expires_at IS NULL OR expires_at > (SELECT ",
    now!("$2"),
    ")) ORDER BY key LIMIT $4"
);

/// Parameters: limit, now. Skips entries that another process is sweeping or changing.
pub(super) const SWEEP: &str = concat!(
    "DELETE FROM rockbot_entries WHERE key IN (
         SELECT key FROM rockbot_entries WHERE expires_at <= (SELECT ",
    now!("$2"),
    ") LIMIT $1 FOR UPDATE SKIP LOCKED)"
);

/// Parameters: now.
pub(super) const NOW: &str = concat!("SELECT ", now!("$1"));
