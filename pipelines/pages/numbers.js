// Numbers as digits, least significant first, and as text.

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
  return Array.from(digits.slice(0, last + 1)).reverse().join("");
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
