"""``sce serve``: an HTTP server in OpenAI's format, and a page, whose programs are tested and scanned."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from types import FrameType
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from securecoderl_edge.commands.console import say, warn_of_level
from securecoderl_edge.commands.options import adapter_option, examples, model_option, options_from
from securecoderl_edge.errors import UsageError, check_extras, missing_extras
from securecoderl_edge.models.packages import COMPUTED_BY
from securecoderl_edge.runtimes.adapted import resolve_adapted
from securecoderl_edge.runtimes.opening import DEFAULT_PARALLEL, check_runtime, note_on, opened
from securecoderl_edge.runtimes.protocol import MAX_TOKENS
from securecoderl_edge.sandbox.limits import TRAINING_LIMITS
from securecoderl_edge.serving.serve_settings import KEY_VARIABLE, ServeSettings

if TYPE_CHECKING:
    from securecoderl_edge.serving.score_service import ScoreService


@click.command(
    epilog=examples(
        "sce serve -m qwen-0.5b",
        "sce serve -m qwen-1.5b --port 8081 --allow-origin http://localhost:3000",
        "sce serve --reward",
    )
)
@model_option
@adapter_option
@options_from(ServeSettings)
def serve(
    model: str | None,
    adapter: str | None,
    config: ServeSettings,
) -> None:
    """Serve a model in OpenAI's format, with tested and scanned programs.

    The paths are /v1/models, /v1/completions and /v1/chat/completions, a page at /, /health and /metrics (Prometheus).
    Each program is run in the sandbox and scanned for weaknesses. Every choice has its verdict; none is hidden.

    With --reward, the server scores batches of programs at /v1/score, for trainers. It then serves a model only with
    --model or --adapter.

    Clients on this machine need no key. For others, set one in the environment variable SCE_API_KEY. Ctrl-C finishes
    the requests in progress, for at most 10 seconds; a second Ctrl-C cancels them.
    """
    from securecoderl_edge.scoring.scorer import Scorer

    if config.sandbox == "off":
        raise UsageError("--sandbox off: a server runs programs for others and must isolate them. Leave it out")
    key = config.api_key()
    os.environ.pop(KEY_VARIABLE, None)  # child processes do not need it
    is_named = click.get_current_context().get_parameter_source("model") is ParameterSource.COMMANDLINE
    spec = resolve_adapted(model, adapter) if is_named or adapter or not config.reward else None
    needed: dict[str, tuple[str, ...]] = {"serve": ("uvicorn", "starlette")}
    if missing_extras(needed):  # else the checks of the model say more
        check_extras(needed | (COMPUTED_BY[spec.kind] if spec else {}))
    from securecoderl_edge.serving.server import ServedModel, Server, address_of, listen

    warn_of_level(config.sandbox)
    if spec is not None:
        check_runtime([spec], config, say)
        if note := note_on(spec):
            say(note)
    signal.signal(signal.SIGTERM, _terminate)
    with listen(config) as listening, contextlib.ExitStack() as stack:
        score_service = _open_score_service(stack, config) if config.reward else None
        served = None
        if spec is not None:
            scorer = stack.enter_context(Scorer(sandbox=config.sandbox))
            rows = config.parallel or DEFAULT_PARALLEL[spec.kind]
            runtime, format = stack.enter_context(opened(spec, config, parallel=rows))
            tokens = spec.max_tokens() or MAX_TOKENS
            served = ServedModel(runtime, scorer, format, spec.label, rows, tokens, spec.language())
        server = Server(config, key, say, model=served, score_service=score_service)
        names = [*([spec.label] if spec else []), *(["the reward"] if score_service else [])]
        say(f"{' and '.join(names)} at {address_of(listening)}; press Ctrl-C to stop")
        with contextlib.suppress(KeyboardInterrupt):
            server.run(listening)
        say("stopped")


def _open_score_service(stack: contextlib.ExitStack, config: ServeSettings) -> ScoreService:
    from securecoderl_edge.problems.sources import load_problems
    from securecoderl_edge.scoring.scorer import Scorer
    from securecoderl_edge.serving.score_service import ScoreService

    problems = load_problems(config.problems, tell=say) if config.problems is not None else []
    scorer = stack.enter_context(Scorer(limits=TRAINING_LIMITS, sandbox=config.sandbox))
    return ScoreService(scorer, {problem.id: problem for problem in problems}, config.max_requests)


def _terminate(number: int, _frame: FrameType | None) -> None:
    """End with the usual exit code, so that models and sandboxes are closed."""
    sys.exit(128 + number)
