//! The conformance suite for stores.
//!
//! [`store_conformance_tests!`](crate::store_conformance_tests) turns the functions of the modules below
//! into tests, and [`durable_store_conformance_tests!`](crate::durable_store_conformance_tests) those of
//! [`durability`], which an in-memory store does not pass.
//! [`log_conformance_tests!`](crate::log_conformance_tests) and
//! [`durable_log_conformance_tests!`](crate::durable_log_conformance_tests) do so for logs.

#![allow(missing_docs, reason = "the name of a test describes it")]

pub mod closing;
pub mod concurrency;
pub mod durability;
pub mod expiry;
pub mod extending;
pub mod leases;
pub mod listing;
pub mod log_appending;
pub mod log_concurrency;
pub mod log_durability;
pub mod log_expiry;
pub mod log_reading;
pub mod log_removing;
pub mod removing;
mod writers;
pub mod writing;

/// Defines the tests of the suite, on the fixture that `$fixture` (an async function) returns.
#[macro_export]
macro_rules! store_conformance_tests {
    ($fixture:path) => {
        $crate::store_conformance_tests!(@ $fixture, writing:
            value_is_read_as_written
            value_may_hold_any_bytes
            absent_key_has_no_entry
            later_write_replaces_earlier_one
            write_expecting_absent_conflicts_with_entry
            write_expecting_version_conflicts_with_another
            write_expecting_version_conflicts_with_absence
            versions_grow_across_keys
            value_size_is_limited
        );
        $crate::store_conformance_tests!(@ $fixture, concurrency:
            one_concurrent_create_succeeds
            one_concurrent_update_succeeds
            concurrent_increments_are_all_counted
            rejected_write_does_not_fail_others
            versions_grow_under_concurrent_removals
        );
        $crate::store_conformance_tests!(@ $fixture, removing:
            removed_entry_is_absent
            removal_of_another_version_has_no_effect
            removal_of_absent_entry_is_no_error
            versions_grow_after_removal
        );
        $crate::store_conformance_tests!(@ $fixture, expiry:
            entry_expires_at_its_time
            expired_entry_is_not_listed
            expired_entry_counts_as_absent
            expired_version_does_not_match
            expired_entry_cannot_be_removed
            write_replaces_time_to_live
            time_to_live_may_exceed_calendar
            sweep_removes_only_expired_entries
            sweep_respects_its_limit
            versions_grow_after_sweep
            store_reports_its_clock
        );
        $crate::store_conformance_tests!(@ $fixture, extending:
            extended_entry_keeps_its_value_and_outlives_its_ttl
            extension_of_another_version_conflicts_alone
            expired_entry_is_not_extended
            number_of_extensions_is_limited
            concurrent_extensions_of_the_same_entries_end
            extension_races_with_writes
        );
        $crate::store_conformance_tests!(@ $fixture, listing:
            prefix_matches_whole_segments
            prefix_has_no_wildcards
            list_is_in_byte_order
            pages_have_no_gaps_or_repeats
            page_size_is_bounded
            list_continues_after_removed_key
            limit_zero_lists_nothing
        );
        $crate::store_conformance_tests!(@ $fixture, leases:
            lease_has_one_holder
            one_concurrent_acquire_succeeds
            expired_lease_is_reacquired_with_larger_token
            renewed_lease_keeps_its_token
            stale_holder_cannot_renew
            expired_lease_cannot_be_renewed
            released_lease_is_free_at_once
            release_of_lost_lease_has_no_effect
        );
        $crate::store_conformance_tests!(@ $fixture, closing:
            closed_store_rejects_operations
            closing_twice_is_no_error
        );
    };
    (@ $fixture:path, $group:ident: $($test:ident)+) => {
        mod $group {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    $fixture().await.run($crate::store_conformance::$group::$test).await;
                }
            )+
        }
    };
}

/// Defines the tests of [`durability`](crate::store_conformance::durability), on the fixture that
/// `$fixture` (an async function) returns.
#[macro_export]
macro_rules! durable_store_conformance_tests {
    ($fixture:path) => {
        $crate::store_conformance_tests!(@ $fixture, durability:
            entries_survive_reopening
            versions_grow_after_reopening
            write_during_close_is_complete_or_rejected
            writes_of_two_processes_are_all_kept
            dropped_write_is_atomic
        );
    };
}

/// Defines the tests of the suite for logs, on the fixture that `$fixture` (an async function) returns.
#[macro_export]
macro_rules! log_conformance_tests {
    ($fixture:path) => {
        $crate::store_conformance_tests!(@ $fixture, log_appending:
            entries_are_read_as_appended
            append_at_another_number_conflicts
            conflicting_append_changes_nothing
            empty_append_checks_fence
            append_size_is_limited
            state_counts_entries_and_bytes
            logs_are_independent
            log_and_entry_may_share_name
        );
        $crate::store_conformance_tests!(@ $fixture, log_concurrency:
            one_concurrent_append_succeeds
            one_concurrent_creation_succeeds
            writers_of_many_logs_leave_no_gaps
            appends_to_many_logs_have_their_own_outcomes
            rejected_append_does_not_fail_others
            appends_race_with_truncation
            appends_race_with_deletion
        );
        $crate::store_conformance_tests!(@ $fixture, log_reading:
            pages_of_entries_have_no_gaps_or_repeats
            page_of_entries_is_bounded
            pages_of_logs_have_no_gaps_or_repeats
            prefix_matches_whole_segments
            limit_zero_reads_nothing
            absent_log_is_empty
        );
        $crate::store_conformance_tests!(@ $fixture, log_removing:
            truncation_keeps_later_entries
            truncation_beyond_end_keeps_next_number
            deleted_log_starts_again
            stale_append_conflicts_with_recreated_log
            deletion_of_absent_log_is_no_error
        );
        $crate::store_conformance_tests!(@ $fixture, log_expiry:
            log_expires_after_its_last_append
            expired_log_starts_again
            append_replaces_time_to_live
            sweep_removes_only_expired_logs
            sweep_respects_its_limit
            closed_log_rejects_operations
        );
    };
}

/// Defines the tests of [`log_durability`](crate::store_conformance::log_durability), on the fixture that
/// `$fixture` (an async function) returns.
#[macro_export]
macro_rules! durable_log_conformance_tests {
    ($fixture:path) => {
        $crate::store_conformance_tests!(@ $fixture, log_durability:
            logs_survive_reopening
            append_during_close_is_complete_or_rejected
            dropped_append_is_atomic
        );
    };
}
