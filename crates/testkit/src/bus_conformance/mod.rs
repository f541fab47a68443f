//! The conformance suite for buses.
//!
//! [`bus_conformance_tests!`](crate::bus_conformance_tests) turns each function of the modules below into
//! a test. Its list is the suite: a function that is missing there runs nowhere.

pub mod consuming;
pub mod publishing;
pub mod requests;
pub mod routing;
pub mod settling;
pub mod workers;

/// Defines the tests of the suite, on the fixture that `$fixture` (an async function) returns.
#[macro_export]
macro_rules! bus_conformance_tests {
    ($fixture:path) => {
        $crate::bus_conformance_tests!(@ $fixture, publishing:
            confirmed_message_reaches_its_consumer
            unroutable_message_is_an_error
            unroutable_announcement_is_no_error
            concurrent_publishes_return_their_own_outcome
            delivered_reply_is_not_reported_as_unroutable
            full_work_queue_rejects
            work_queue_full_by_size_rejects
            full_announcement_queue_drops_oldest
            oversized_body_is_rejected_by_sender
            envelope_arrives_unchanged
            closed_bus_rejects_publish
        );
        $crate::bus_conformance_tests!(@ $fixture, routing:
            star_matches_one_word
            hash_matches_zero_or_more_words
            overlapping_bindings_deliver_once
            exclusive_queues_receive_their_own_copy
            message_reaches_every_bound_queue
        );
        $crate::bus_conformance_tests!(@ $fixture, consuming:
            competing_consumers_get_each_message_once
            messages_keep_their_order
            messages_wait_for_a_consumer
            prefetch_bounds_unsettled_deliveries
            cancelled_consumer_yields_its_deliveries_and_ends
            dropped_consumer_returns_its_deliveries
            closed_bus_ends_its_consumers
            conflicting_queue_declaration_is_rejected
            inspect_counts_messages_and_consumers
            panicked_consumer_task_ends_readiness
        );
        $crate::bus_conformance_tests!(@ $fixture, settling:
            acked_delivery_is_not_redelivered
            started_ack_takes_effect
            delivery_settled_on_receipt_is_not_redelivered
            retried_delivery_is_marked_redelivered
            dropped_delivery_is_redelivered
            dead_letter_keeps_body_and_reason
            inspected_dead_letters_keep_their_order
            message_delivered_too_often_is_dead_lettered
        );
        $crate::bus_conformance_tests!(@ $fixture, workers:
            worker_concurrency_equals_prefetch
            panicking_handler_is_retried
            drained_worker_finishes_started_deliveries
            worker_returns_deliveries_after_grace
        );
        $crate::bus_conformance_tests!(@ $fixture, requests:
            request_receives_its_reply
            replies_are_matched_by_correlation_id
            unroutable_request_fails_at_once
            request_without_reply_times_out
            late_reply_is_dropped_and_counted
            second_reply_is_dropped_and_counted
            unknown_reply_is_dropped_and_counted
            progress_arrives_in_order_before_reply
            replicas_receive_only_their_replies
            requester_subscribes_lazily_and_once
            correlation_id_in_use_is_rejected
            replied_request_frees_its_id
            pending_requests_are_bounded
            dropped_request_is_removed
        );
    };
    (@ $fixture:path, $group:ident: $($test:ident)+) => {
        mod $group {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    $crate::bus_conformance::$group::$test($fixture().await).await;
                }
            )+
        }
    };
}
