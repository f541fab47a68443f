//! What every bus promises, as tests that run on any of them.
//!
//! [`bus_promises!`](crate::bus_promises) makes one test of each promise. The list of promises is
//! the list in that macro; a promise missing there does not compile away unseen, because each is
//! used nowhere else.

pub mod asking;
pub mod consuming;
pub mod publishing;
pub mod routing;
pub mod settling;
pub mod working;

/// Makes one test of every promise, on the bed that `$bed` (an async function) returns.
#[macro_export]
macro_rules! bus_promises {
    ($bed:path) => {
        $crate::bus_promises!(@ $bed, publishing:
            a_confirmed_message_reaches_its_consumer
            an_unroutable_message_is_an_error
            an_unroutable_announcement_is_no_error
            each_publisher_learns_the_fate_of_its_own_message
            each_answer_has_its_own_fate
            a_full_work_queue_refuses
            a_full_announcement_queue_drops_the_oldest
            an_oversized_body_is_refused_before_it_leaves
            every_part_of_an_envelope_survives
            a_closed_bus_refuses_to_publish
        );
        $crate::bus_promises!(@ $bed, routing:
            a_star_stands_for_one_word
            a_hash_stands_for_any_number_of_words
            overlapping_bindings_deliver_once
            every_exclusive_queue_gets_its_own_copy
            a_message_goes_to_every_kind_of_queue_bound_for_it
        );
        $crate::bus_promises!(@ $bed, consuming:
            competing_consumers_get_each_message_once
            messages_keep_their_order
            messages_wait_for_a_consumer
            prefetch_bounds_unsettled_deliveries
            a_cancelled_consumer_hands_out_what_it_holds_and_ends
            what_a_cancelled_consumer_leaves_goes_to_others
            closing_the_bus_ends_its_consumers
            a_queue_is_not_redeclared_with_another_shape
            an_inspection_counts_messages_and_consumers
        );
        $crate::bus_promises!(@ $bed, settling:
            an_acked_delivery_does_not_come_again
            an_ack_that_began_takes_effect
            what_is_settled_on_receipt_does_not_come_again
            a_retried_delivery_comes_again_and_says_so
            a_dropped_delivery_comes_again
            a_dead_letter_keeps_its_body_and_the_reason
            dead_letters_can_be_looked_at_often_and_stay_in_order
            a_message_delivered_too_often_becomes_a_dead_letter
        );
        $crate::bus_promises!(@ $bed, working:
            a_worker_runs_as_many_tasks_as_its_prefetch
            a_worker_survives_a_panic_and_tries_again
            a_drained_worker_finishes_what_it_began
            a_worker_out_of_grace_hands_its_work_back
        );
        $crate::bus_promises!(@ $bed, asking:
            a_question_gets_its_answer
            answers_find_their_askers_in_any_order
            a_question_to_nobody_fails_at_once
            a_question_without_an_answer_times_out
            a_late_answer_is_dropped_and_counted
            a_second_answer_is_dropped_and_counted
            a_foreign_answer_is_dropped_and_counted
            progress_comes_in_order_before_the_answer
            two_replicas_never_take_each_others_answers
            a_requester_subscribes_once_and_lazily
            a_correlation_id_in_use_is_refused
            an_answered_question_leaves_its_id_to_the_next
            too_many_open_questions_are_refused
            a_dropped_question_is_forgotten
        );
    };
    (@ $bed:path, $group:ident: $($promise:ident)+) => {
        mod $group {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $promise() {
                    $crate::conformance::$group::$promise($bed().await).await;
                }
            )+
        }
    };
}
