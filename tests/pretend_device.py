"""A pretend accelerator: the real code runs on it without a GPU, under the rules of one.

Inside `pretend_device` the device ``pretend`` exists (PyTorch's PrivateUse1, registered from Python). Its tensors keep
their numbers in a CPU tensor, and every operation computes on those, so results can be compared with the CPU's. It is
another device to PyTorch and to us: code that asks for "cuda", or for "cpu", takes its other branch.

Breaches of these rules are collected, with the function of ours that made them, and raised at the end of the block:

* operands on two devices. As on CUDA, a 0-dim CPU tensor may enter an elementwise operation, and an index may be on the
  CPU. A mask may not.
* matrix products of two dtypes.
* float64 on the device, computed or copied. GradScaler may: it inverts its scale, one number, in float64.

Reads of the device by the host are counted: items, copies to the CPU, and operations whose result has a size that
depends on numbers (boolean indexing, nonzero, masked_select). Each makes the host wait for the device. How many there
may be follows from what is done, say one for each token step; `expect_reads` holds code to such a number.

Not covered: what CUDA's own kernels compute (rounding, overflow, which attention kernel is chosen), recorded steps,
memory, streams, several devices, autocast, bitsandbytes, and operations that CUDA lacks in a dtype that the CPU has.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.amp import GradScaler
from torch.utils import backend_registration

import securecoderl_edge

if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
    pytest.skip("needs a torch that takes devices from Python", allow_module_level=True)

NAME = "pretend"
_KEY = "PrivateUse1"
_aten = torch.ops.aten
_PRODUCTS = {_aten.mm, _aten.bmm, _aten.addmm, _aten.addmm_, _aten.baddbmm, _aten.addmv, _aten.mv, _aten.dot}
_INDEXED = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}
_SIZED_BY_NUMBERS = {_aten.nonzero, _aten.masked_select, _aten.repeat_interleave, _aten._unique2, _aten.bincount}
_READS = {_aten._local_scalar_dense, _aten.equal}
_PACKAGE = str(Path(securecoderl_edge.__file__).parent)


class BrokenRule(AssertionError):
    """What the code did that a GPU would refuse or be slowed by, one line each."""


class Watch:
    """What happened on the device so far, by the function of ours that caused it.

    Attributes:
        breaches: of the rules, in words.
        reads: times that the host waited for the device since `expect_reads`; those of tests are left out.
        uploads: copies to the device.
        launches: operations on the device that are no views.
        operations: all of them.
        failures: operations that were asked of the device after it vanished, see `vanish`.
    """

    def __init__(self) -> None:
        self.breaches: list[str] = []
        self.reads: Counter[str] = Counter()
        self.uploads: Counter[str] = Counter()
        self.launches = self.operations = 0
        self.failures: list[str] = []
        self._vanishes_at: float = math.inf

    def vanish(self, operations: int) -> None:
        """Let the device fail after so many more operations."""
        self._vanishes_at = self.operations + operations

    def check_alive(self) -> None:
        """Fail as CUDA does, if the device has vanished.

        Not in an operation that autograd calls by itself: some of its nodes end the process when Python raises there.
        """
        self.operations += 1
        if self.operations > self._vanishes_at and not _is_called_by_autograd():
            self.failures.append(_place())
            raise torch.AcceleratorError("CUDA error: unspecified launch failure\nCUDA kernel errors might be ...")

    def check(self, function: Any, args: Any, operands: list[torch.Tensor], made: Any) -> None:
        """Hold an operation that had its operands or its results on the device against the rules."""
        kind = function.overloadpacket
        inside = [each for each in operands if isinstance(each, PretendTensor)]
        outside = [each for each in operands if not isinstance(each, PretendTensor)]
        results = [each for each in _tensors(made) if isinstance(each, PretendTensor)]
        self.launches += bool(results) and not function.is_view
        if any(each.dtype == torch.float64 for each in (*inside, *results)) and not _is_called_by(GradScaler.unscale_):
            self._breach(f"{function} has float64 on the device")
        if kind in (_aten.copy_, _aten._to_copy):
            source, target = (args[1], args[0]) if kind is _aten.copy_ else (args[0], made)
            if isinstance(source, PretendTensor) and not isinstance(target, PretendTensor):
                self._read()
            elif isinstance(target, PretendTensor) and not isinstance(source, PretendTensor):
                self.uploads[_place()] += 1
            return
        if outside and inside:
            self._check_devices(function, args, outside)
        if kind in _PRODUCTS and len({each.dtype for each in operands}) > 1:
            self._breach(f"{function} multiplies {' and '.join(sorted({str(each.dtype) for each in operands}))}")
        if inside and (kind in _READS or kind in _SIZED_BY_NUMBERS or (kind in _INDEXED and _has_mask(args[1]))):
            self._read()

    def _check_devices(self, function: Any, args: Any, outside: list[torch.Tensor]) -> None:
        if function.overloadpacket in _INDEXED:
            outside = [each for each in outside if not any(each is index for index in args[1])]
        elementwise = torch.Tag.pointwise in function.tags
        if any(each.dim() or not elementwise for each in outside):
            self._breach(f"{function} has operands on the device and on the CPU")

    def _read(self) -> None:
        if place := _place():
            self.reads[place] += 1

    def _breach(self, what: str) -> None:
        line = f"{_place() or 'a test'}: {what}"
        if line not in self.breaches:
            self.breaches.append(line)


class PretendTensor(torch.Tensor):
    """A tensor on the pretend device; ``inner``, on the CPU, has its numbers and shares its views."""

    inner: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> PretendTensor:
        tensor: PretendTensor = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=torch.device(NAME, 0),
        )  # fmt: skip
        tensor.inner = inner
        return tensor

    def __init__(self, inner: torch.Tensor) -> None: ...

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretend({self.inner})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    @property
    def data(self) -> torch.Tensor:  # type: ignore[override]
        """As of every tensor; what is assigned brings its numbers along."""
        return self.detach()

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        assert isinstance(value, PretendTensor)
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.inner = value.inner

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _compute(function, args, kwargs or {})


_watches: list[Watch] = []


@contextmanager
def pretend_device() -> Iterator[Watch]:
    """The device exists inside the block.

    Raises:
        BrokenRule: at the end of the block, also if an error ended it.
    """
    _register()
    watch = Watch()
    _watches.append(watch)
    error: BaseException | None = None
    try:
        # Then our frames are above those of a backward pass, and no thread of the device must exist.
        with torch.autograd.set_multithreading_enabled(False):
            yield watch
    except Exception as caught:
        error = caught
        raise
    finally:
        _watches.remove(watch)
        if watch.breaches:
            raise BrokenRule("\n".join(watch.breaches)) from error


def expect_reads(times: int) -> None:
    """Hold the reads since the last call, or since the device exists, to a number; without a device there are none.

    Raises:
        BrokenRule: there were more or fewer; it names the functions of ours that read.
    """
    if not _watches:
        return
    made, _watches[-1].reads = _watches[-1].reads, Counter()
    if made.total() != times:
        listed = "".join(f"\n{count} in {place}" for place, count in sorted(made.items()))
        raise BrokenRule(f"{made.total()} reads of the device, not {times}:{listed}")


def _compute(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the CPU tensors within, and hold it against the rules."""
    if _watches:
        _watches[-1].check_alive()
    operands = _tensors((args, kwargs))
    inside = {id(each.inner): each for each in operands if isinstance(each, PretendTensor)}
    inner_args, inner_kwargs = _inner(args), _inner(kwargs)
    target = kwargs.get("device")
    stays = bool(inside) if target is None else torch.device(target).type == NAME
    if stays and target is not None:
        inner_kwargs["device"] = torch.device("cpu")
    is_into_cpu = function.overloadpacket is _aten.copy_ and not isinstance(args[0], PretendTensor)
    try:
        with torch.no_grad():
            made = function(*inner_args, **inner_kwargs)
    except RuntimeError:
        _check(function, args, operands, None)
        raise
    if is_into_cpu:
        made = args[0]
    elif stays:
        # What an operation changed in place comes back as the same tensor.
        made = _outer(made, inside)
    _check(function, args, operands, made)
    return made


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in nested arguments of an operation."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for each in value for tensor in _tensors(each)]


def _inner(value: Any) -> Any:
    if isinstance(value, PretendTensor):
        return value.inner
    if isinstance(value, dict):
        return {name: _inner(each) for name, each in value.items()}
    return type(value)(map(_inner, value)) if type(value) in (list, tuple) else value


def _outer(value: Any, known: dict[int, PretendTensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return known[id(value)] if id(value) in known else PretendTensor(value)
    return type(value)(_outer(each, known) for each in value) if isinstance(value, (list, tuple)) else value


def _check(function: Any, args: Any, operands: list[torch.Tensor], made: Any) -> None:
    if _watches:
        _watches[-1].check(function, args, operands, made)


def _has_mask(indices: Any) -> bool:
    return any(isinstance(each, PretendTensor) and each.dtype in (torch.bool, torch.uint8) for each in indices)


def _is_called_by_autograd() -> bool:
    return torch._C._current_graph_task_id() != -1 and _place().endswith("Learner.backward")


def _place() -> str:
    """The innermost function of the package that is running, as ``folder/file.py:name``; empty in a test."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            file = frame.f_code.co_filename.removeprefix(_PACKAGE).lstrip("/")
            return f"{file}:{frame.f_code.co_qualname.partition('.<locals>')[0]}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _is_called_by(function: Any) -> bool:
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not function.__code__:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


class _Module(backend_registration._DummyBackendModule):  # type: ignore[misc]
    def is_available(self) -> bool:
        return bool(_watches)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


class _Hook(backend_registration._DummyPrivateUse1Hook):  # type: ignore[misc]
    def is_available(self) -> bool:
        return bool(_watches)


_libraries: list[torch.library.Library] = []


def _register() -> None:
    """Make the device known to PyTorch, once in a process; outside of `pretend_device` it is not available."""
    if _libraries:
        return
    backend_registration._setup_privateuseone_for_python_backend(NAME, _Module(), _Hook())
    everything = torch.library.Library("_", "IMPL")

    def fallback(function: Any, *args: Any, **kwargs: Any) -> Any:
        return _compute(function, args, kwargs)

    # The fallback makes tensors; copies into them run without ``__torch_dispatch__`` where torch makes one from a list.
    everything.fallback(fallback, _KEY)
    copies = torch.library.Library("aten", "IMPL")
    copies.impl("copy_", _kernel(_aten.copy_.default), _KEY)
    _libraries.extend((everything, copies))


def _kernel(function: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: _compute(function, args, kwargs)
