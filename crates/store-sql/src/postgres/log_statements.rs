//! SQL statements for logs. Their first parameter is the time of a manual clock, or null for the server's
//! time.
//!
//! A change of a log locks its row in `rockbot_logs`, and reads the row again after waiting for another
//! change: the condition on the next number is the fence.

use super::statements::now;

macro_rules! with_clock {
    ($statement:literal) => {
        concat!("WITH clock AS MATERIALIZED (SELECT ", now!("$1"), " AS now)", $statement)
    };
}

/// Parameters: now, and of each append: name, number, number of entries, size, ttl; of each entry: the
/// position of its append from 1, number, value; and the id of the log of each append, or null. At most one
/// append for each log. Returns the positions of the successful appends and the ids of their logs.
pub(super) const APPEND: &str = with_clock!(
    ", append AS MATERIALIZED (
         SELECT * FROM unnest(
             $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $10::bigint[])
             WITH ORDINALITY AS append (name, at, entries, bytes, ttl, log, item)),
     advanced AS (
         UPDATE rockbot_logs AS log
         SET next = log.next + append.entries, bytes = log.bytes + append.bytes,
             appended_at = clock.now, expires_at = clock.now + append.ttl
         FROM append, clock
         WHERE log.name = append.name AND log.next = append.at
             AND (append.log IS NULL OR log.id = append.log)
             AND (log.expires_at IS NULL OR log.expires_at > clock.now)
         RETURNING log.id, append.item),
     created AS (
         INSERT INTO rockbot_logs (name, first, next, bytes, appended_at, expires_at)
         SELECT name, 1, 1 + entries, bytes, clock.now, clock.now + ttl FROM append, clock
         WHERE at = 1 AND log IS NULL ORDER BY item
         ON CONFLICT (name) DO NOTHING
         RETURNING id, name),
     target AS (
         SELECT id, item FROM advanced
         UNION ALL SELECT created.id, append.item FROM created JOIN append USING (name)),
     inserted AS (
         INSERT INTO rockbot_log_entries (log, number, value)
         SELECT target.id, entry.number, entry.value FROM target
         JOIN unnest($7::bigint[], $8::bigint[], $9::bytea[]) AS entry (item, number, value)
             USING (item))
     SELECT item, id FROM target"
);

/// Removes the expired logs of these names, so that new logs can take their place. Parameters: now, names.
pub(super) const REMOVE_EXPIRED: &str = with_clock!(
    ", expired AS (
         DELETE FROM rockbot_logs USING clock WHERE name = ANY($2) AND expires_at <= now
         RETURNING id)
     DELETE FROM rockbot_log_entries USING expired WHERE log = expired.id"
);

/// Parameters: now, names.
pub(super) const NEXT_POSITIONS: &str = with_clock!(
    " SELECT name, id, next FROM rockbot_logs, clock
     WHERE name = ANY($2) AND (expires_at IS NULL OR expires_at > now)"
);

/// Parameters: now, name, lowest number, limit.
pub(super) const READ: &str = with_clock!(
    " SELECT entry.number, entry.value FROM rockbot_log_entries AS entry
     WHERE entry.log = (
         SELECT id FROM rockbot_logs, clock
         WHERE name = $2 AND (expires_at IS NULL OR expires_at > now))
     AND entry.number >= $3 ORDER BY entry.number LIMIT $4"
);

/// Parameters: now, name.
pub(super) const STATE: &str = with_clock!(
    " SELECT name, id, first, next, bytes, appended_at FROM rockbot_logs, clock
     WHERE name = $2 AND (expires_at IS NULL OR expires_at > now)"
);

/// Parameters: now, exclusive lower bound, exclusive upper bound, limit.
pub(super) const LIST: &str = with_clock!(
    " SELECT name, id, first, next, bytes, appended_at FROM rockbot_logs
     WHERE name > $2 AND name < $3
         AND (expires_at IS NULL OR expires_at > (SELECT now FROM clock))
     ORDER BY name LIMIT $4"
);

/// Parameters: now, name.
pub(super) const LOCK: &str = with_clock!(
    " SELECT id FROM rockbot_logs, clock
     WHERE name = $2 AND (expires_at IS NULL OR expires_at > now) FOR UPDATE OF rockbot_logs"
);

/// Parameters: id, number. Returns the number and size of the removed entries.
pub(super) const TRUNCATE: &str = "WITH removed AS (
         DELETE FROM rockbot_log_entries WHERE log = $1 AND number < $2
         RETURNING octet_length(value) AS bytes)
     SELECT count(*), coalesce(sum(bytes), 0)::bigint FROM removed";

/// Parameters: id, number and size of the removed entries.
pub(super) const SHRINK: &str =
    "UPDATE rockbot_logs SET first = first + $2, bytes = bytes - $3 WHERE id = $1";

/// Parameters: now, name. Returns the id, and whether the log had not expired.
pub(super) const DELETE: &str = with_clock!(
    " DELETE FROM rockbot_logs USING clock WHERE name = $2
     RETURNING id, (expires_at IS NULL OR expires_at > now)"
);

/// Parameters: id.
pub(super) const DELETE_ENTRIES: &str = "DELETE FROM rockbot_log_entries WHERE log = $1";

/// Parameters: now, limit. Skips logs that another process is sweeping or changing.
pub(super) const SWEEP_ENTRIES: &str = with_clock!(
    ", expired AS MATERIALIZED (
         SELECT entry.log, entry.number FROM rockbot_logs AS log
         JOIN rockbot_log_entries AS entry ON entry.log = log.id
         WHERE log.expires_at <= (SELECT now FROM clock) LIMIT $2 FOR UPDATE OF log SKIP LOCKED)
     DELETE FROM rockbot_log_entries AS entry USING expired
     WHERE entry.log = expired.log AND entry.number = expired.number"
);

/// Parameters: now, limit. Skips logs that another process is sweeping or changing.
pub(super) const SWEEP_LOGS: &str = with_clock!(
    " DELETE FROM rockbot_logs WHERE id IN (
         SELECT id FROM rockbot_logs AS log
         WHERE expires_at <= (SELECT now FROM clock)
             AND NOT EXISTS (SELECT 1 FROM rockbot_log_entries AS entry WHERE entry.log = log.id)
         LIMIT $2 FOR UPDATE SKIP LOCKED)"
);
