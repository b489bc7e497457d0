"""Generation of programs for a user: sampling, checks, ranking, repair."""
