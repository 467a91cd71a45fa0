"""The tests that prove the guarantees, by the headings of docs/guarantees.md."""

PROOFS: dict[str, tuple[str, ...]] = {
    "A link is down": (
        "conformance/test_conformance.py::test_events_find_their_way_around_a_cut_link_once",
        "drivers/live/test_processes.py::test_a_link_is_cut_in_mid_stream_and_every_event_arrives_once",
    ),
    "A link is dead in one direction": (
        "strategies/adaptive/test_adaptive.py::test_a_link_dead_in_one_direction_goes_down_once_and_is_back_once",
        "protocol/test_conversations.py::test_a_lost_ack_does_not_notify_twice",
    ),
    "The overlay is partitioned": (
        "conformance/test_conformance.py::test_what_cannot_go_on_is_kept_until_the_link_heals",
    ),
    "An operator removes a link": (
        "conformance/test_conformance.py::test_a_removed_link_loses_nothing_and_a_new_one_serves",
        "drivers/live/addressing/test_given_links.py::test_clients_add_and_remove_links_and_nothing_is_lost",
    ),
    "A peer on the route crashes": (
        "drivers/sim/test_promises.py::test_no_strategy_breaks_what_it_promises",
        "conformance/test_conformance.py::test_a_large_event_survives_the_restart_of_a_peer_that_has_some_of_it",
    ),
    "The publisher's peer crashes": (
        "conformance/test_conformance.py::test_what_was_promised_survives_a_crash_of_the_publishing_peer",
        "drivers/live/store/test_peer_store.py::test_kept_is_said_only_of_what_a_crash_leaves",
    ),
    "The subscriber's peer crashes": (
        "drivers/live/test_crashed_subscriber.py::test_events_wait_for_a_client_that_comes_back",
        "protocol/test_pending_delivery.py::test_when_the_grace_time_is_over_it_is_dropped_aloud",
        "drivers/live/test_durable_subscriptions.py::test_a_peer_that_ends_and_comes_back_loses_nothing_for_a_durable_subscription",
        "drivers/live/test_restarts.py::test_peers_that_are_killed_and_stopped_lose_no_stored_event",
    ),
    "A peer is suspended or busy": (
        "drivers/live/test_late.py::test_events_that_a_suspended_peer_gets_too_late_are_late",
    ),
    "The subscriber's peer stops gracefully": (
        "drivers/live/test_restarts.py::test_a_rolling_restart_loses_and_doubles_nothing",
        "drivers/live/test_crashed_subscriber.py::test_events_wait_for_a_client_that_comes_back",
        "protocol/delivery/test_durable.py::test_a_peer_that_will_be_back_withdraws_only_what_nobody_stores_for_it",
        "protocol/test_persistence.py::test_events_for_a_peer_that_stays_away_are_stored_as_long_as_it_announced",
        "strategies/rendezvous/test_stored_events.py::test_events_wait_for_a_peer_that_is_away_for_longer_than_entries_live",
        "conformance/test_conformance.py::test_a_peer_that_leaves_withdraws_its_interest",
    ),
    "Another peer stops gracefully": (
        "drivers/live/test_peer.py::test_stopping_waits_a_moment_for_what_was_not_acknowledged",
        "drivers/live/test_restarts.py::test_a_rolling_restart_loses_and_doubles_nothing",
    ),
    "A client is gone": (
        "drivers/live/client/test_clients_return.py::test_a_client_comes_back_and_brings_its_subscriptions",
        "drivers/live/test_durable_subscriptions.py::test_events_wait_for_a_client_that_is_away",
        "drivers/live/test_durable_subscriptions.py::test_what_is_not_acknowledged_comes_again",
        "drivers/live/test_durable_subscriptions.py::test_a_lost_connection_repeats_nothing_that_the_application_has",
    ),
    "A client fails over to another peer": (
        "drivers/live/client/test_clients_failover.py::test_a_client_whose_peer_is_gone_continues_at_the_next",
    ),
    "A queue group loses its last member at a peer": (
        "protocol/delivery/test_queue_groups.py::test_an_event_for_a_member_that_has_just_gone_reaches_another",
    ),
    "The peer of a queue group's member crashes": (
        "protocol/delivery/test_queue_groups.py::test_an_event_that_waited_in_vain_for_a_member_reaches_another",
    ),
    "A client reads too slowly": (
        "drivers/live/test_late.py::test_the_time_in_the_queue_of_a_slow_client_counts",
        "drivers/live/broker/test_clients_slow.py::test_a_client_that_reads_again_is_told_what_it_missed",
        "drivers/live/broker/test_clients_slow.py::test_a_client_that_stops_reading_holds_up_nobody",
        "drivers/live/test_durable_subscriptions.py::test_a_client_is_told_what_it_missed",
        "protocol/delivery/test_durable.py::test_a_full_backlog_drops_the_oldest_and_tells_the_client",
    ),
    "The disk is full": (
        "drivers/live/store/test_peer_store.py::test_while_nothing_can_be_stored_nothing_is_acknowledged_or_promised",
        "drivers/live/store/test_peer_store.py::test_what_a_full_disk_has_no_room_for_is_left_to_its_sender",
    ),
    "A store is damaged or gone": (
        "drivers/live/store/test_store_faults.py::test_any_bit_that_flips_costs_the_record_that_it_hits",
        "drivers/live/store/test_store_faults.py::test_a_file_cut_short_at_any_byte_costs_what_was_cut_off",
        "protocol/delivery/test_lost_records.py::test_after_lost_records_an_event_from_before_the_restart_is_marked",
        "drivers/live/test_lost_stores.py::test_events_from_before_the_loss_are_marked_and_later_ones_are_not",
    ),
    "A peer with a log crashes or stops": (
        "protocol/delivery/test_logged.py::test_an_event_is_in_the_log_before_it_is_recorded_and_acknowledged",
        "drivers/live/logs/test_peer_logs.py::test_a_peer_that_is_killed_has_what_it_acknowledged_once",
        "drivers/live/logs/test_reading.py::test_a_reader_goes_on_after_its_peer_was_killed",
    ),
    "A log cannot be written": (
        "drivers/live/logs/test_peer_logs.py::test_nothing_is_promised_or_acknowledged_while_a_log_cannot_be_written",
        "drivers/live/logs/test_log_damage.py::test_a_disk_without_space",
    ),
    "A log is damaged": (
        "drivers/live/logs/test_log_damage.py::test_flipped_bytes_cost_the_records_that_they_hit",
        "drivers/live/logs/test_log_damage.py::test_truncated_at_any_byte",
        "drivers/live/logs/test_reading.py::test_damaged_records_are_counted",
        "drivers/live/logs/test_reading.py::test_a_position_of_another_log_is_refused",
    ),
    "Retention overtakes a reader": (
        "drivers/live/logs/test_reading.py::test_retention_that_overtakes_a_reader_is_said_and_counted",
    ),
    "A reader begins while events come": (
        "drivers/live/logs/test_seams.py::test_random_seams_under_load_while_links_fail",
    ),
    "A link corrupts packets": (
        "studies/test_fault_matrix.py::test_no_strategy_breaks_what_it_promises",
        "drivers/live/transport/test_shaper.py::test_a_corrupted_datagram_differs_in_one_bit_and_fails_its_checksum",
    ),
    "Packets overtake each other": ("studies/test_fault_matrix.py::test_no_strategy_breaks_what_it_promises",),
    "A link or a peer is overloaded": (
        "drivers/sim/test_capacity.py::test_promises_hold_on_links_that_drop",
        "drivers/sim/test_promises.py::test_a_small_retry_queue_drops_aloud_and_breaks_no_promise",
        "drivers/sim/test_overloaded_worlds.py::test_overload_breaks_no_promise",
        "drivers/sim/test_overloaded_worlds.py::test_a_full_link_without_another_route_stays_on_time",
    ),
    "An event expires": (
        "drivers/live/test_order_and_expiry.py::test_an_event_past_its_ttl_is_never_delivered",
        "drivers/live/test_order_and_expiry.py::test_an_event_past_the_deadline_is_dropped_where_that_is_asked_for",
        "protocol/delivery/test_expiry.py::test_a_durable_subscription_may_let_events_expire_while_its_client_is_away",
    ),
    "Events overtake each other": (
        "drivers/live/test_order_and_expiry.py::test_a_burst_comes_in_the_order_of_publication",
        "drivers/live/test_order_and_expiry.py::test_what_a_cut_link_held_up_comes_in_order",
        "protocol/delivery/test_order.py::test_when_the_missing_event_does_not_come_it_is_skipped_and_reported",
        "protocol/delivery/test_order.py::test_after_a_restart_a_skip_in_a_full_backlog_is_reported",
    ),
}
"""Test files are below `tests/`."""

NOT_TESTED = {
    "The subscriber's peer crashes": "the gap of a plain subscription",
    "A peer with a log crashes or stops": "a loss of power",
    "A client is gone": "the loss of plain subscriptions",
    "A client fails over to another peer": "the loss",
    "A queue group loses its last member at a peer": "the loss",
    "The peer of a queue group's member crashes": "the loss",
    "A link or a peer is overloaded": "live peers; `wend lab bottleneck` measures them",
}
"""The part of a guarantee that no test shows."""

PAGE = """\
# Proofs of the guarantees

<!-- Written by scripts/reference.py. -->

The tests that show what [guarantees](../guarantees.md) says, by fault. Paths are below `tests/`.
"""


def page() -> str:
    return PAGE + "".join(_section(fault, tests) for fault, tests in PROOFS.items())


def _section(fault: str, tests: tuple[str, ...]) -> str:
    lines = [f"- `{test}`" for test in tests]
    if fault in NOT_TESTED:
        lines.append(f"- Not tested: {NOT_TESTED[fault]}.")
    return f"\n## {fault}\n\n" + "\n".join(lines) + "\n"
