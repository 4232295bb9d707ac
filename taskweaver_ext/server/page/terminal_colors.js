/**
 * Plain terminal colours in one normal form, and how they look in a page.
 *
 * A style is what stands between `ESC [` and `m`; empty for none. Pure but for `styleElement`.
 */

const RESET = "\x1b[0m";
const MAX_CACHED_STYLES = 1024;

/** What a code sets, named by the code that takes it back. */
const SLOTS = new Map([
  [1, 22], [2, 22], [3, 23], [4, 24], [21, 24], [7, 27], [9, 29], [53, 55], [58, 59],
  ...[...range(30, 39), ...range(90, 98)].map((code) => /** @type {const} */ ([code, 39])),
  ...[...range(40, 49), ...range(100, 108)].map((code) => /** @type {const} */ ([code, 49])),
]);
const ATTRIBUTE_CLASSES = new Map([
  ["1", "bold"], ["2", "dim"], ["3", "italic"], ["4", "underlined"], ["21", "underlined"],
  ["7", "inverse"], ["9", "struck"],
]);

/** @type {Map<string, string>} */
const restyled = new Map();

/**
 * The style in force once `parameters` (as in `ESC [ parameters m`) follow on `style`.
 * @param {string} style
 * @param {string} parameters
 */
export function restyle(style, parameters) {
  const key = `${style}|${parameters}`;
  const known = restyled.get(key);
  if (known !== undefined) return known;
  /** @type {Map<number, string>} */
  const inForce = new Map();
  const codes = `${style};${parameters}`.replaceAll(":", ";").split(";");
  for (let at = 0; at < codes.length; at += 1) {
    const number = Number(codes[at] || "0");
    if (number === 0) {
      inForce.clear();
    } else if (number === 38 || number === 48 || number === 58) {
      const count = { 5: 1, 2: 3 }[Number(codes[at + 1])] ?? 0;
      const values = codes.slice(at + 2, at + 2 + count).map((value) => Number(value || "0"));
      if (!count || values.length < count || values.some((value) => !(value < 256))) break;
      inForce.set(SLOTS.get(number) ?? number, [number, Number(codes[at + 1]), ...values].join(";"));
      at += 1 + count;
    } else if (SLOTS.has(number)) {
      inForce.set(/** @type {number} */ (SLOTS.get(number)), String(number));
    } else {
      inForce.delete(number);
    }
  }
  const result = [...inForce.values()].join(";");
  if (restyled.size >= MAX_CACHED_STYLES) restyled.clear();
  restyled.set(key, result);
  return result;
}

/**
 * Join runs of [style, text] to one line that closes what it opens.
 * @param {Iterable<[string, string]>} runs
 */
export function paint(runs) {
  let painted = "";
  let shown = "";
  for (const [style, text] of runs) {
    if (style !== shown) {
      painted += style ? (shown ? `\x1b[0;${style}m` : `\x1b[${style}m`) : RESET;
      shown = style;
    }
    painted += text;
  }
  return shown ? painted + RESET : painted;
}

/**
 * Take a painted line apart again.
 * @param {string} line
 * @returns {[string, string][]} Runs of [style, text].
 */
export function runsOf(line) {
  if (!line.includes("\x1b")) return line ? [["", line]] : [];
  /** @type {[string, string][]} */
  const runs = [];
  let style = "";
  for (const part of line.split(/(\x1b\[[0-9;]*m)/)) {
    if (part.startsWith("\x1b[")) style = restyle(style, part.slice(2, -1));
    else if (part) runs.push([style, part]);
  }
  return runs;
}

/**
 * The text of a painted line without its colours.
 * @param {string} line
 */
export function plainText(line) {
  return line.includes("\x1b") ? line.replace(/\x1b\[[0-9;]*m/g, "") : line;
}

/**
 * Give an element the look of a style: classes for what themes decide, a colour where the code has
 * named one exactly.
 * @param {HTMLElement} element
 * @param {string} style
 */
export function styleElement(element, style) {
  const codes = style.split(";");
  for (let at = 0; at < codes.length; at += 1) {
    const number = Number(codes[at]);
    const attribute = ATTRIBUTE_CLASSES.get(codes[at]);
    if (attribute) {
      element.classList.add(attribute);
    } else if (number === 38 || number === 48) {
      const isIndexed = codes[at + 1] === "5";
      const values = codes.slice(at + 2, at + (isIndexed ? 3 : 5)).map(Number);
      setColor(element, number === 38, isIndexed, values);
      at += isIndexed ? 2 : 4;
    } else if (number >= 30) {
      const isText = number < 40 || (number >= 90 && number < 100);
      const index = (number % 10) + (number >= 90 ? 8 : 0);
      element.classList.add(`${isText ? "fg" : "bg"}-${index}`);
    }
  }
}

/**
 * @param {HTMLElement} element
 * @param {boolean} isText
 * @param {boolean} isIndexed
 * @param {number[]} values
 */
function setColor(element, isText, isIndexed, values) {
  if (isIndexed && values[0] < 16) {
    element.classList.add(`${isText ? "fg" : "bg"}-${values[0]}`);
    return;
  }
  const [red, green, blue] = isIndexed ? indexedColor(values[0]) : values;
  element.style.setProperty(isText ? "color" : "background-color", `rgb(${red} ${green} ${blue})`);
}

/**
 * The colour cube and the greys of terminals with 256 colours.
 * @param {number} index
 */
function indexedColor(index) {
  if (index >= 232) return Array(3).fill(8 + 10 * (index - 232));
  const place = index - 16;
  return [Math.floor(place / 36), Math.floor(place / 6) % 6, place % 6].map((level) =>
    level ? 55 + 40 * level : 0,
  );
}

/**
 * @param {number} first
 * @param {number} end
 */
function range(first, end) {
  return Array.from({ length: end - first }, (_, at) => first + at);
}
