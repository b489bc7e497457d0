"""What runs in the processes of untrusted programs, and all that guards them: the standard library, loaded by path."""
