"use strict";

// Runs the page's own rules, expert and network; Python compares the returned games.

/** Play each expression; a step is a list of frame codes, symbol, operation, legal actions as bits, action. */
function playAll(expressions, player) {
  return expressions.map((text) => {
    const [network] = app.players, { base, frames } = network;
    const plan = readExpression(text, base);
    const abacus = new Abacus({ base, frames, columns: plan.columns, program: plan.program });
    const steps = [], shares = [];
    while (!abacus.over) {
      const probabilities = player === "network" ? network.probabilities(abacus) : null;
      const action = probabilities ? mostProbable(probabilities) : expertAction(abacus);
      steps.push(seen(abacus, action));
      if (probabilities) shares.push(probabilities[action]);
      abacus.step(action);
    }
    return summary(plan, abacus, steps, shares);
  });
}

/** The same for given actions, with explanations, outcomes and the expert's next action. */
function replayAll(games, base, frames) {
  return games.map(([text, actions]) => {
    const plan = readExpression(text, base);
    const abacus = new Abacus({ base, frames, columns: plan.columns, program: plan.program });
    const steps = [], outcomes = [];
    for (const action of actions) {
      steps.push(seen(abacus, action));
      outcomes.push(abacus.isLegal(action) ? explanationOf(abacus, action) : "");
      outcomes.push(abacus.step(action), abacus.over ? -1 : expertAction(abacus));
    }
    return summary(plan, abacus, steps, outcomes);
  });
}

function seen(abacus, action) {
  const legal = abacus.legalActions().reduce((bits, is, k) => bits | (is << k), 0);
  return [...abacus.history, abacus.symbol, abacus.operation, legal, action];
}

function summary(plan, abacus, steps, extra) {
  return {
    columns: plan.columns, steps, extra, end: abacus.end, last: Array.from(abacus.history),
    value: valueOf(abacus.digits, abacus.base).toString(), truth: plan.truth.toString(),
    numeral: numeralOf(abacus.digits),
  };
}
