"""The reward for other trainers: TRL, verl, verifiers. One file per trainer, imported from there."""
