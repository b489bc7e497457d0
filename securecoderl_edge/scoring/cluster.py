"""The scorer on a Ray cluster: each worker has a sandbox and a scanner of its own, and scores what `Scorer` would."""

from __future__ import annotations

import dataclasses
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.analyzers import AnalyzerChoice
from securecoderl_edge.languages.language import C
from securecoderl_edge.problems.records import problem_digest, problem_from_record, problem_to_record
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.sandbox.levels import named_choice
from securecoderl_edge.sandbox.pool import default_workers
from securecoderl_edge.scoring.score import Score, score_from_record
from securecoderl_edge.scoring.scorer import Scored, Scorer, Submission, analyzers_of
from securecoderl_edge.system.cluster import Work, is_ray, run_jobs

# About a second of a core: long against the time of a message, short against that of a lost worker.
_CHUNK = 64
_OTHERS = "a worker scored other programs than it was asked to. Is the same sce installed on all nodes?"


def open_scorer(engine: str, *arguments: Any, **options: Any) -> ClusterScorer | Scorer:
    """A scorer on an engine, see `is_ray`; other arguments and errors as those of `Scorer`.

    Raises:
        UsageError: an unknown engine.
    """
    return ClusterScorer(engine, *arguments, **options) if is_ray(engine) else Scorer(*arguments, **options)


class ClusterScorer:
    """Scores programs on all nodes of a Ray cluster, with the isolation level that this machine would use.

    Args:
        engine: see `is_ray`. workers: programs at the same time on each node.
        The others are those of `Scorer`.

    Raises:
        SceError: this system does not offer the sandbox level.
    """

    def __init__(
        self,
        engine: str,
        workers: int | None = None,
        limits: Limits | None = None,
        credit_rule: str = "any",
        severity_scale: str = "bandit",
        sandbox: str = "auto",
        security: str = "both",
        analyzers: str = "auto",
    ) -> None:
        self.limits = limits or Limits()
        self._engine = engine
        self._settings: dict[str, Any] = {
            "workers": workers,
            "limits": dataclasses.asdict(self.limits),
            "credit_rule": credit_rule,
            "severity_scale": severity_scale,
            "sandbox": named_choice(sandbox),
            "security": security,
        }
        self._analyzers = cast(AnalyzerChoice, analyzers)

    def switches(self, extract: str) -> dict[str, Any]:
        """As `Scorer.switches`."""
        return {"extract": extract} | {name: each for name, each in self._settings.items() if name != "workers"}

    def worker_settings(self) -> dict[str, Any]:
        """The settings of a `ScoringWorker`."""
        return self._settings | {"analyzers": self._analyzers, "versions": self.analyzers_of(C.name)}

    def analyzers_of(self, language: str) -> dict[str, str]:
        """As `Scorer.analyzers_of`; a node that has others ends with an error."""
        return analyzers_of(language, self._analyzers)

    def in_batches(self, items: Iterable[Submission]) -> Iterator[list[Scored]]:
        """As `Scorer.in_batches`.

        Raises:
            UsageError, SceError: see `run_jobs`; or a worker's system does not offer the sandbox level, or has other
                analyzers.
        """
        work = Work("securecoderl_edge.scoring.cluster:ScoringWorker", self.worker_settings(), _CHUNK, ahead=2)
        asked: deque[Submission] = deque()

        def jobs() -> Iterator[dict[str, Any]]:
            for item in items:
                asked.append(item)
                yield _job(item)

        for results in run_jobs(self._engine, work, jobs()):
            scored = [_scored(result) for result in results]
            for score, _ in scored:
                if not asked or not _is_of(score, asked.popleft()):
                    raise SceError(_OTHERS)
            yield scored
        if asked:
            raise SceError(_OTHERS)

    def __enter__(self) -> ClusterScorer:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class ScoringWorker:
    """The scorer of one node."""

    def __init__(self, settings: Mapping[str, Any], cores: int) -> None:
        limits = Limits(**settings["limits"])
        self._versions = settings["versions"]
        names = ("credit_rule", "severity_scale", "sandbox", "security", "analyzers")
        given = {name: settings[name] for name in names}
        workers = settings["workers"] or min(cores, default_workers(limits))
        self._scorer = Scorer(workers, limits, **given)

    def run(self, jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A score for each job.

        Raises:
            SceError: a program is in C, and the analyzers here are not those of the machine that asks.
        """
        items = [Submission(**{**job, "problem": problem_from_record(job["problem"], sys.maxsize)}) for job in jobs]
        if (
            any(item.problem.language == C.name for item in items)
            and self._scorer.analyzers_of(C.name) != self._versions
        ):
            raise SceError("the static analyzers for C differ between nodes. Install the same, or use --analyzers off.")
        return [
            {"score": score.to_record(), "slowest": slowest}
            for batch in self._scorer.in_batches(items)
            for score, slowest in batch
        ]

    def close(self) -> None:
        """End the sandbox."""
        self._scorer.close()


def _job(item: Submission) -> dict[str, Any]:
    # A program never sees reference solutions, but the hash of its problem covers them.
    return vars(item) | {"problem": problem_to_record(item.problem)}


def _is_of(score: Score, item: Submission) -> bool:
    found = (score.id, score.sample, score.problem_hash)
    return found == (item.problem.id, item.sample, problem_digest(item.problem))


def _scored(result: Any) -> Scored:
    try:
        return score_from_record(result["score"]), float(result["slowest"])
    except (ValueError, TypeError, KeyError) as error:
        raise SceError(f"a worker's answer is not a score ({error}). Is the same sce installed on all nodes?") from None
