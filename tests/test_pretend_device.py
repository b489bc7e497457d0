"""The rules of the pretend device: what CUDA refuses is a breach, what it takes is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from pretend_device import NAME, BrokenRule, expect_reads, pretend_device
from torch import Tensor
from torch.nn import functional

import securecoderl_edge


def on(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(*size, device=NAME, dtype=dtype)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda: on(2, 2) @ torch.ones(2, 2), "mm.default has operands on the device and on the CPU"),
        (lambda: on(2) + torch.ones(2), "add.Tensor has operands on the device and on the CPU"),
        (lambda: on(2).masked_fill(torch.ones(2, dtype=torch.bool), 0.0), "masked_fill.Scalar has operands"),
        (lambda: torch.where(torch.ones(2, dtype=torch.bool), on(2), on(2)), "where.self has operands"),
        (lambda: on(2).index_select(0, torch.tensor([0])), "index_select.default has operands"),
        (lambda: torch.cat([on(2), torch.ones(2)]), "cat.default has operands"),
        (lambda: functional.embedding(torch.tensor([0]), on(2, 2)), "embedding.default has operands"),
        (lambda: functional.linear(on(1, 2), on(2, 2, dtype=torch.float16)), "mm.default multiplies torch.float16 and"),
        (lambda: torch.bmm(on(1, 2, 2), on(1, 2, 2, dtype=torch.bfloat16)), "bmm.default multiplies torch.bfloat16"),
        (lambda: on(2).double(), "float64 on the device"),
        (lambda: torch.tensor(0.1, dtype=torch.float64, device=NAME), "float64 on the device"),
        (lambda: torch.zeros(2, dtype=torch.float64).to(NAME), "float64 on the device"),
    ],
)  # fmt: skip
def test_what_a_gpu_refuses_is_a_breach(act: Callable[[], object], words: str) -> None:
    with pytest.raises(BrokenRule, match=words), pretend_device():
        act()


@pytest.mark.parametrize(
    "act",
    [
        lambda: on(2) * torch.tensor(2.0),
        lambda: on(2) * 0.1,
        lambda: on(2).masked_fill(on(2) > 0, 0.0),
        lambda: on(3)[torch.tensor([0, 2])],
        lambda: on(3)[[0, 2]],
        lambda: on(2).copy_(torch.ones(2)),
        lambda: torch.tensor([1, 2], device=NAME),
        lambda: on(2, dtype=torch.float16) + on(2),
    ],
)
def test_what_a_gpu_takes_is_none(act: Callable[[], Any]) -> None:
    with pretend_device():
        assert act().device.type == NAME


@pytest.mark.parametrize(
    "read",
    [
        lambda values: values[0].item(),
        lambda values: bool(values[0] > 0),
        lambda values: values.tolist(),
        lambda values: values.cpu(),
        lambda values: torch.zeros(2).copy_(values),
        lambda values: values[values > 0],
        lambda values: values.nonzero(),
        lambda values: values.masked_select(values > 0),
        lambda values: torch.equal(values, values),
        lambda values: values.repeat_interleave(torch.ones(2, dtype=torch.long).to(NAME)),
    ],
)
def test_what_makes_the_host_wait_is_counted_and_held_to_a_number(read: Callable[[Tensor], Any]) -> None:
    ours: dict[str, Any] = {}  # a function in a file of the package
    source = "def twice(act):\n    act()\n    act()\n"
    exec(compile(source, str(Path(securecoderl_edge.__file__).parent / "models/any.py"), "exec"), ours)

    with pretend_device():
        ours["twice"](lambda: read(on(2)))
        read(on(2))  # a test's own is not counted
        expect_reads(2)
        expect_reads(0)
        for times in (1, 3):
            ours["twice"](lambda: read(on(2)))
            with pytest.raises(BrokenRule, match=rf"2 reads of the device, not {times}:\n2 in models/any.py:twice"):
                expect_reads(times)


def test_an_error_inside_is_shown_with_the_breach_that_led_to_it() -> None:
    with pytest.raises(BrokenRule) as caught, pretend_device():
        on(2, 2) @ on(2, 2, dtype=torch.float16)
    assert "dtype" in str(caught.value.__cause__)


def test_views_share_their_numbers_and_gradients_flow() -> None:
    with pretend_device():
        values = on(2, 3)
        values[:, 1:] = 5.0
        values.view(-1)[0].mul_(7)
        assert values.tolist() == [[7.0, 5.0, 5.0], [1.0, 5.0, 5.0]]
        weight = torch.nn.Parameter(on(3))
        (values @ weight).sum().backward()
        assert weight.grad is not None
        assert weight.grad.tolist() == [8.0, 10.0, 10.0]


def test_outside_of_the_block_there_is_no_accelerator() -> None:
    with pretend_device():
        assert torch.accelerator.is_available()
    assert not torch.accelerator.is_available()
