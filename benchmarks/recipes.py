"""Compare recipes of cloning, and ways of teaching, by the observations that are left wrong.

A recipe clones random operations, and the policy is compared with the teacher on the complete set
of observations. An ensemble is several clones of the same operations, which answer together or are
distilled into one network. A way of teaching starts from random operations and adds counterexamples
until nothing is wrong. All of it runs in the code of the pipelines; only the actor's hidden layers
and inputs are exchanged where a recipe says so. --list names all of them.
Seconds are processor time of one core. docs/cloning.md reports and discusses the results.
"""

from __future__ import annotations

import csv
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.logger import Logger

from abacus.batch import AbacusBatch
from abacus.checks import check_choice, check_integer
from abacus.observation import (
    decode_frame,
    observation_rows,
    visibly_illegal_actions,
    window_codes,
)
from abacus.rules import ENCODING_PERIOD, AbacusConfig, Action
from benchmarks.machine import machine
from oracle.demos.dataset import Demonstrations
from oracle.demos.recipe import Recipe
from oracle.demos.recorder import record_in_memory
from oracle.exact.certificate import Observations, greedy_actions
from oracle.exact.complete_set import ObservationSet, complete_set, previous_actions
from pipelines.job.command_line import argument, option, run
from pipelines.learning.cloning import MUON, Cloning, one_cycle
from pipelines.learning.cloning_data import CloningSet
from pipelines.learning.networks import CompactNetwork, OneHotNetwork, perceptron, shrink_last_layer
from pipelines.learning.optimizer import Muon
from pipelines.learning.policy import (
    AbacusPolicy,
    layout_of,
    masked_log_probs,
    new_policy,
    prepare_torch,
)
from pipelines.learning.settings import CloningSettings, NetworkName, TeachingSettings
from pipelines.learning.teaching import Teaching
from pipelines.scoring.operations import step_limit
from pipelines.scoring.players import GreedyTable

EXAMPLE = "python -m benchmarks.recipes chosen adamw --demo-seeds 3 4 5"

BASE, FRAMES = 5, 3


class RelativePhases(OneHotNetwork):
    """One-hot inputs with the phases of the older frames relative to that of the newest one.

    The phase of the newest frame is left out: the inputs are the same in every column.
    """

    def inputs(self, rows: torch.Tensor) -> torch.Tensor:
        inputs = super().inputs(rows)
        base, frames = self.layout.base, self.layout.frames
        first = 3 * base + 1  # after the one-hot codes of both digits and of the finger's row
        length = (self.actor_inputs - (base + 2) - 2) // frames
        places = torch.arange(ENCODING_PERIOD, device=rows.device)
        phases = [
            inputs[:, frame * length + first :][:, :ENCODING_PERIOD] for frame in range(frames)
        ]
        newest = phases[-1].argmax(dim=1, keepdim=True)
        for frame, phase in enumerate(phases):
            turned = phase.gather(1, (places + newest) % ENCODING_PERIOD)
            start = frame * length + first
            inputs[:, start : start + ENCODING_PERIOD] = turned
        return inputs


@dataclass(frozen=True)
class CloningRecipe:
    """A way to clone: network, hidden layers of the actor, and the settings of cloning."""

    settings: CloningSettings
    network: NetworkName = "onehot"
    hidden: tuple[int, ...] = (128, 128)
    relative_phases: bool = False
    #: Arguments of Muon other than those of a run.
    muon: Mapping[str, Any] = field(default_factory=dict)

    def new_policy(self) -> AbacusPolicy:
        """Return an untrained policy of this recipe."""
        policy = new_policy(self.network, BASE, FRAMES)
        network = policy.network
        assert isinstance(network, CompactNetwork)
        if self.relative_phases:
            network = policy.network = RelativePhases(layout_of(policy.observation_space))
        network.actor = perceptron((network.actor_inputs, *self.hidden, len(Action)))
        shrink_last_layer(network.actor)
        return policy


#: The settings that the search chose; they are written out here, because defaults may change.
CHOSEN = CloningSettings(
    updates=1_000,
    batch_size=256,
    optimizer="muon",
    learning_rate=0.2,
    weight_decay=0.1,
    label_smoothing=0.2,
)
ADAMW = CloningSettings(
    updates=8_000,
    batch_size=512,
    optimizer="adamw",
    learning_rate=0.003,
    weight_decay=0.3,
    label_smoothing=0.1,
)
RECIPES: dict[str, CloningRecipe] = {
    "chosen": CloningRecipe(CHOSEN),
    "pixels": CloningRecipe(CHOSEN, network="compact"),
    "relative-phases": CloningRecipe(CHOSEN, relative_phases=True),
    "one-layer": CloningRecipe(CHOSEN, hidden=(256,)),
    "three-layers": CloningRecipe(CHOSEN, hidden=(128, 128, 128)),
    "width-64": CloningRecipe(CHOSEN, hidden=(64, 64)),
    "width-192": CloningRecipe(CHOSEN, hidden=(192, 192)),
    "width-256": CloningRecipe(CHOSEN, hidden=(256, 256)),
    "updates-500": CloningRecipe(replace(CHOSEN, updates=500)),
    "updates-2000": CloningRecipe(replace(CHOSEN, updates=2_000)),
    "updates-4000": CloningRecipe(replace(CHOSEN, updates=4_000)),
    "updates-8000": CloningRecipe(replace(CHOSEN, updates=8_000)),
    "batch-128": CloningRecipe(replace(CHOSEN, batch_size=128)),
    "batch-512": CloningRecipe(replace(CHOSEN, batch_size=512)),
    "rate-0.05": CloningRecipe(replace(CHOSEN, learning_rate=0.05)),
    "rate-0.1": CloningRecipe(replace(CHOSEN, learning_rate=0.1)),
    "rate-0.4": CloningRecipe(replace(CHOSEN, learning_rate=0.4)),
    "decay-0.03": CloningRecipe(replace(CHOSEN, weight_decay=0.03)),
    "decay-0.3": CloningRecipe(replace(CHOSEN, weight_decay=0.3)),
    "smoothing-0": CloningRecipe(replace(CHOSEN, label_smoothing=0.0)),
    "smoothing-0.1": CloningRecipe(replace(CHOSEN, label_smoothing=0.1)),
    "smoothing-0.3": CloningRecipe(replace(CHOSEN, label_smoothing=0.3)),
    "newton-schulz-5": CloningRecipe(CHOSEN, muon={"steps": 5}),
    "adam-share-0.2": CloningRecipe(CHOSEN, muon={"adam_share": 0.2}),
    "adamw": CloningRecipe(ADAMW, hidden=(256, 256)),
    "adamw-pixels": CloningRecipe(ADAMW, network="compact", hidden=(256, 256)),
    "adamw-2000": CloningRecipe(replace(ADAMW, updates=2_000), hidden=(256, 256)),
    "adamw-little-decay": CloningRecipe(replace(ADAMW, weight_decay=0.01), hidden=(256, 256)),
}


@dataclass(frozen=True)
class EnsembleRecipe:
    """Clones of the same demonstrations that answer together, or that one network imitates.

    A network that imitates them is trained on their mean probabilities, on the demonstrated
    observations and on those that the ensemble meets when it computes random operations itself.
    The teacher answers nothing beyond the demonstrations; the environment ends an episode at a
    mistake.
    """

    members: int = 5
    distilled: bool = True
    #: Random operations that the ensemble computes itself.
    own_operations: int = 0
    #: Updates of distilling.
    updates: int = 1_000
    #: Name of the recipe of the clones and of the distilled network.
    member: str = "chosen"


ENSEMBLES: dict[str, EnsembleRecipe] = {
    "ensemble": EnsembleRecipe(distilled=False),
    "distilled-shown": EnsembleRecipe(),
    "distilled": EnsembleRecipe(own_operations=5_000),
    "distilled-4000": EnsembleRecipe(own_operations=5_000, updates=4_000),
}

SPREAD = TeachingSettings(rounds=40, counterexamples=40, choice="spread", weights="new")


@dataclass(frozen=True)
class Lesson:
    """A way of teaching: the random operations to start from, and the settings."""

    operations: int = 100
    max_digits: int = 6
    cloning: CloningSettings = CHOSEN
    settings: TeachingSettings = SPREAD


LESSONS: dict[str, Lesson] = {
    "teach": Lesson(),
    "teach-from-30": Lesson(operations=30),
    "teach-from-300": Lesson(operations=300),
    "teach-three-digits": Lesson(max_digits=3),
    "teach-random": Lesson(settings=replace(SPREAD, choice="random")),
    "teach-nearest": Lesson(settings=replace(SPREAD, choice="nearest")),
    "teach-cover": Lesson(settings=replace(SPREAD, choice="cover")),
    "teach-longer": Lesson(settings=replace(SPREAD, choice="longer")),
    "teach-margin": Lesson(settings=replace(SPREAD, choice="margin")),
    "teach-10": Lesson(settings=replace(SPREAD, counterexamples=10)),
    "teach-20": Lesson(settings=replace(SPREAD, counterexamples=20)),
    "teach-100": Lesson(settings=replace(SPREAD, counterexamples=100)),
    "teach-kept-weights": Lesson(
        cloning=replace(CHOSEN, updates=500, learning_rate=0.1),
        settings=replace(SPREAD, weights="kept"),
    ),
    "teach-updates-2000": Lesson(cloning=replace(CHOSEN, updates=2_000)),
    "teach-updates-4000": Lesson(cloning=replace(CHOSEN, updates=4_000)),
    "teach-from-50-updates-4000": Lesson(
        operations=50,
        cloning=replace(CHOSEN, updates=4_000),
        settings=replace(SPREAD, counterexamples=20),
    ),
    "teach-smoothing-0.1": Lesson(cloning=replace(CHOSEN, label_smoothing=0.1)),
}


@dataclass(frozen=True)
class Options:
    """Options of the comparison."""

    names: tuple[str, ...] = argument(
        "recipes, ensembles and ways of teaching; see --list", ("chosen",)
    )
    demo_seeds: tuple[int, ...] = option((0, 1, 2), "seeds of demonstrations and of weights")
    operations: int = option(500, "random operations that a recipe clones")
    csv: Path | None = option(None, "file to append a row for each seed to")
    explain: bool = option(False, "say what the wrong observations of a recipe have in common")
    list: bool = option(False, "list the names, and end")


@dataclass(frozen=True)
class Result:
    """A policy after cloning or teaching; a row of the file of results."""

    name: str
    seed: int
    operations: int
    answers: int
    rounds: int
    wrong: int
    smallest_margin: float
    seconds: float
    #: Wrong observations after each round, or of the members of an ensemble.
    details: str = ""


@cache
def observations() -> ObservationSet:
    """Return the complete set."""
    return complete_set(BASE, FRAMES)


def random_world(max_digits: int) -> AbacusConfig:
    """Return an abacus of ten columns for episodes of ten operations from random values."""
    return AbacusConfig(base=BASE, max_digits=max_digits, max_operations=10, start="random")


def random_operations(count: int, max_digits: int, seed: int) -> Demonstrations:
    """Record random operations."""
    recipe = Recipe(config=random_world(max_digits), operations=count, seed=seed)
    return record_in_memory(recipe).first(count)


def clone(
    policy: AbacusPolicy, demonstrations: Demonstrations, recipe: CloningRecipe, seed: int
) -> None:
    """Clone demonstrations as a run does."""
    data = CloningSet.from_demonstrations(demonstrations, frames=FRAMES)
    cloning = Cloning(policy, data, recipe.settings, seed, Logger(None, []))
    if recipe.muon:
        arguments = {**MUON, **recipe.muon, "weight_decay": recipe.settings.weight_decay}
        cloning.bc.optimizer = Muon(policy.parameters(), **arguments)
    cloning.run()


class Ensemble:
    """Policies that answer by their mean probabilities over the visibly legal actions."""

    def __init__(self, members: Sequence[AbacusPolicy]) -> None:
        self.members = members

    def __call__(self, observations: Observations) -> npt.NDArray[np.float32]:
        """Return the mean probabilities."""
        return self.answers(_codes(observations))[0].numpy()

    def answers(
        self, codes: npt.NDArray[np.int32]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return mean probabilities, rows and masks of coded observations."""
        rows = torch.from_numpy(observation_rows(BASE, codes[:, :-2], codes[:, -2], codes[:, -1]))
        masks = torch.from_numpy(~visibly_illegal_actions(BASE)[codes[:, -3]])
        with torch.no_grad():
            each = [member.log_probs(rows, masks).exp() for member in self.members]
        return torch.stack(each).mean(dim=0), rows, masks

    def met(self, operations: int, seed: int) -> npt.NDArray[np.int32]:
        """Compute random operations greedily; return the observations met, as codes."""
        config, per_episode = random_world(6), 10
        batch = AbacusBatch(config, operations // per_episode, autoreset=False)
        # Other operations than those that are demonstrated with this seed.
        batch.reset(seed + 1_000_003)
        met = []

        def answers(observations: Observations) -> npt.NDArray[np.float32]:
            met.append(_codes(observations))
            return self(observations)

        GreedyTable(answers, BASE, FRAMES).run(batch, step_limit(config, per_episode))
        return np.concatenate(met)


def _codes(observations: Observations) -> npt.NDArray[np.int32]:
    """Return the frame codes, the symbol and the operation of observations."""
    histories = window_codes(BASE, observations["window"])
    symbols = observations["symbol"].argmax(axis=1)
    return np.column_stack([histories, symbols, observations["operation"]]).astype(np.int32)


def distil(
    ensemble: Ensemble,
    codes: npt.NDArray[np.int32],
    policy: AbacusPolicy,
    settings: CloningSettings,
    seed: int,
) -> None:
    """Train a policy on what the ensemble answers to coded observations."""
    targets, rows, masks = ensemble.answers(codes)
    inputs = policy.network.inputs(rows)
    muon: dict[str, Any] = {**MUON, "weight_decay": settings.weight_decay}
    optimizer = Muon(policy.parameters(), **muon)
    generator = torch.Generator().manual_seed(seed)
    order = torch.empty(0, dtype=torch.int64)
    for update in range(settings.updates):
        for group in optimizer.param_groups:
            peak = settings.learning_rate * group["factor"]
            group["lr"] = peak * one_cycle(update / settings.updates)
        if len(order) < settings.batch_size:
            order = torch.randperm(len(codes), generator=generator)
        part, order = order[: settings.batch_size], order[settings.batch_size :]
        log_probs = masked_log_probs(policy.network.logits(inputs[part]), masks[part])
        # A masked action has the probability 0 in the target.
        loss = -(targets[part] * log_probs).sum(dim=1).mean()
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()


def score(policy: AbacusPolicy | Ensemble) -> tuple[int, float]:
    """Return the number of wrong observations, and the smallest margin of the right ones."""
    actions, margins = greedy_actions(policy, observations())
    assert margins is not None
    right = actions == observations().actions
    return int((~right).sum()), float(margins[right].min())


def explain(policy: AbacusPolicy, demonstrations: Demonstrations) -> str:
    """Return what the wrong observations have in common.

    A combination is the previous action, the digit under the finger, the finger's row, the symbol
    and the operation: all that the teacher's action depends on, but for the signpost and padding.
    """
    known = observations()
    columns = demonstrations.transitions
    shown = _combinations(
        demonstrations.histories(frames=FRAMES), columns["symbol"], columns["operation"]
    )
    all_of_them = _combinations(known.histories, known.symbols, known.operations)
    new = ~np.isin(all_of_them, shown)
    actions, _ = greedy_actions(policy, known)
    wrong = actions != known.actions
    confused = Counter(
        f"{Action(right).name} as {Action(chosen).name}"
        for right, chosen in zip(known.actions[wrong], actions[wrong], strict=True)
    )
    missing, common = (len(np.unique(all_of_them[rows])) for rows in (new, wrong & new))
    return (
        f"  {missing} of {len(np.unique(all_of_them)):,} combinations were not demonstrated, with "
        f"{new.sum():,} observations; of {wrong.sum():,} wrong observations "
        f"{(wrong & new).sum():,} have one of {common} of these\n"
        f"  {', '.join(f'{count} {text}' for text, count in confused.most_common(4))}"
    )


def _combinations(
    histories: npt.NDArray[np.integer],
    symbols: npt.NDArray[np.integer],
    operations: npt.NDArray[np.integer],
) -> npt.NDArray[np.int64]:
    """Return an integer for the combination of each observation."""
    _, digit, row, _, _ = decode_frame(BASE, histories[:, -1].astype(np.int64))
    previous = previous_actions(BASE, histories, symbols) + 1
    codes = ((previous * BASE + digit) * BASE + row) * (BASE + 2) + symbols
    combined: npt.NDArray[np.int64] = codes * 2 + operations
    return combined


def try_recipe(name: str, operations: int, seed: int, explained: bool = False) -> Result:
    """Clone random operations by a recipe, and explain the wrong observations on request."""
    recipe = RECIPES[name]
    demonstrations = random_operations(operations, 6, seed)
    torch.manual_seed(seed)
    policy = recipe.new_policy()
    started = time.process_time()
    clone(policy, demonstrations, recipe, seed)
    seconds = time.process_time() - started
    wrong, margin = score(policy)
    if explained:
        print(explain(policy, demonstrations))
    return Result(name, seed, operations, len(demonstrations), 0, wrong, margin, seconds)


@cache
def ensemble_members(
    name: str, count: int, operations: int, seed: int
) -> tuple[Demonstrations, tuple[AbacusPolicy, ...], float]:
    """Return random operations, clones of them, and the seconds of cloning."""
    recipe, demonstrations = RECIPES[name], random_operations(operations, 6, seed)
    started = time.process_time()
    members = []
    for number in range(count):
        # The first member is the clone of the recipe alone.
        member_seed = seed + 1_000 * number
        torch.manual_seed(member_seed)
        members.append(recipe.new_policy())
        clone(members[-1], demonstrations, recipe, member_seed)
    return demonstrations, tuple(members), time.process_time() - started


def try_ensemble(name: str, operations: int, seed: int) -> Result:
    """Clone random operations several times, and distil the clones if the recipe says so."""
    recipe = ENSEMBLES[name]
    demonstrations, members, seconds = ensemble_members(
        recipe.member, recipe.members, operations, seed
    )
    ensemble = Ensemble(members)
    found: AbacusPolicy | Ensemble = ensemble
    details = "members " + " ".join(str(score(member)[0]) for member in members)
    if recipe.distilled:
        started = time.process_time()
        columns = demonstrations.transitions
        names = "symbol", "operation"
        shown = [demonstrations.histories(frames=FRAMES), *(columns[key] for key in names)]
        codes = np.column_stack(shown).astype(np.int32)
        if recipe.own_operations:
            codes = np.concatenate([codes, ensemble.met(recipe.own_operations, seed)])
        codes = np.unique(codes, axis=0)
        torch.manual_seed(seed)
        found = RECIPES[recipe.member].new_policy()
        settings = replace(RECIPES[recipe.member].settings, updates=recipe.updates)
        distil(ensemble, codes, found, settings, seed)
        seconds += time.process_time() - started
        details += f", ensemble {score(ensemble)[0]}, distilled on {len(codes):,} observations"
    wrong, margin = score(found)
    return Result(name, seed, operations, len(demonstrations), 0, wrong, margin, seconds, details)


def try_lesson(name: str, seed: int) -> Result:
    """Clone random operations, then teach counterexamples until nothing is wrong."""
    lesson = LESSONS[name]
    started = time.process_time()
    demonstrations = random_operations(lesson.operations, lesson.max_digits, seed)
    torch.manual_seed(seed)
    policy = new_policy("onehot", BASE, FRAMES)
    clone(policy, demonstrations, CloningRecipe(lesson.cloning), seed)
    teaching = Teaching(
        policy, observations(), demonstrations, lesson.settings, lesson.cloning, seed
    )
    best = teaching.run()
    seconds = time.process_time() - started
    last = teaching.rounds[-1]
    return Result(
        name,
        seed,
        last.operations,
        last.answers,
        last.number,
        best.wrong,
        score(policy)[1],
        seconds,
        " ".join(str(each.wrong) for each in teaching.rounds),
    )


def append(path: Path, result: Result) -> None:
    """Append a result to a CSV file, with a header if the file is new."""
    values = asdict(result)
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(values))
        if is_new:
            writer.writeheader()
        writer.writerow(values)


def summary(name: str, results: Sequence[Result]) -> str:
    """Return a row of the table: means over the seeds, and the largest values of teaching."""
    wrong = [result.wrong for result in results]
    return (
        f"{name:<22}{mean(wrong):>8.1f}{max(wrong):>7,}{wrong.count(0):>4}/{len(wrong)}"
        f"{mean(r.operations for r in results):>7,.0f}{max(r.operations for r in results):>7,}"
        f"{mean(r.answers for r in results):>8,.0f}{max(r.answers for r in results):>8,}"
        f"{mean(r.seconds for r in results):>8.1f}{max(r.seconds for r in results):>8.1f}"
        f"{min(r.smallest_margin for r in results):>8.2f}"
    )


def main(options: Options) -> int:
    """Print a table of the named recipes and ways of teaching."""
    if options.list:
        print("\n".join([*RECIPES, *ENSEMBLES, *LESSONS]))
        return 0
    for name in options.names:
        check_choice("name", name, [*RECIPES, *ENSEMBLES, *LESSONS])
    check_integer("operations", options.operations, 1)
    prepare_torch(1)
    observations()
    print(machine())
    print(
        f"{'name':<22}{'wrong':>8}{'most':>7}{'exact':>6}{'op.s':>7}{'most':>7}{'answers':>8}"
        f"{'most':>8}{'seconds':>8}{'most':>8}{'margin':>8}"
    )
    for name in options.names:
        results = []
        for seed in options.demo_seeds:
            if name in RECIPES:
                result = try_recipe(name, options.operations, seed, options.explain)
            elif name in ENSEMBLES:
                result = try_ensemble(name, options.operations, seed)
            else:
                result = try_lesson(name, seed)
            if options.csv:
                append(options.csv, result)
            results.append(result)
        print(summary(name, results), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(run(main, Options, __doc__, EXAMPLE))
