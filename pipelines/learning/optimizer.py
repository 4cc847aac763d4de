"""Muon: a descent optimizer whose update of a weight matrix is orthogonal.

The momentum of a matrix is replaced by the nearest orthogonal matrix, found by a Newton-Schulz
iteration, so that rare directions of the gradient move as far as frequent ones. See Jordan et al.,
"Muon: An optimizer for hidden layers in neural networks" (2024). In cloning it needs a tenth of the
updates of AdamW; see docs/cloning.md. Biases, the last layers and convolutions are updated by
AdamW. `torch.optim.Muon` iterates in bfloat16, which is slow on a processor, and takes matrices
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from abacus.rules import Action

#: Coefficients of the quintic polynomial that drives the singular values toward 1.
_A, _B, _C = 3.4445, -4.7750, 2.0315
MOMENTUM = 0.95
BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Muon(torch.optim.Optimizer):
    """Muon for the weights of hidden layers, AdamW for all other parameters.

    Weight decay is decoupled for both. A group's `factor` is its learning rate in proportion to
    that of the matrices, for schedules.

    Args:
        params: the parameters.
        lr: learning rate of the matrices.
        weight_decay: weight decay of all parameters.
        adam_share: learning rate of AdamW in proportion to `lr`.
        steps: Newton-Schulz steps.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        lr: float = 0.05,
        weight_decay: float = 0.0,
        adam_share: float = 0.2,
        steps: int = 5,
    ) -> None:
        self.steps = steps
        parameters = list(params)
        matrices = [each for each in parameters if _is_hidden(each)]
        others = [each for each in parameters if not _is_hidden(each)]
        groups = [
            {"params": matrices, "lr": lr, "factor": 1.0, "orthogonal": True},
            {
                "params": others,
                "lr": lr * adam_share,
                "factor": adam_share,
                "orthogonal": False,
            },
        ]
        filled = [group for group in groups if group["params"]]
        super().__init__(filled, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            update = self._orthogonal if group["orthogonal"] else self._adam
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    update(parameter, parameter.grad, group["lr"])
        return loss

    def _orthogonal(self, parameter: torch.Tensor, gradient: torch.Tensor, lr: float) -> None:
        state = self.state[parameter]
        if not state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"]
        momentum.lerp_(gradient, 1 - MOMENTUM)
        update = orthogonalized(gradient.lerp(momentum, MOMENTUM), self.steps)
        outputs, inputs = parameter.shape
        parameter.add_(update, alpha=-lr * max(1.0, outputs / inputs) ** 0.5)

    def _adam(self, parameter: torch.Tensor, gradient: torch.Tensor, lr: float) -> None:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            state.update(
                step=0, mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter)
            )
        state["step"] += 1
        state["mean"].lerp_(gradient, 1 - BETAS[0])
        state["square"].lerp_(gradient.square(), 1 - BETAS[1])
        mean, square = (
            state[name] / (1 - beta ** state["step"])
            for name, beta in zip(("mean", "square"), BETAS, strict=True)
        )
        parameter.addcdiv_(mean, square.sqrt().add_(EPSILON), value=-lr)


def _is_hidden(parameter: torch.Tensor) -> bool:
    """Return whether a parameter is the weight of a hidden layer: a matrix with many outputs."""
    return parameter.ndim == 2 and len(parameter) > len(Action)


def orthogonalized(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """Return a matrix with the singular vectors of `matrix` and singular values near 1."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    result: torch.Tensor = wide / (wide.norm() + 1e-7)
    for _ in range(steps):
        gram = result @ result.T
        result = torch.addmm(
            result, torch.addmm(gram, gram, gram, beta=_B, alpha=_C), result, beta=_A
        )
    return result if wide is matrix else result.T
