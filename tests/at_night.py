"""Tests that ``make test`` leaves to ``make test-nightly``.

Of tests with many cases, some run by day. Some long tests run at night as a whole, each listed beside what is tested by day.
A test or a file that is named to pytest runs in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

#: Tests with many cases: by day, the first case runs and then every n-th.
ONE_IN: Final = {
    "cli/test_why.py::test_the_examples": 3,
    "epoch/test_addresses.py::test_a_warehouse_in_an_odd_folder": 3,
    "epoch/test_addresses.py::test_keys_with_ends_of_lines": 5,
    "epoch/test_catalog.py::test_two_writers_in_turn_are_read_as_one_state": 2,
    "epoch/test_changelogs.py::test_envelopes_of_debezium": 4,
    "epoch/test_changelogs.py::test_histories": 2,
    "epoch/test_char_columns.py::test_texts_shorter_than_their_column_are_read_as_spark_reads_them": 3,
    "epoch/test_cluster_settings.py::test_views_are_right_whatever_the_cluster_sets": 2,
    "epoch/test_compaction.py::test_rows_retracted_that_are_not_there_end_a_rewrite": 2,
    "epoch/test_connect.py::test_views_are_built_and_kept_through_a_server": 5,
    "epoch/test_damage.py::test_a_file_of_state_that_is_damaged_is_one_line_and_says_what_to_do": 2,
    "epoch/test_damage.py::test_a_folder_that_is_gone": 2,
    "epoch/test_damage.py::test_a_table_without_its_last_epoch_is_not_built_upon": 3,
    "epoch/test_dates.py::test_a_view_may_take_the_start_of_the_day_for_the_time": 2,
    "epoch/test_dates.py::test_views_equal_their_queries_on_every_day": 3,
    "epoch/test_epoch_plan.py::test_what_has_sparks_own_settings_keeps_them_when_more_is_met": 2,
    "epoch/test_epoch_plan.py::test_what_ran_is_what_was_printed": 2,
    "epoch/test_file_folders.py::test_a_run_that_was_killed_loses_and_doubles_nothing": 3,
    "epoch/test_file_folders.py::test_csv_says_what_is_wrong_with_a_record": 2,
    "epoch/test_file_folders.py::test_malformed_records_are_kept_apart": 2,
    "epoch/test_file_layout.py::test_files_hold_what_delta_reads": 2,
    "epoch/test_file_layout.py::test_other_layouts_are_left_to_delta": 3,
    "epoch/test_file_layout.py::test_vectors_that_delta_rs_refuses_to_read_are_left_to_delta": 2,
    "epoch/test_flows.py::test_flows_are_what_spark_counts": 3,
    "epoch/test_histories.py::test_random_histories": 3,
    "epoch/test_histories.py::test_rows_that_differ_little_are_not_taken_for_one": 5,
    "epoch/test_iceberg_stores.py::test_views_follow_a_table_in_a_store": 2,
    "epoch/test_large_backfill.py::test_few_rows_are_committed_by_the_driver_and_others_by_spark": 2,
    "epoch/test_late_run.py::test_of_two_runs_without_a_lock_one_completes_and_the_other_says_so": 4,
    "epoch/test_map_columns.py::test_views_with_maps_equal_their_queries": 2,
    "epoch/test_net_changes.py::test_every_way_gives_what_changed": 5,
    "epoch/test_net_changes.py::test_views_over_tables_without_a_feed": 5,
    "epoch/test_object_store.py::test_epochs_of_all_kinds_of_state": 2,
    "epoch/test_preview.py::test_the_run_does_what_was_said": 4,
    "epoch/test_publish_ways.py::test_new_rows_touch_no_file_that_is_there": 3,
    "epoch/test_publish_ways.py::test_rows_that_all_change_are_replaced_together": 3,
    "epoch/test_published_keys.py::test_keys_that_occur_twice": 2,
    "epoch/test_published_names.py::test_a_name_that_cannot_be_had_is_refused_before_anything_is_written": 4,
    "epoch/test_query_settings.py::test_settings_are_those_of_the_declaration": 5,
    "epoch/test_recompute.py::test_a_killed_epoch_without_state_is_repaired": 4,
    "epoch/test_replaced_tables.py::test_made_again_by_others": 2,
    "epoch/test_run_without_work.py::test_whatever_may_be_to_do_is_noticed": 4,
    "epoch/test_side_by_side_runs.py::test_a_run_over_the_same_view_waits_for_the_first": 3,
    "epoch/test_side_by_side_runs.py::test_a_view_over_one_that_is_at_work_keeps_to_the_epoch_before": 3,
    "epoch/test_side_by_side_runs.py::test_runs_over_other_views_do_not_meet": 3,
    "epoch/test_side_by_side_runs.py::test_what_is_at_work_is_neither_edited_nor_dropped": 3,
    "epoch/test_slices.py::test_a_run_that_was_killed_loses_one_slice": 3,
    "epoch/test_slices.py::test_what_is_lost_is_built_anew": 3,
    "epoch/test_spark_ends.py::test_a_jvm_that_is_killed_ends_the_run_with_its_reason_and_the_next_one_repairs_it": 2,
    "epoch/test_spark_ends.py::test_a_view_for_which_there_is_no_memory_ends_the_run_and_others_go_on_by_name": 2,
    "epoch/test_strict_policy.py::test_no_cause_computes_it_in_full": 3,
    "epoch/test_strict_policy.py::test_no_door_is_open": 2,
    "epoch/test_verify.py::test_a_query_is_run_in_full_over_much_and_over_few": 2,
    "epoch/test_verify.py::test_many_rows_that_differ_in_their_last_digits_are_equal": 2,
    "epoch/test_verify.py::test_rows_that_a_limit_may_pick": 4,
    "epoch/test_why.py::test_the_query_over_the_rows_found_gives_the_row": 14,
    "found/test_changes_that_cannot_be_taken.py::test_a_null_key_is_deleted": 2,
    "found/test_changes_that_cannot_be_taken.py::test_a_tie_is_replaced_by_a_newer_row": 2,
    "found/test_dropped_folders.py::test_a_view_whose_table_is_a_source_is_not_dropped": 4,
    "found/test_long_texts.py::test_a_full_refresh_replaces_a_table_that_cannot_be_opened": 3,
    "found/test_long_texts.py::test_bounds_are_cut_and_still_bound": 3,
    "found/test_own_files.py::test_it_is_refused": 4,
    "found/test_repair.py::test_views_go_on_after_a_repair": 8,
    "found/test_rows_deleted_from_a_changelog.py::test_where_others_of_its_file_are_left_the_order_is_not_known": 2,
    "found/test_scripts.py::test_script": 2,
    "operators/test_aggregate_rows.py::test_epochs_equal_the_query": 14,
    "operators/test_arrange.py::test_rows_that_are_kept": 4,
    "operators/test_arrange.py::test_sides_that_are_not_arranged": 3,
    "operators/test_backfill.py::test_one_side_comes_later": 3,
    "operators/test_backfill.py::test_what_is_counted_at_once_is_counted_on": 5,
    "operators/test_bits.py::test_deletions_are_taken_back": 5,
    "operators/test_bits.py::test_rows_that_are_only_added": 4,
    "operators/test_closed_groups.py::test_drawn_histories_over_groups_that_are_closed": 6,
    "operators/test_constructs.py::test_every_epoch_equals_the_query_run_in_full": 4,
    "operators/test_damaged_state.py::test_a_record_that_was_retracted_without_being_there": 3,
    "operators/test_decomposed_calls.py::test_no_call_needs_the_rows_of_its_group": 4,
    "operators/test_differential.py::test_a_batch_equals_its_changes_one_by_one": 5,
    "operators/test_expiry.py::test_histories_over_state_that_may_expire_and_does": 4,
    "operators/test_expiry.py::test_values_live_as_long_as_their_group": 3,
    "operators/test_extremes.py::test_every_epoch_equals_the_query_run_in_full": 4,
    "operators/test_extremes.py::test_the_number_of_kept_values_may_change_at_any_time": 5,
    "operators/test_filling.py::test_a_part_is_filled_whatever_has_changed": 3,
    "operators/test_filling.py::test_a_part_is_filled_while_the_rest_goes_on": 10,
    "operators/test_first_row.py::test_a_view_equals_its_query_after_every_epoch": 2,
    "operators/test_full_joins_of_groups.py::test_every_epoch_equals_the_query": 5,
    "operators/test_latest_windows.py::test_changes_at_the_end_read_kept_rows_alone": 3,
    "operators/test_latest_windows.py::test_drawn_windows_equal_the_query": 4,
    "operators/test_negated_subqueries.py::test_conditions_on_subqueries_with_nulls": 2,
    "operators/test_negated_subqueries.py::test_values_of_subqueries_with_nulls": 2,
    "operators/test_new_keys.py::test_new_and_old_keys": 2,
    "operators/test_one_pass.py::test_filters_and_computed_columns_over_groups_that_come_and_go": 4,
    "operators/test_outer_keys_and_laterals.py::test_every_epoch_equals_the_query": 3,
    "operators/test_recompute_queries.py::test_all_rows_of_any_plan": 6,
    "operators/test_semi_join_reduction.py::test_aggregates_of_all_groups": 4,
    "operators/test_semi_join_reduction.py::test_reduced_aggregates": 5,
    "operators/test_temporal_filter.py::test_every_epoch_equals_the_query_at_its_instant": 4,
    "operators/test_temporal_filter.py::test_what_comparisons_with_the_time_come_to": 6,
    "operators/test_time_windows.py::test_every_epoch_equals_the_query": 3,
    "operators/test_top_n.py::test_a_limit_without_an_order_has_rows_of_the_input_as_many_as_there_are": 2,
    "operators/test_top_n.py::test_a_refill_reads_the_input_up_to_a_fence": 4,
    "operators/test_vnode_lookups.py::test_every_epoch_equals_the_query": 3,
    "operators/test_window_reach.py::test_drawn_windows_equal_the_query": 10,
    "planner/test_plain_views.py::test_every_epoch_equals_the_query": 3,
    "planner/test_round_trip.py::test_an_expression_is_its_text": 2,
    "planner/test_round_trip.py::test_views_with_flags_equal_their_queries": 3,
    "planner/test_stored_plans.py::test_a_stored_plan_runs": 3,
    "random_ddl/test_random_ddl.py::test_never_wrong_and_never_stuck": 2,
    "server/test_server.py::test_what_is_asked_of_rows_is_answered_as_this_process_would": 2,
    "test_generated_code.py::test_a_damaged_file_of_classes_is_not_used": 5,
}

#: Long tests that run at night only, by what is tested by day.
WHOLE: Final = {
    "the verbs are tested on a local warehouse": (
        "epoch/test_object_store.py::test_a_folder_of_files",
        "epoch/test_object_store.py::test_the_verbs",
    ),
    "tests/epoch/test_until_version.py": (
        "cli/test_run.py::test_a_source_is_read_up_to_a_version",
        "epoch/test_until_version.py::test_strict_mode_leaves_a_view_behind_whose_operators_break_their_promise",
    ),
    "tests/edge/test_definitions.py": ("cli/test_run.py::test_the_demo_is_kept_out_of_a_warehouse_that_has_other_views",),
    "tests/cli/test_check.py and tests/epoch/test_checks.py": (
        "edge/test_checks_docs.py::test_the_page_is_true",
        "epoch/test_checks.py::test_of_what_a_changelog_comes_to",
    ),
    "tests/epoch/test_verify.py": ("epoch/test_checks.py::test_a_view_that_is_not_its_query_shows_rows_of_both",),
    "tests/cli/test_diff.py, of rows of all types": ("cli/test_diff.py::test_over_a_rebuild_with_another_query",),
    "the other tests of workers, in tests/edge/test_run_worker.py": (
        "edge/test_run_worker.py::test_runs_begin_in_a_process_that_is_ready",
    ),
    "tests/epoch/test_many_views.py, of the same sessions": (
        "epoch/test_many_views.py::test_the_heap_does_not_grow_with_the_views",
    ),
    "the other tests of compaction and VACUUM": (
        "epoch/test_compaction.py::test_many_epochs_over_compacted_state",
        "epoch/test_vacuum.py::test_a_view_that_lags_behind_finds_what_it_goes_on_from",
        "epoch/test_vacuum.py::test_where_the_log_of_the_oldest_epoch_is_cleaned_up",
        "epoch/test_compaction.py::test_a_view_that_lags_behind_still_finds_the_change_log",
    ),
    "tests of plans without Spark": (
        "epoch/test_epoch_plan.py::test_views_that_are_read_have_a_size",
        "operators/test_full_joins_of_groups.py::test_views_over_a_full_join_of_groups",
    ),
    "another cause of a rebuild": (
        "epoch/test_earlier_plans.py::test_a_source_that_is_away_meanwhile_costs_no_rebuild",
        "epoch/test_earlier_plans.py::test_one_that_cannot_be_planned_any_more_is_left_behind",
        "epoch/test_failed_views.py::test_an_edited_plain_view_rebuilds_what_inlines_it",
        "epoch/test_failed_views.py::test_another_key_of_a_source_rebuilds_what_reads_it",
        "epoch/test_schema_changes.py::test_columns_come_and_go",
        "epoch/test_slices.py::test_a_version_before_that_of_the_slices_is_read_from_the_beginning",
        "epoch/test_strict_policy.py::test_a_function_is_refused_if_its_plan_is_another_one",
        "epoch/test_strict_policy.py::test_a_rebuild_that_was_asked_for_is_gone_on_with",
        "epoch/test_strict_policy.py::test_a_source_whose_files_are_gone_is_no_reason",
        "epoch/test_file_folders.py::test_another_declaration_reads_the_folder_from_its_first_file_on",
        "epoch/test_earlier_plans.py::test_a_view_planned_on_another_spark_is_planned_again",
    ),
    "kills at other places": (
        "epoch/test_refresh_choice.py::test_a_killed_epoch_that_recomputes_a_view_is_repaired",
        "epoch/test_state_ttl.py::test_a_run_that_dies_after_it_has_expired_state",
        "epoch/test_watermarks.py::test_a_run_that_dies_after_closed_groups_have_left_the_state",
        "epoch/test_object_store.py::test_the_next_run_repairs_a_killed_one",
    ),
    "tests/operators, over the same operators": ("epoch/test_watermarks.py::test_large_changes_with_late_rows",),
    "tests/epoch/test_cancellation.py": (
        "edge/test_browser.py::test_a_run_that_is_terminated_ends_within_seconds_and_the_next_one_repairs_it",
    ),
    "tests/epoch/test_side_by_side_runs.py": ("epoch/test_object_store.py::test_of_two_runs_at_once_both_end_well",),
    "tests/benchmarks/test_pipeline.py": (
        "benchmarks/test_measured.py::test_a_query_is_measured_verified_and_not_measured_again",
    ),
    "tests/epoch/test_publish_ways.py, of other ways": (
        "benchmarks/test_streams.py::test_marked_rows_are_updated_as_scattered_ones",
        "epoch/test_publish_ways.py::test_small_files_are_put_together",
        "epoch/test_file_layout.py::test_their_keys_are_checked_by_the_driver",
        "epoch/test_publish_ways.py::test_deletion_vectors_spare_the_files_of_the_rest",
    ),
    "the same in SQL, or in one process": (
        "epoch/test_script.py::test_a_full_refresh_is_left_out_where_the_views_it_reads_have_not_changed",
        "epoch/test_side_by_side_runs.py::test_a_full_refresh_of_a_view_that_is_not_selected_is_made_by_the_next_run_that_has_it",
        "found/test_in_dagster.py::test_names_are_found_in_any_case_and_shown_as_declared",
        "found/test_in_dagster.py::test_a_view_that_cannot_be_planned_after_an_edit_fails_alone",
        "found/test_rows_deleted_from_a_changelog.py::test_what_optimize_put_together_is_not_deleted_from_unseen",
    ),
    "other damage, in tests/epoch/test_damage.py": (
        "epoch/test_damage.py::test_join_state_without_rows_that_it_had_is_not_built_upon",
    ),
    "the other tests of their files": (
        "cli/test_view_tests.py::test_steps_in_full_and_one_by_one",
        "epoch/test_in_place.py::test_rows_without_a_key_are_looked_up_in_a_view_that_stores_their_ids",
        "epoch/test_catalog_tables.py::test_a_table_that_is_made_again_in_another_place_is_read_from_there",
        "cli/test_prepare.py::test_the_next_spark_maps_it_and_others_go_on_without",
        "cli/test_prepare.py::test_a_cache_that_is_half_written_is_not_kept",
        "epoch/test_file_folders.py::test_a_key_of_files_can_be_put_right",
        "epoch/test_file_folders.py::test_the_key_of_inferred_columns_is_required_as_well",
        "epoch/test_indexes.py::test_an_index_that_does_not_serve_is_built_again_and_one_that_is_not_declared_is_deleted",
        "epoch/test_histories.py::test_two_rows_of_a_key_with_one_order",
        "epoch/test_recompute.py::test_a_recomputed_view_has_no_state_until_changes_are_small",
        "epoch/test_recompute.py::test_a_view_without_state_that_stays_the_same_is_not_committed",
        "epoch/test_in_place.py::test_a_change_that_meets_more_rows_than_the_driver_may_hold",
        "epoch/test_slices.py::test_the_rows_of_all_slices_are_counted_together",
        "epoch/test_large_backfill.py::test_rows_that_are_too_many_for_the_driver_are_held_by_spark",
        "epoch/test_state_rows.py::test_a_row_of_64_vnodes_is_looked_up_in_one",
    ),
}


def left_out() -> frozenset[str]:
    """All tests in the tables, as ``folder/file.py::test``."""
    return frozenset(_whole() | ONE_IN.keys())


def mark(items: Iterable[pytest.Item], named: Iterable[str]) -> None:
    """Mark the tests that only ``make test-nightly`` runs.

    Parameters
    ----------
    named
        What the command line asks for. Of a file that it names, or whose tests it names, nothing is marked.
    """
    in_full = {Path(argument.split("::")[0]).resolve() for argument in named}
    whole = _whole()
    seen: Counter[str] = Counter()
    for item in items:
        test = item.nodeid.split("[")[0].removeprefix("tests/")
        number, seen[test] = seen[test], seen[test] + 1
        if item.path not in in_full and (test in whole or number % ONE_IN.get(test, 1)):
            item.add_marker(pytest.mark.nightly)


def _whole() -> set[str]:
    return {test for tests in WHOLE.values() for test in tests}
