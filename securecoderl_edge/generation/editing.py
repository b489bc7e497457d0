"""Edits of a Python file: sampled as whole functions, put into a copy of the file, tested, scanned, ranked, repaired.

Small models cannot write diffs reliably, so they are asked for each changed function as a whole, or for the whole file
if it is short or has no functions; `splicing` finds out what an answer changes. A prompt has the file, or if that is
too long for the model its outline with those functions whole that the instruction names. Nothing here writes the file.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.generation.answering import Answerer
from securecoderl_edge.generation.answers import Answer, Candidate, check, ranked
from securecoderl_edge.generation.edit_prompt import beginning, outline, question
from securecoderl_edge.generation.edited_file import EditedFile
from securecoderl_edge.generation.instruction import is_named
from securecoderl_edge.generation.losses import NoEdit
from securecoderl_edge.generation.splicing import splice
from securecoderl_edge.generation.statements import defined_in, statements
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.problem import NO_TEST, Problem
from securecoderl_edge.prompts.blocks import find_blocks
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program
from securecoderl_edge.prompts.fitting import fits
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.prompts.thoughts import without_thoughts
from securecoderl_edge.runtimes.protocol import Generator, Sampling, batch_seed
from securecoderl_edge.scoring.explain import about_failure, about_security
from securecoderl_edge.scoring.known_findings import without_known

if TYPE_CHECKING:
    from securecoderl_edge.scoring.score import Score
    from securecoderl_edge.scoring.scorer import Scorer

# Tokens for what is new in an answer, on top of what the file has.
_NEW_TOKENS = 256
# Errors of what the sandbox does not have; not of a function that the edit is to add.
_UNAVAILABLE = re.compile(
    r"^(?:ModuleNotFoundError|ImportError|PermissionError): (?!.* \(solution\.py\)).*", re.MULTILINE
)


@dataclass(frozen=True)
class Edit(Candidate):
    """One sampled edit; its program is the edited file, empty if the answer cannot be applied.

    Attributes:
        code: of the answer.
        fault: why it cannot be applied.
        known: findings that the file had before.
    """

    code: str = ""
    fault: str = ""
    known: int = 0

    def verdict(self, tests: str = "tests") -> str:
        """As that of `Candidate`, or the fault."""
        return self.fault or super().verdict(tests)

    def _findings(self) -> str:
        words = super()._findings()
        if not self.known:
            return words
        words = words.replace("no findings", "no new findings") if self.score.severity == 0 else f"{words} (new)"
        return f"{words}, {self.known} before the edit"


@dataclass(frozen=True)
class EditTask:
    """What is asked: a change of a file, with the tests of ``problem``, and the score of the file as it is."""

    file: EditedFile
    instruction: str
    problem: Problem
    before: Score


def edit_task(scorer: Scorer, file: EditedFile, instruction: str, problem: Problem) -> EditTask:
    """Run the tests on the file as it is, which shows whether they can run at all.

    Raises:
        SceError: they cannot, since the file needs a module that the sandbox does not have; or the sandbox failed.
    """
    tested = problem if problem.test_count else replace(problem, tests=(NO_TEST,))
    before, run = scorer.inspect(tested, file.text)
    missing = [_UNAVAILABLE.search(execution.stderr) for execution in run.executions]
    if problem.test_count and missing and before.passed == 0 and all(missing):
        why = missing[0][0] if missing[0] else ""
        raise SceError(f"the tests cannot run in the sandbox: {why}; leave --tests out to edit without them")
    return EditTask(file, instruction, problem, before)


def edit_and_repair(answerer: Answerer, task: EditTask, rounds: int, max_tokens: int | None = None) -> Answer:
    """Sample edits, check and rank them; then up to ``rounds`` more times while none is accepted.

    A further round shows the model the best answer so far, its failing tests with their messages, and its new findings.

    Args:
        max_tokens: of an answer; None: as many as the code that is shown has, and some more.

    Raises:
        UsageError: the model was not trained to chat, or the file is too long for it.
        SceError: the runtime or the sandbox failed.
    """
    if answerer.format.chat is None:
        raise UsageError("--edit needs a model that was trained to chat; choose one with -m, see: sce models")
    asks = PromptFormat("chat", answerer.format.chat, is_as_typed=True)
    runtime, scorer = answerer.runtime, answerer.scorer
    statement, sampling = _fitting(runtime, task, asks, answerer.sampling, max_tokens)
    answerer = replace(answerer, sampling=sampling, format=asks)
    asked = replace(task.problem, statement=statement)
    edits = _sample(answerer, task, asked)
    done = 1
    while done <= rounds and not any(each.is_accepted for each in edits):
        best = next(each for each in ranked(edits) if isinstance(each, Edit))
        faults = [best.fault] if best.fault else about_failure(scorer, task.problem, best.score)
        faults += about_security(best.score)
        attempt = replace(asked, statement=f"{statement}\n\n{_about(best, faults)}")
        if not fits(asks.prompt(attempt), runtime.count_tokens, runtime.context - sampling.max_tokens):
            break
        answerer.watcher.repair(faults)
        # Other random numbers than before: a prompt that changed little would get the same tokens again.
        anew = replace(sampling, seed=batch_seed(sampling.seed, done - 1))
        edits += _sample(replace(answerer, sampling=anew), task, attempt)
        done += 1
    return Answer(task.problem, ranked(edits), done)


def _sample(answerer: Answerer, task: EditTask, asked: Problem) -> list[Edit]:
    format = answerer.format
    facts, prompt = PromptFacts.of(asked, format), format.prompt(asked)
    if not facts.is_thinking and not (format.chat and format.chat.thinks):
        facts = replace(facts, prefill=beginning(task.file.text, task.instruction))
    watcher = answerer.watcher
    (completions,) = answerer.runtime.generate(
        [prompt + facts.prefill], answerer.n, answerer.sampling, watcher.token, [facts]
    )
    codes = {id(completion): code_in(completion.text, facts) for completion in completions}
    applied = {id(completion): _applied(task, codes[id(completion)]) for completion in completions}
    programs = [(completion, applied[id(completion)][0]) for completion in completions]
    (answer,) = check(answerer.scorer, [task.problem], [programs], watcher.check)
    known = len(task.before.findings)
    return [
        Edit(
            each.completion,
            without_known(each.score, task.before),
            each.mean_logprob,
            each.is_tested,
            each.language,
            code=codes[id(each.completion)],
            fault=applied[id(each.completion)][1],
            known=known,
        )
        for each in answer.candidates
    ]


def _applied(task: EditTask, code: str) -> tuple[str, str]:
    """The edited file, and why there is none."""
    try:
        edited = splice(task.file.text, code, task.instruction, task.file.path.stem)
        task.file.encode(edited)
    except NoEdit as none:
        return "", str(none)
    except UnicodeError:
        return "", f"the answer does not keep to the file's encoding ({task.file.encoding})"
    return edited, ""


def code_in(text: str, facts: PromptFacts) -> str:
    """The code of an answer: all blocks with definitions, if there are several, else as `extract_program`.

    A model may ignore the beginning of the answer that the prompt has, and write all of it.
    """
    if facts.prefill:
        alone = replace(facts, prefill="")
        code = code_in(facts.prefill + text, alone)
        return code if parse(code) else code_in(text, alone)
    blocks = find_blocks(without_thoughts(text, facts.is_thinking), PYTHON.name)
    codes = [textwrap.dedent(each.program) for each in blocks if each.label in PYTHON.labels and each.is_closed]
    trees = [(code, parse(code)) for code in codes]
    defining = [code for code, tree in trees if tree and any(each.is_definition for each in statements(tree.body))]
    return "\n\n\n".join(defining) if len(defining) > 1 else extract_program(text, facts)


def _fitting(
    runtime: Generator, task: EditTask, format: PromptFormat, sampling: Sampling, max_tokens: int | None
) -> tuple[str, Sampling]:
    """The question with as much of the file as fits, and room for the answer."""
    text, name = task.file.text, task.file.path.name
    # An outline without a whole function is nothing to change.
    is_named_there = any(is_named(each, task.instruction) for each in defined_in(text))
    for shown in (text, outline(text, task.instruction)) if is_named_there else (text,):
        statement = question(name, shown, shown == text, task.instruction)
        wanted = max_tokens or runtime.count_tokens(shown) + _NEW_TOKENS
        if fits(
            format.prompt(replace(task.problem, statement=statement)), runtime.count_tokens, runtime.context - wanted
        ):
            return statement, replace(sampling, max_tokens=wanted)
    raise UsageError(
        f"--edit {task.file.path}: too large for the model's context of {runtime.context} tokens; "
        "name the functions to change in the instruction"
    )


def _about(best: Edit, faults: list[str]) -> str:
    """The best answer so far and what is wrong with it, for the model."""
    wrong = "\n".join(faults)
    tried = f"This answer is wrong:\n\n```python\n{best.code.strip()}\n```\n\nWhat is wrong with it:\n{wrong}"
    return f"{tried}\n\nAnswer with code that is right."
