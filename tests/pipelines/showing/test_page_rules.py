"""The rules, expert and network of the page in Chromium, compared with Python step by step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from abacus.kernel import SLIDE_OUTCOME, SUBMIT_OUTCOME
from abacus.observation import frame_codes, observation_rows
from abacus.rules import Action
from abacus.tasks import numeral
from oracle.expert import expert_actions
from oracle.files import atomic_write_text
from pipelines.learning.policy import AbacusPolicy, new_policy
from pipelines.learning.policy_files import load_run
from pipelines.showing.explanation import SENTENCES, explanation
from pipelines.showing.game import Game, config_for
from pipelines.showing.page import network_data, play_page
from tests.pipelines.browser import CHROMIUM, Browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")
DRIVER = (Path(__file__).parent / "page_driver.js").read_text()
EXPRESSIONS = 300


@pytest.fixture(scope="module")
def policy() -> AbacusPolicy:
    """The published policy, whose page is the one that visitors get."""
    return load_run()


@pytest.fixture(scope="module")
def browser(policy: AbacusPolicy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = tmp_path_factory.mktemp("page") / "page.html"
    atomic_write_text(path, play_page([network_data(policy)]))
    with Browser(seconds=120) as browser:
        browser.open(path)
        browser.run(DRIVER)
        yield browser


def random_expression(rng: np.random.Generator, longest: int) -> str:
    """Return terms of up to `longest` digits whose running value never is negative."""
    text, value = "", 0
    for _ in range(rng.integers(1, 5)):
        operand = _operand(rng, longest)
        subtract = operand <= value and rng.random() < 0.5
        value += -operand if subtract else operand
        text += f"{'-' if subtract else '+' if text else ''}{operand}"
    return text


def _operand(rng: np.random.Generator, longest: int) -> int:
    length = int(rng.integers(1, longest + 1))
    kind = rng.random()
    if kind < 0.15:
        return int(5**length - 1)  # all fours: carries run through
    if kind < 0.3:
        return int(5**length)
    return int("".join(map(str, rng.integers(0, 10, length))))


def expressions(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    usual = [random_expression(rng, 8) for _ in range(count - 6)]
    return [
        *usual,
        "0",
        "0+0-0",
        "007+3",
        " 12 + 34 - 5 ",
        *(random_expression(rng, 90) for _ in "12"),
    ]


class Replay:
    """A game in Python that takes the page's actions and compares every state."""

    def __init__(self, expression: str, base: int = 5) -> None:
        self.game = Game(config_for(expression, base))
        self.frames = self.game.config.frames

    def check(self, step: list[int]) -> None:
        batch, frames = self.game.batch, self.frames
        scalars = batch.scalars[0]
        assert not self.game.over
        assert step[:frames] == batch.history[0].tolist()
        assert step[frames : frames + 2] == [scalars["symbol"], scalars["operation"]]
        assert step[frames + 2] == sum(1 << k for k in range(8) if self.game.masks[k])

    def step(self, step: list[int]) -> None:
        self.game.step(Action(step[-1]))

    def check_end(self, result: dict[str, Any]) -> None:
        assert result["columns"] == self.game.config.columns
        assert result["last"] == self.game.batch.history[0].tolist()
        assert result["end"] == self.game.end.name
        assert result["value"] == str(self.game.value)
        assert result["truth"] == str(self.game.truth)
        assert result["numeral"] == numeral(self.game.value, self.game.config.base)


def played(browser: Browser, texts: list[str], player: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = browser.run(
        f"playAll({json.dumps(texts)}, {json.dumps(player)})"
    )
    assert len(results) == len(texts)
    return results


def test_the_network_plays_in_the_page_as_in_python(browser: Browser, policy: AbacusPolicy) -> None:
    texts = expressions(EXPRESSIONS, seed=1)
    rows, masks, actions, shares = [], [], [], []
    for text, result in zip(texts, played(browser, texts, "network"), strict=True):
        replay = Replay(text)
        for step in result["steps"]:
            replay.check(step)
            rows.append(replay.game.batch.out.rows[0].copy())
            masks.append(replay.game.masks.copy())
            actions.append(step[-1])
            replay.step(step)
        replay.check_end(result)
        shares += result["extra"]
    assert len(actions) > 20_000
    with torch.no_grad():
        log_probs = policy.log_probs(torch.from_numpy(np.array(rows)), np.array(masks))
    assert log_probs.argmax(dim=1).tolist() == actions
    taken = log_probs.exp().numpy()[np.arange(len(actions)), actions]
    assert np.abs(taken - np.array(shares)).max() < 1e-4


def test_the_teacher_acts_in_the_page_as_in_python(browser: Browser) -> None:
    texts = expressions(60, seed=2)
    for text, result in zip(texts, played(browser, texts, "teacher"), strict=True):
        replay = Replay(text)
        for step in result["steps"]:
            replay.check(step)
            assert step[-1] == expert_actions(replay.game.batch)[0]
            replay.step(step)
        replay.check_end(result)
        assert replay.game.solved


@pytest.mark.parametrize(
    ("base", "some_ends"),
    [(5, {"EXPRESSION", "CAPACITY", "BUDGET"}), (10, {"EXPRESSION", "BUDGET"})],
)
def test_the_page_judges_mistakes_as_python_does(
    browser: Browser, base: int, some_ends: set[str]
) -> None:
    """Any actions, legal or not: rules, reasons, outcomes, ends and the teacher's next action."""
    rng = np.random.default_rng(3)
    games = [(text, *_random_walk(text, rng, base)) for text in expressions(150, seed=4)]
    results = browser.run(f"replayAll({json.dumps([game[:2] for game in games])}, {base}, 3)")
    ends, reasons = set(), ""
    for (text, actions, outcomes), result in zip(games, results, strict=True):
        replay = Replay(text, base)
        assert [step[-1] for step in result["steps"]] == actions
        for step in result["steps"]:
            replay.check(step)
            replay.step(step)
        replay.check_end(result)
        assert result["extra"] == outcomes
        ends.add(result["end"])
        reasons += " ".join(filter(None, map(str, outcomes)))
    assert ends >= some_ends
    missing = [name for name, text in SENTENCES.items() if text.split("{")[0] not in reasons]
    assert missing == []


def _random_walk(
    text: str, rng: np.random.Generator, base: int
) -> tuple[list[int], list[int | str]]:
    """Return the expert's actions with a share of random ones, and what Python says of them."""
    game, lost = Game(config_for(text, base)), rng.choice([0.02, 0.1, 0.3, 1.0])
    actions: list[int] = []
    outcomes: list[int | str] = []
    while not game.over and len(actions) < 400:
        action = int(rng.integers(8)) if rng.random() < lost else int(game.expert_action())
        outcomes.append(explanation(game.batch, Action(action)) if game.masks[action] else "")
        game.step(Action(action))
        judged = game.batch.outcomes[0]
        actions.append(action)
        outcomes.append(int(judged[SLIDE_OUTCOME]) + int(judged[SUBMIT_OUTCOME]))
        outcomes.append(-1 if game.over else int(game.expert_action()))
    return actions, outcomes


@pytest.mark.parametrize("name", ["onehot", "compact"])
def test_a_network_gives_the_logits_of_python(browser: Browser, name: str) -> None:
    torch.manual_seed(0)
    policy = new_policy(name, 5, 3)
    generator = np.random.default_rng(0)
    histories = generator.integers(frame_codes(5), size=(40, 3))
    symbols, operations = generator.integers(7, size=40), generator.integers(2, size=40)
    given = [
        {"history": history, "symbol": symbol, "operation": operation}
        for history, symbol, operation in zip(
            histories.tolist(), symbols.tolist(), operations.tolist(), strict=True
        )
    ]
    network, asked = json.dumps(network_data(policy)), json.dumps(given)
    shown = browser.run(
        f"(() => {{ const network = new Network({network});"
        f" return {asked}.map((each) => network.cachedLogits(each)); }})()"
    )
    rows = torch.from_numpy(observation_rows(5, histories, symbols, operations))
    with torch.no_grad():
        logits = policy.network.logits(policy.network.inputs(rows)).numpy()
    assert np.abs(logits).max() > 1e-3
    assert np.allclose(np.array(shown), logits, atol=1e-6)
