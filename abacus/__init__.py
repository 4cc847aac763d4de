"""A virtual abacus on which an agent adds and subtracts, one bead slide at a time.

Importing this package registers `Abacus-v0` with Gymnasium. The dynamics are compiled on first use,
and Stable-Baselines3 is imported only for `AbacusVecEnv`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

from abacus.reward import LEVELS, MODULES, OUTCOMES, TERMS, terms_of
from abacus.rules import AbacusConfig, Action, End
from abacus.tasks import Operation, Task, parse_expression

if TYPE_CHECKING:
    from abacus.batch import AbacusBatch
    from abacus.env import AbacusEnv
    from abacus.sb3 import AbacusVecEnv
    from abacus.vector import AbacusVectorEnv

__all__ = [
    "LEVELS",
    "MODULES",
    "OUTCOMES",
    "TERMS",
    "AbacusBatch",
    "AbacusConfig",
    "AbacusEnv",
    "AbacusVecEnv",
    "AbacusVectorEnv",
    "Action",
    "End",
    "Operation",
    "Task",
    "__version__",
    "parse_expression",
    "terms_of",
]

__version__ = "0.1.0"

#: Modules of the names that are imported on first use, which keeps `import abacus` fast.
_LAZY_MODULES = {
    "AbacusBatch": "abacus.batch",
    "AbacusEnv": "abacus.env",
    "AbacusVecEnv": "abacus.sb3",
    "AbacusVectorEnv": "abacus.vector",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_MODULES:
        raise AttributeError(f"module 'abacus' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY_MODULES[name]), name)


# Gymnasium's checker would halve the speed; the tests run it.
register(
    id="Abacus-v0",
    entry_point="abacus.env:AbacusEnv",
    vector_entry_point="abacus.vector:AbacusVectorEnv",
    disable_env_checker=True,
)
