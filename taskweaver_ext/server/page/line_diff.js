/** What was changed between two texts, line by line. Pure. */

const MAX_LINES = 500;

/**
 * Compare two texts by their longest common part; texts too long for that are shown one after the
 * other.
 * @param {string[]} before
 * @param {string[]} after
 * @returns {[" " | "+" | "-", string][]}
 */
export function lineDiff(before, after) {
  if (before.length > MAX_LINES || after.length > MAX_LINES) {
    return [...before.map(removed), ...after.map(added)];
  }
  const common = commonLengths(before, after);
  /** @type {[" " | "+" | "-", string][]} */
  const rows = [];
  let [one, other] = [0, 0];
  while (one < before.length || other < after.length) {
    if (one < before.length && other < after.length && before[one] === after[other]) {
      rows.push([" ", before[one]]);
      one += 1;
      other += 1;
    } else if (other >= after.length || (one < before.length && common[one + 1][other] >= common[one][other + 1])) {
      rows.push(removed(before[one]));
      one += 1;
    } else {
      rows.push(added(after[other]));
      other += 1;
    }
  }
  return rows;
}

/**
 * How long the common part of what follows each pair of places is.
 * @param {string[]} before
 * @param {string[]} after
 */
function commonLengths(before, after) {
  const lengths = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let one = before.length - 1; one >= 0; one -= 1) {
    for (let other = after.length - 1; other >= 0; other -= 1) {
      lengths[one][other] =
        before[one] === after[other]
          ? lengths[one + 1][other + 1] + 1
          : Math.max(lengths[one + 1][other], lengths[one][other + 1]);
    }
  }
  return lengths;
}

/** @param {string} line @returns {["-", string]} */
function removed(line) {
  return ["-", line];
}

/** @param {string} line @returns {["+", string]} */
function added(line) {
  return ["+", line];
}
