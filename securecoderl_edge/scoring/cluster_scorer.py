"""The scorer on a Ray cluster: each node has a sandbox and a scanner of its own, and scores what `Scorer` would."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.language import C
from securecoderl_edge.problems.problem_file import problem_digest, problem_from_record, problem_to_record
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.sandbox.levels import SANDBOX_CHOICES
from securecoderl_edge.sandbox.pool import default_workers
from securecoderl_edge.scoring.score import score_from_record
from securecoderl_edge.scoring.scorer import Scored, Scorer, Submission
from securecoderl_edge.system.cluster import Run, Work, is_ray, map_on_cluster

# About a second of a core: long against the time of a message, short against that of a lost worker.
_CHUNK = 64


def open_scorer(engine: str, *arguments: Any, **options: Any) -> Scorer:
    """A scorer on an engine, see `is_ray`; other arguments and errors as those of `Scorer`.

    Raises:
        UsageError: an unknown engine.
    """
    return ClusterScorer(engine, *arguments, **options) if is_ray(engine) else Scorer(*arguments, **options)


class ClusterScorer(Scorer):
    """Scores batches on all nodes of a Ray cluster, with the isolation level that this machine would use.

    Args:
        engine: see `is_ray`. workers: programs at the same time on each node.
        The others are those of `Scorer`.
    """

    def __init__(self, engine: str, workers: int | None = None, *arguments: Any, **options: Any) -> None:
        super().__init__(workers, *arguments, **options)
        self._engine = engine
        self._workers_of_node = workers

    def switches(self, extract: str) -> dict[str, Any]:
        """As `Scorer.switches`; a node may have another system than this machine."""
        switches = super().switches(extract)
        return switches if switches["sandbox"] in SANDBOX_CHOICES else switches | {"sandbox": "full"}

    def node_settings(self) -> dict[str, Any]:
        """The settings of `scorer_of_node`."""
        own = {"workers": self._workers_of_node, "analyzers": self._analyzers}
        return self.switches("") | own | {"versions": self.analyzers_of(C.name)}

    def in_batches(self, items: Iterable[Submission]) -> Iterator[list[Scored]]:
        """As `Scorer.in_batches`.

        Raises:
            UsageError, SceError: see `map_on_cluster`; or a node does not offer the sandbox level, or has other
                analyzers.
        """
        work = Work(scorer_of_node, self.node_settings(), _job, _scored, _CHUNK, ahead=2)
        return map_on_cluster(self._engine, work, items)


@contextmanager
def scorer_of_node(settings: dict[str, Any], cores: int) -> Iterator[Run]:
    """What a node runs, see `Work.opened`.

    Raises:
        SceError: it does not offer the sandbox level. In a run: a program is in C, and the analyzers here are not those
            of the machine that asks.
    """
    limits = Limits(**settings["limits"])
    names = ("credit_rule", "severity_scale", "sandbox", "security", "analyzers")
    workers = settings["workers"] or min(cores, default_workers(limits))
    with Scorer(workers, limits, **{name: settings[name] for name in names}) as scorer:

        def run(jobs: list[dict[str, Any]]) -> list[Any]:
            items = [Submission(**job | {"problem": problem_from_record(job["problem"], sys.maxsize)}) for job in jobs]
            has_c = any(item.problem.language == C.name for item in items)
            if has_c and scorer.analyzers_of(C.name) != settings["versions"]:
                reason = "the static analyzers for C differ between nodes"
                raise SceError(f"{reason}. Install the same, or use --analyzers off.")
            return [(score.to_record(), slowest) for batch in scorer.in_batches(items) for score, slowest in batch]

        yield run


def _job(item: Submission) -> dict[str, Any]:
    # A program never sees reference solutions, but the hash of its problem covers them.
    return vars(item) | {"problem": problem_to_record(item.problem)}


def _scored(item: Submission, answer: Any) -> Scored:
    score, slowest = score_from_record(answer[0]), float(answer[1])
    if (score.id, score.sample, score.problem_hash) != (item.problem.id, item.sample, problem_digest(item.problem)):
        raise ValueError("the score of another program")
    return score, slowest
