"""Scoring of a program on a problem: the sandbox, the scan and the reward."""
