//! What every store promises, as tests that run on any of them.
//!
//! [`store_promises!`](crate::store_promises) makes one test of each promise, and
//! [`durable_store_promises!`](crate::durable_store_promises) of those that a store in memory
//! can't keep.

#![allow(missing_docs, reason = "the name of a promise says it all")]

pub mod closing;
pub mod expiring;
pub mod lasting;
pub mod leasing;
pub mod listing;
pub mod racing;
pub mod removing;
pub mod writing;

/// Makes one test of every promise, on the bed that `$bed` (an async function) returns.
#[macro_export]
macro_rules! store_promises {
    ($bed:path) => {
        $crate::store_promises!(@ $bed, writing:
            a_value_is_read_as_it_was_written
            a_value_of_any_bytes_survives
            an_absent_key_has_no_entry
            a_later_write_replaces_an_earlier_one
            a_write_that_expects_nothing_is_refused_by_an_entry
            a_write_that_expects_a_version_is_made_on_that_version_only
            a_write_that_expects_a_version_finds_an_absent_key
            versions_grow_from_write_to_write_on_any_key
            a_value_at_the_limit_is_kept_and_one_byte_more_is_refused
        );
        $crate::store_promises!(@ $bed, racing:
            of_many_that_expect_nothing_one_wins
            of_many_that_expect_a_version_one_wins
            a_counter_raised_by_many_counts_them_all
            a_refused_write_fails_none_of_its_neighbours
            a_version_never_goes_back_while_others_write_and_remove
        );
        $crate::store_promises!(@ $bed, removing:
            a_removed_entry_is_absent
            a_removal_of_another_version_removes_nothing
            removing_what_is_absent_is_no_error
            a_version_never_goes_back_after_a_removal
        );
        $crate::store_promises!(@ $bed, expiring:
            an_entry_lives_until_its_time_and_not_longer
            an_expired_entry_is_not_listed
            an_expired_entry_gives_way_to_a_write_that_expects_nothing
            an_expired_version_is_not_what_was_expected
            an_expired_entry_is_not_there_to_be_removed
            a_write_replaces_the_time_to_live_too
            a_time_to_live_may_be_longer_than_any_calendar
            a_sweep_removes_what_has_expired_and_nothing_else
            a_sweep_removes_no_more_than_its_limit
            a_version_never_goes_back_after_a_sweep
            a_store_tells_the_time_it_expires_by
        );
        $crate::store_promises!(@ $bed, listing:
            a_prefix_lists_whole_segments_only
            a_prefix_takes_no_character_for_a_wildcard
            a_list_is_in_the_order_of_the_bytes
            pages_follow_each_other_without_gaps_or_repeats
            a_page_ends_when_its_values_are_large
            a_list_begins_after_a_key_that_is_gone
            a_limit_of_nothing_lists_nothing
        );
        $crate::store_promises!(@ $bed, leasing:
            a_lease_has_one_holder
            of_many_that_want_a_lease_one_gets_it
            a_lease_that_ended_goes_to_somebody_else_with_a_larger_token
            a_renewed_lease_outlives_its_first_time_and_keeps_its_token
            a_stale_holder_finds_its_loss_when_it_renews
            a_lease_that_ended_is_lost_even_if_nobody_took_it
            a_released_lease_is_free_at_once
            releasing_a_lost_lease_takes_nothing_from_its_new_holder
        );
        $crate::store_promises!(@ $bed, closing:
            a_closed_store_refuses
            closing_twice_is_no_error
        );
    };
    (@ $bed:path, $group:ident: $($promise:ident)+) => {
        mod $group {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    $bed().await.run($crate::store_conformance::$group::$promise).await;
                }
            )+
        }
    };
}

/// Makes one test of every promise about what outlives a process, on the bed that `$bed` (an async
/// function) returns.
#[macro_export]
macro_rules! durable_store_promises {
    ($bed:path) => {
        $crate::store_promises!(@ $bed, lasting:
            entries_survive_reopening
            versions_go_on_after_reopening
            what_was_written_while_a_store_was_closed_is_there_or_was_refused
            writers_of_two_processes_lose_nothing
            a_dropped_write_is_made_whole_or_not_at_all
        );
    };
}
