"""What several test files share: tiny models, a sandbox, settings of small runs."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from c_compiler import why_no_analyzers, why_no_c, why_no_target
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from once import Once
from places import own_temporary_folder
from slow_tests import mark
from tiny_models import build_adapter, build_model

from securecoderl_edge.models.files import sha256_of_folder
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.settings import TrainSettings

if TYPE_CHECKING:
    from onnx_sources import Sources

# The suite passes wherever it is started. A shell that runs it in the background ignores Ctrl-C for it, nohup ignores
# SIGHUP, and what is ignored stays so in every process that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.umask(0o022)
os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "HF_TOKEN", "SCE_MODEL"):
    os.environ.pop(name, None)

# Temporary files of tests do not come and go in a folder that other tests watch, see sandbox/test_adversarial.
os.environ["TMPDIR"] = str(own_temporary_folder())

# Neither do the models and the defaults of who runs them count. matplotlib keeps its list of fonts.
os.environ.setdefault("MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib"))
for name in ("CACHE", "CONFIG"):
    os.environ[f"XDG_{name}_HOME"] = str(own_temporary_folder() / f"xdg-{name.lower()}")

# torch and llama.cpp both spin their threads, which on shared cores costs more than it gains.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# No test asserts a time, on a busy machine neither.
hypothesis_settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The device of the tests marked ``cuda``."""
    parser.addoption("--cuda-tests-on", choices=("cuda", "cpu"), default="cuda", help="cpu: rehearse the cuda tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests as slow before pytest leaves such out."""
    mark(items)


@pytest.fixture(scope="session")
def accelerator(request: pytest.FixtureRequest) -> str:
    """The device of the tests marked ``cuda``; skips them without one."""
    torch = pytest.importorskip("torch", reason="needs the train extra")
    device: str = request.config.getoption("--cuda-tests-on")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU; --cuda-tests-on cpu rehearses most of these tests")
    return device


@pytest.fixture(scope="session")
def c_compiler() -> None:
    """Skips tests of C programs where none can be compiled and isolated."""
    if reason := why_no_c():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def analyzers() -> None:
    """Skips tests of static analyzers where not all of them can read programs in C."""
    if reason := why_no_analyzers():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cortex_m3() -> None:
    """Skips tests of programs for a Cortex-M3 where none can be built and emulated."""
    if reason := why_no_target():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """Makes what many tests read, once per test run; see `Once`."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # that of all workers
    made = Once(folder / "once")
    yield made
    assert made.changed() == [], "a test has changed what others read"


@pytest.fixture(scope="session")
def tiny_model(once: Once) -> Path:
    """A Hugging Face folder: tied Llama of hidden size 64, 2 layers, byte-level BPE of about 400 tokens."""
    pytest.importorskip("torch", reason="needs the train extra")
    return once("tiny", build_model)


@pytest.fixture(scope="session")
def tiny_qwen(once: Once) -> Path:
    """As `tiny_model`, a Qwen2: biases in its attention, two query heads for each key."""
    pytest.importorskip("torch", reason="needs the train extra")
    return once("tiny-qwen", lambda folder: build_model(folder, "qwen2", num_key_value_heads=2))


@pytest.fixture(scope="session")
def tiny_adapter(tiny_model: Path, once: Once) -> Path:
    """A LoRA adapter on `tiny_model`, in PEFT format."""
    return once("tiny-adapter", lambda folder: build_adapter(folder, tiny_model))


@pytest.fixture(scope="session")
def tiny_gguf(tiny_model: Path, tiny_adapter: Path, once: Once) -> Path:
    """`tiny_model` with `tiny_adapter` as a float32 GGUF file, not verified (export/test_gguf does that)."""
    pytest.importorskip("llama_cpp", reason="needs the gguf extra")
    from securecoderl_edge.export.gguf import write_gguf

    def make(folder: Path) -> None:
        folder.mkdir()
        write_gguf(tiny_model, tiny_adapter, "f32", folder / "tiny-f32.gguf", "tiny")

    return once("tiny-gguf", make) / "tiny-f32.gguf"


@pytest.fixture(scope="session")
def sources(once: Once) -> Sources:
    """Models of many shapes to make ONNX folders of."""
    from onnx_sources import Sources

    return Sources(once)


@pytest.fixture(scope="session")
def base(once: Once) -> Path:
    """A model to export, with a license, wide enough for every type of llama.cpp's; read only."""
    from export_runs import make_base

    return once("mine", make_base)


@pytest.fixture(scope="session")
def known_references(once: Once) -> Iterator[None]:
    """What a source says of the probes of an export is computed once for all exports of it in this test run, and here.

    The child that does it imports torch and transformers, which would be half of the time that tests of exports take.
    It is asked on a GPU, and for its words where the model cannot be run.
    """
    from securecoderl_edge.export.reference import write_reference
    from securecoderl_edge.export.verify import NEW_TOKENS, PROMPTS, reference_of

    @contextmanager
    def known(base: Path, adapter: Path | None, device: str, tell: Callable[[str], None]) -> Iterator[Path]:
        def make(folder: Path) -> None:
            folder.mkdir()
            with suppress(Exception):
                import torch

                if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
                    write_reference(base, adapter, PROMPTS, NEW_TOKENS, folder)
                    return
            with reference_of(base, adapter, device, tell) as found:
                shutil.copytree(found, folder, dirs_exist_ok=True)

        source = hashlib.sha256()
        for folder in (base, *([adapter] if adapter else ())):
            source.update(sha256_of_folder(folder).encode())
        yield once(f"reference-{source.hexdigest()[:16]}", make)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("securecoderl_edge.export.workbench.reference_of", known)
        yield


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    """A sandbox for the tests of a file; files that try its limits have one of their own."""
    with Scorer(workers=2) as opened:
        yield opened


@pytest.fixture
def one_sandbox(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use `scorer`: starting one for each test would take longer than the tests."""
    monkeypatch.setattr("securecoderl_edge.scoring.scorer.Scorer", lambda **_: nullcontext(scorer))


@pytest.fixture(scope="module")
def varied_reward() -> Iterator[None]:
    """Rewards differ whatever is sampled, see `small_runs.varied_reward`."""
    import small_runs

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("securecoderl_edge.training.update.rollout.training_reward", small_runs.varied_reward)
        yield


@pytest.fixture(scope="module")
def settings(tiny_model: Path, varied_reward: None, once: Once) -> Callable[..., TrainSettings]:
    """Makes settings of a run of seconds: overrides as ``--set`` takes them, flags by name."""
    from small_runs import PHASES, settings_maker, write_additions

    problems = once("additions.jsonl", lambda file: write_additions(file, tests=3))
    return settings_maker(tiny_model, problems, PHASES)


@pytest.fixture(scope="module")
def whole(settings: Callable[..., TrainSettings], once: Once) -> Run:
    """A run with `settings` that has come to its end; read only."""
    from securecoderl_edge.training.train import train

    return Run(once("whole-phases", lambda folder: train(settings(), folder / "run")) / "run")


@pytest.fixture(scope="module")
def epoch_settings(tiny_model: Path, varied_reward: None, once: Once) -> Callable[..., TrainSettings]:
    """As `settings`, of runs whose updates have several epochs."""
    from small_runs import EPOCHS, settings_maker, write_additions

    problems = once("six-additions.jsonl", lambda file: write_additions(file, tests=5, count=6))
    return settings_maker(tiny_model, problems, EPOCHS)


@pytest.fixture(scope="module")
def finished(epoch_settings: Callable[..., TrainSettings], once: Once) -> Run:
    """A run with `epoch_settings` that has come to its end; read only."""
    from securecoderl_edge.training.train import train

    return Run(once("whole-run", lambda folder: train(epoch_settings(), folder)))
