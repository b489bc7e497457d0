"""``/v1/score``: batches of programs through the reward, for trainers; a bounded number of them at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.language import LANGUAGES, PYTHON
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import MAX_TESTS as USUAL_TESTS
from securecoderl_edge.problems.problem_file import ProblemError, problem_from_record
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.scoring.scorer import Scorer, Submission
from securecoderl_edge.serving.faults import Fault, invalid, too_many, unknown_field
from securecoderl_edge.serving.fields import integer
from securecoderl_edge.serving.serve_settings import LONGEST_ASSERTION, MAX_PROGRAMS, MAX_SECONDS, MAX_TESTS

# Programs of a batch that wait or run, per worker: enough to keep all busy.
_AHEAD = 2
_FIELDS = ("items", "max_tests")
_KEYS = {"problem", "problem_id", "completion", "program"}


def parse_batch(body: Mapping[str, Any], problems: Mapping[str, Problem]) -> list[Submission]:
    """The programs of a body of ``/v1/score``; takes time, as programs are extracted from long texts.

    Args:
        problems: those that items may name, by id.

    Raises:
        Fault: a field is unknown, missing, of the wrong type or out of bounds, or a problem is unknown.
    """
    body = _given(body)
    if others := sorted(set(body) - set(_FIELDS)):
        raise unknown_field(others[0], _FIELDS)
    most = integer(body, "max_tests", USUAL_TESTS, 1, MAX_TESTS)
    items = body.get("items")
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_PROGRAMS:
        raise invalid("items", f"must be a list of 1 to {MAX_PROGRAMS} objects")
    return [_item(item, f"items[{index}]", problems, most) for index, item in enumerate(items)]


def _given(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object without those that are null: libraries write so what is left out."""
    return {name: value for name, value in record.items() if value is not None}


def _item(item: Any, where: str, problems: Mapping[str, Problem], most: int) -> Submission:
    item = _given(item) if isinstance(item, dict) else item
    if (
        not isinstance(item, dict)
        or set(item) - _KEYS
        or ("problem" in item) == ("problem_id" in item)
        or ("completion" in item) == ("program" in item)
    ):
        raise invalid(where, 'must have "problem" or "problem_id", "completion" or "program", and nothing else')
    problem = _problem(item, where, problems, most)
    name = "completion" if "completion" in item else "program"
    if not isinstance(item[name], str):
        raise invalid(f"{where}.{name}", "must be text")
    if name == "program":
        return Submission(problem, item[name], extract="raw")
    return Submission(problem, extract_program(item[name], PromptFacts.of(problem)), extract="auto")


def _problem(item: Mapping[str, Any], where: str, problems: Mapping[str, Problem], most: int) -> Problem:
    if "problem_id" in item:
        name = item["problem_id"]
        if not isinstance(name, str) or name not in problems:
            raise invalid(f"{where}.problem_id", "is not one of --problems", code="unknown_problem")
        return problems[name]
    if any(isinstance(text, str) and len(text) > LONGEST_ASSERTION for text in _assertions(item["problem"])):
        raise invalid(f"{where}.problem", f"must have assertions of at most {LONGEST_ASSERTION} characters each")
    try:
        problem = problem_from_record(item["problem"], most)
    except ProblemError as error:
        raise invalid(f"{where}.problem", f"is malformed: {error}") from None
    if len(problem.security_tests) > MAX_TESTS:
        raise invalid(f"{where}.problem", f"must have at most {MAX_TESTS} security tests")
    if (problem.time_limit_s or 0) > MAX_SECONDS:
        raise invalid(f"{where}.problem", f"must have a time_limit_s of at most {MAX_SECONDS:g}")
    return problem


def _assertions(problem: Any) -> list[Any]:
    """The assertions of a record that nobody has checked: checks already evaluate literals, in this process."""
    if not isinstance(problem, dict):
        return []
    lists = [problem.get("assertions"), problem.get("security_tests")]
    entries = [entry for each in lists if isinstance(each, list) for entry in each]
    return [entry.get("assertion") if isinstance(entry, dict) else entry for entry in entries]


def demand(scorer: Scorer, language: str, known: set[str]) -> None:
    """Find out whether programs in a language, or for a target, can be run, unless that is ``known``.

    Raises:
        Fault: they cannot.
    """
    if language in known:
        return
    try:
        scorer.prepare(language)
    except SceError:  # the reason may have paths of this machine
        where = f"in {LANGUAGES[language].noun}" if language in LANGUAGES else f"for {language}"
        raise Fault(
            400,
            f"this server cannot run programs {where}; sce doctor on its machine shows why",
            param="language",
            code="unsupported_language",
        ) from None
    known.add(language)


class ScoreService:
    """Scores batches, in the event loop that calls it.

    Args:
        problems: those that requests may name, by id.
        max_requests: batches in progress at the same time.
    """

    def __init__(self, scorer: Scorer, problems: Mapping[str, Problem], max_requests: int) -> None:
        self.problems = problems
        self._scorer, self._max_requests = scorer, max_requests
        self._batches: set[asyncio.Task[list[Score]]] = set()
        self._languages = {PYTHON.name}  # and targets, of programs that can be run
        # Its own: it waits for a free sandbox, and the threads of the event loop read and write for all clients.
        self._preparing = ThreadPoolExecutor(1, thread_name_prefix="prepare")

    @property
    def running(self) -> int:
        """Batches in progress."""
        return len(self._batches)

    def start(self, submissions: Sequence[Submission]) -> asyncio.Task[list[Score]]:
        """Start a batch; its scores are in their order. Cancel the task to end what runs and begin no more.

        The task raises SceError if the sandbox fails: no program then gets a score.

        Raises:
            Fault: as many batches as are allowed are in progress.
        """
        if self.running >= self._max_requests:
            raise too_many(self.running)
        batch = asyncio.create_task(self._score(submissions))
        self._batches.add(batch)
        batch.add_done_callback(self._forget)
        return batch

    def stop(self) -> None:
        """Cancel all batches in progress."""
        for batch in list(self._batches):
            batch.cancel()

    def _forget(self, batch: asyncio.Task[list[Score]]) -> None:
        self._batches.discard(batch)
        _ = batch.cancelled() or batch.exception()  # nobody asks for the result of a client that has left

    async def _score(self, batch: Sequence[Submission]) -> list[Score]:
        has_ended = threading.Event()
        for language in {each.problem.target or each.problem.language for each in batch} - self._languages:
            await asyncio.get_running_loop().run_in_executor(
                self._preparing, demand, self._scorer, language, self._languages
            )
        scorer = self._scorer.until(has_ended.is_set)
        places = asyncio.Semaphore(_AHEAD * scorer.workers)

        async def score(index: int, each: Submission) -> Score:
            async with places:  # programs of other requests come between
                return await asyncio.wrap_future(scorer.score_async(each.problem, each.program, index, each.extract))

        scores = [asyncio.create_task(score(index, each)) for index, each in enumerate(batch)]
        try:
            return await asyncio.gather(*scores)
        finally:
            has_ended.set()
            for each in scores:
                each.cancel()
