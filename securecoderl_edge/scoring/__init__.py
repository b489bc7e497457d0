"""From a program and a problem to a score: the sandbox, the scan and the reward put together."""
