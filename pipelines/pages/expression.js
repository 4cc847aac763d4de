// An expression as typed, parsed into operations and an abacus that is wide enough.

/** Return {text, program, columns, truth}, or throw an Error with a message for the visitor. */
function readExpression(typed, base) {
  const text = typed.replace(/[−–]/g, "-").trim();
  const tryThis = `Try ${EXAMPLE}.`;
  if (text === "") throw new Error(`Type an expression first. ${tryThis}`);
  if (!/^[+-]?\s*[0-9]+(\s*[+-]\s*[0-9]+)*$/.test(text)) {
    throw new Error(`Only whole numbers joined by + and - can be computed here. ${tryThis}`);
  }
  const terms = [...text.matchAll(/([+-]?)\s*([0-9]+)/g)];
  if (text.length > MAX_CHARACTERS || terms.some(([, , number]) => number.length > MAX_DIGITS)) {
    throw new Error(
      `That is too long for this page: at most ${MAX_DIGITS} digits per number and ` +
      `${MAX_CHARACTERS} characters in all. ${tryThis}`,
    );
  }
  return planFor(text.replace(/\s+/g, ""), terms, base, tryThis);
}

function planFor(text, terms, base, tryThis) {
  let value = 0n, columns = USUAL_COLUMNS;
  const program = terms.map(([, sign, number]) => {
    const operand = BigInt(number), subtract = sign === "-";
    value += subtract ? -operand : operand;
    if (value < 0n) {
      throw new Error(`That goes below zero at -${shortNumber(number)}, which an abacus cannot show. ${tryThis}`);
    }
    const digits = digitsOf(operand, base);
    columns = Math.max(columns, digits.length + 1, digitsOf(value, base).length);
    return { subtract, digits, number };
  });
  return { text, program, columns, truth: value };
}
