"""Families whose short, obvious solution draws a Bandit finding of medium or high severity.

The first solution of each problem has such a finding, the second has none, and both print the same.
None needs the network, another process or a file, so both also run in the sandbox.
"""

from __future__ import annotations

from family import Family

from families import (
    security_calls,
    security_commands,
    security_eval,
    security_exec,
    security_hashes,
    security_literals,
    security_places,
    security_stored,
    security_xml,
)

FAMILIES: tuple[Family, ...] = (
    *security_literals.FAMILIES,
    *security_eval.FAMILIES,
    *security_calls.FAMILIES,
    *security_exec.FAMILIES,
    *security_xml.FAMILIES,
    *security_stored.FAMILIES,
    *security_hashes.FAMILIES,
    *security_places.FAMILIES,
    *security_commands.FAMILIES,
)
