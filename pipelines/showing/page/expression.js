"use strict";

// What a visitor types, as operations on an abacus that is wide enough.

const EXAMPLE = "1234+567-89";
const MOST_DIGITS = 1000;
const MOST_CHARACTERS = 4000;
const USUAL_COLUMNS = 10;

/** {text, program, columns, truth}; throws an Error with one line for the visitor. */
function readExpression(typed, base) {
  const text = typed.replace(/[−–]/g, "-").trim();
  const tryThis = `Try ${EXAMPLE}.`;
  if (text === "") throw new Error(`Type an expression first. ${tryThis}`);
  if (!/^[+-]?\s*[0-9]+(\s*[+-]\s*[0-9]+)*$/.test(text)) {
    throw new Error(`Only whole numbers joined by + and - can be computed here. ${tryThis}`);
  }
  const terms = [...text.matchAll(/([+-]?)\s*([0-9]+)/g)];
  if (text.length > MOST_CHARACTERS || terms.some(([, , number]) => number.length > MOST_DIGITS)) {
    throw new Error(
      `That is too long for this page: at most ${MOST_DIGITS} digits a number and ` +
      `${MOST_CHARACTERS} characters in all. ${tryThis}`,
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

/** Digits of a BigInt, least significant first. */
function digitsOf(value, base) {
  return [...value.toString(base)].reverse().map(Number);
}

/** The value that digits, least significant first, show: a BigInt. */
function valueOf(digits, base) {
  // Blocks of digits that a plain number holds exactly keep long values fast.
  const block = 12, shift = BigInt(base) ** BigInt(block);
  let value = 0n;
  for (let start = Math.floor((digits.length - 1) / block) * block; start >= 0; start -= block) {
    let part = 0;
    for (let k = Math.min(start + block, digits.length) - 1; k >= start; k -= 1) {
      part = part * base + digits[k];
    }
    value = value * shift + BigInt(part);
  }
  return value;
}

/** Digits most significant first, without leading zeros. */
function numeralOf(digits) {
  let last = digits.length - 1;
  while (last > 0 && digits[last] === 0) last -= 1;
  return Array.from(digits.subarray(0, last + 1)).reverse().join("");
}

/** `1234567` as `1,234,567`. */
function withSeparators(text) {
  const groups = [];
  for (let end = text.length; end > 0; end -= 3) groups.unshift(text.slice(Math.max(0, end - 3), end));
  return groups.join(",");
}

function shortNumber(text, limit = 24) {
  const tail = Math.floor((limit - 1) / 2);
  return text.length <= limit ? text : `${text.slice(0, limit - 1 - tail)}…${text.slice(-tail)}`;
}
