"""The numbers of metrics.jsonl, passed on to programs that draw them while a run trains.

TensorBoard gets them where it is installed: it is a folder of the run. trackio and W&B get them only if the user asks
for it by name, and decide themselves where they go: trackio to this machine unless TRACKIO_SPACE_ID is set, W&B to its
server unless WANDB_MODE is ``offline``. They are given the numbers, and the names of run and phase. W&B adds the
command line and facts of the machine.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

from securecoderl_edge.errors import SceError, first_line
from securecoderl_edge.runs import ENVIRONMENT, Run
from securecoderl_edge.system.files import read_json

TRACKERS = ("trackio", "wandb")
_PROJECT = "securecoderl-edge"


class Curves(Protocol):
    """The curves of one phase, over its updates."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add the numbers of update ``step``, from 1; those of a repeated update replace or equal the earlier ones."""

    def close(self) -> None:
        """Write what is left; nothing is logged after this."""


class TensorBoardCurves:
    """Files in ``tensorboard/`` of the run, one folder per phase."""

    def __init__(self, run: Run, phase: str, first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # The first event of this writer hides later steps that a crash left.
        self._writer: Any = SummaryWriter(str(run.path / "tensorboard" / phase), purge_step=first)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class TrackerCurves:
    """A run of trackio or W&B, whose functions have the same names; a resumed training resumes it."""

    def __init__(self, tracker: str, run: Run, phase: str, _first: int) -> None:
        module = import_module(tracker)
        facts: dict[str, Any] = {"name": f"{run.name}-{phase}"}
        if tracker == "wandb":
            key = f"{run.path.resolve()}\n{read_json(run.path / ENVIRONMENT).get('started')}\n{phase}"
            # Neither the text on the terminal nor code and git belong to curves.
            quiet = module.Settings(console="off", disable_git=True, disable_code=True, save_code=False)
            facts |= {"id": hashlib.sha256(key.encode()).hexdigest()[:16], "dir": str(run.path), "settings": quiet}
        with redirect_stdout(sys.stderr):
            self._run: Any = module.init(project=_PROJECT, group=run.name, resume="allow", **facts)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        with redirect_stdout(sys.stderr):
            self._run.log(dict(values), step=step)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):
            self._run.finish()


def check_trackers(trackers: Collection[str]) -> None:
    """Check that the trackers are installed, before any work is done.

    Raises:
        SceError: one is not.
    """
    for name in trackers:
        if find_spec(name) is None:
            raise SceError(f"{name} is not installed, so it cannot show curves. Run: pip install {name}")


@contextmanager
def curves_of(
    run: Run,
    log: Callable[[dict[str, Any]], None],
    trackers: Collection[str] = (),
    say: Callable[[str], None] = lambda message: None,
    *,
    enabled: bool = True,
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A ``log`` of rows of metrics that also passes their numbers on, to TensorBoard and ``trackers``.

    Training goes on without curves that fail.

    Args:
        trackers: of `TRACKERS`. say: called with one sentence if a tracker fails; it gets no more numbers.
        enabled: False leaves ``log`` as it is.
    """
    makers: dict[str, Callable[[str, int], Curves]] = {}
    if enabled and find_spec("tensorboard") is not None:
        makers["tensorboard"] = partial(TensorBoardCurves, run)
    if enabled:
        makers |= {name: partial(TrackerCurves, name, run) for name in trackers}
    opened: dict[str, tuple[str, Curves]] = {}

    def attempt(name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # each has exceptions of its own; hours of training must not end with them
            makers.pop(name, None)
            opened.pop(name, None)
            say(f"{name} failed, so its curves end here: {first_line(error)}")

    def pass_on(name: str, phase: str, step: int, values: Mapping[str, float]) -> None:
        before, curves = opened.get(name, ("", None))
        if curves is None or before != phase:
            if curves is not None:
                curves.close()
            curves = makers[name](phase, step)
            opened[name] = phase, curves
        curves.log(step, values)

    def log_all(row: dict[str, Any]) -> None:
        phase, step = row["phase"], row["step"]
        values = {name: value for name, value in row.items() if _is_number(value) and name not in ("step", "steps")}
        for name in list(makers):
            attempt(name, partial(pass_on, name, phase, step, values))
        log(row)

    try:
        yield log_all if makers else log
    finally:
        for name, (_, curves) in list(opened.items()):
            attempt(name, curves.close)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
