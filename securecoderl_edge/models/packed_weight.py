"""Products of few rows with frozen weights on a CPU, by oneDNN, which has reordered the weights before.

`functional.linear` reorders the weight in every call, which takes longer than the product if there are few rows. On one
thread of an Intel Xeon, 8 and 32 rows by a weight of 9728 x 896 took 0.51 and 0.85 of its time in float32 (with AVX2
alone 0.85 and 0.85), and 0.55 and 0.51 in bfloat16, which that processor multiplies by matrix units.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

# Rows that a weight is reordered for. Other numbers of rows read the same order, and are as fast.
_ROWS = 32
# Smaller weights in float32 stay in the cache, and `functional.linear` is as fast, for one row faster. With
# 896 x 896 on two threads of an AMD EPYC with AVX2, 32 rows took 0.63 of its time when reordered.
_LARGE_BYTES = 3 << 20


def packed(weight: Tensor) -> Tensor:
    """A copy of ``weight`` (out, in) that only `packed_linear` can read; itself where that would not be faster."""
    if not _is_for_onednn(weight):
        return weight
    reordered: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
    return reordered


def packed_linear(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As `functional.linear`, without gradients, also for weights that are `packed`.

    oneDNN is faster in float32 with large weights that are not packed, too.
    """
    if not weight.is_mkldnn and not (weight.dtype == torch.float32 and _is_for_onednn(weight)):
        return functional.linear(inputs, weight, bias)
    output: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return output


def _is_for_onednn(weight: Tensor) -> bool:
    # By what the processor can do, not by measurement: a run that is resumed must compute the same.
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32 and weight.nbytes >= _LARGE_BYTES
