"""The mistakes of an earlier PPO trainer for this paper, and the tests that show that ours does not make them.

The list is a review of that trainer's source: where each stood and what it did was measured there. A test that is
renamed or removed has to be replaced here.
"""

from __future__ import annotations

import re

import pytest
from places import TESTS

MISTAKES = {
    "the KL penalty is a loss whose gradient does not depend on the reference": [
        "test_the_policy_gradient_depends_on_the_reference",
        "test_the_kl_penalty_pulls_a_drifted_token_back_to_the_reference",
        "test_the_kl_penalty_changes_the_result",
    ],
    "the reference is the raw base model, not the supervised policy": [
        "test_the_kl_starts_at_zero_because_the_reference_is_the_supervised_policy",
        "test_a_run_starts_from_a_phase_of_another_and_measures_the_kl_from_its_supervised_policy",
    ],
    "advantages are whitened over a batch of two, which erases partial credit": [
        "test_a_batch_of_two_keeps_the_size_of_its_rewards",
    ],
    "no value function, though its settings are there": [
        "test_gae_equals_a_slow_loop",
        "test_gae_trains_with_a_ratio_of_one_and_a_value_head_that_learns",
    ],
    "one ratio for a whole sequence, the mean over its tokens": [
        "test_the_clipped_loss_equals_a_slow_loop_over_tokens",
    ],
    "old log-probabilities of a filtered distribution, new ones of the plain one": [
        "test_the_ratio_is_exactly_one_in_the_first_epoch_of_every_update",
        "test_tokens_are_drawn_as_often_as_their_probability_says",
    ],
    "dropout in the new log-probabilities": ["test_the_same_forward_pass_twice_gives_a_ratio_of_exactly_one"],
    "text is tokenized again, so the end of sequence is lost": [
        "test_the_mask_covers_completions_with_their_end_token_and_nothing_else",
    ],
    "early stopping compares the wrong KL and leaves the wrong loop": [
        "test_passes_over_a_batch_stop_once_the_policy_has_moved_too_far",
        "test_a_target_kl_stops_before_the_step_that_would_exceed_it",
    ],
    "the best policy is that of the luckiest training batch": [
        "test_an_earlier_step_is_kept_only_if_it_did_better_by_more_than_chance",
        "test_held_out_problems_are_never_trained_on",
    ],
    "resuming loses the optimizer, the random numbers and the place in the data": [
        "test_a_run_killed_at_twenty_random_moments_equals_an_uninterrupted_one_bit_for_bit",
    ],
    "completions are generated one at a time": ["test_greedy_sampling_of_ragged_prompts_equals_hf_generate"],
    "the whole vocabulary's log-probabilities of whole sequences are held": [
        "test_chunked_log_probs_equal_naive_ones_in_value_and_gradient",
        "test_micro_batches_hold_every_row_once_within_the_bound",
    ],
    "faults are clamped, replaced and trained on": [
        "test_an_update_that_is_not_finite_stops_with_its_batch_saved_and_the_checkpoint_intact",
        "test_a_reward_that_is_not_finite_is_named",
    ],
    "float16 without a gradient scaler": [
        "test_float16_skips_a_step_whose_gradients_overflow_and_lowers_the_scale",
    ],
    "unparsable output is rewarded, and problems without tests count as solved": [
        "test_text_that_does_not_parse_is_stage_zero_and_read_in_two_ways",
        "test_a_record_that_breaks_the_format_is_refused_with_the_rule",
    ],
    "supervised labels on padding, and no end of sequence": [
        "test_solutions_end_with_the_end_token_and_padding_is_masked",
        "test_the_loss_is_the_mean_over_solution_tokens_alone",
    ],
    "another prompt in supervised training than in reinforcement learning": [
        "test_supervised_training_reinforcement_learning_and_bench_use_one_prompt",
    ],
    "no seeds": ["test_equal_seeds_give_equal_samples_and_other_seeds_others"],
    "generated programs run without a sandbox": ["test_each_program_gets_its_verdict"],
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_test_guards_against_each_known_mistake(mistake: str) -> None:
    files = TESTS.rglob("test_*.py")
    there = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)}
    assert set(MISTAKES[mistake]) <= there
