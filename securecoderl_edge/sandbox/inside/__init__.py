"""Code in the processes of untrusted programs, and the code that guards them; standard library only, loaded by path."""
