"""Programs for a user: sampled, checked, ranked and repaired."""
