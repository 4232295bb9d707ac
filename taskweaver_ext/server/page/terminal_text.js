/**
 * What running code writes, folded into lines as a terminal would be left with them.
 *
 * Pure, in linear time, and the same wherever the text was cut into pieces. Carriage returns,
 * backspaces, erasing and small moves up are applied, so that progress bars are one line each;
 * everything else that drives a terminal is removed, but for plain colours. The same rules as in
 * `taskweaver_ext/text/terminal.py`.
 */

import { paint, restyle } from "./terminal_colors.js";

const MAX_LINE_CHARS = 65_536;
const MAX_OPEN_LINES = 12;
const MAX_HELD = 65_536;
const TAB_WIDTH = 8;

const SEQUENCE = new RegExp(
  [
    "(?<string>\\x1b[\\]PX^_][^\\x07\\n\\r\\x18\\x1a\\x1b\\x9c]*(?:\\x07|\\x1b\\\\|\\x9c|(?=[\\n\\r\\x18\\x1a\\x1b])))",
    "(?:\\x1b\\[|\\x9b)(?<parameters>[0-?]{0,128})[\\x20-/]{0,16}(?<kind>[@-~])",
    "(?<escape>\\x1b[\\x20-/]{0,16}[0-Z\\\\^-~])",
    "(?<control>[\\x00-\\x07\\x0b\\x0c\\x0e-\\x1a\\x1c-\\x1f\\x7f-\\x9f])",
    "(?<broken>\\x1b)",
  ].join("|"),
  "g",
);
const UNFINISHED =
  /(?:\x1b|(?:\x1b\[|\x9b)[0-?]{0,128}[\x20-/]{0,16}|\x1b[\]PX^_][^\x07\n\r\x18\x1a\x1b\x9c]*)$/;
const DRIVES_TERMINAL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/;
/** Without a width, or reordering: what carries or disguises words that nobody sees. */
const HIDDEN =
  /[\u180e\u200b\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff\u{e0000}-\u{e0fff}]|(?<=\p{M}{6})\p{M}/gu;
const BEYOND_LATIN = /[^\x00-\u02ff]/;
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f900}-\u{1faff}\u{20000}-\u{3fffd}]/u;
const WITHOUT_WIDTH = /[\p{Mn}\p{Me}\p{Cf}]/u;

/** One line that may still change: it grows, and has cells once something is written over it. */
class OpenLine {
  isUsed = false;
  isRewritten = false;
  column = 0;
  /** @type {[string, string][]} */
  #runs = [];
  #length = 0;
  /** @type {string[]} */
  #cells = [];
  /** @type {string[]} */
  #styles = [];
  #isReturned = false;

  get text() {
    return paint(this.isRewritten ? this.#cellRuns() : this.#runs);
  }

  /** Whether nothing has been done to it. */
  get isFresh() {
    return !this.isUsed && !this.isRewritten && !this.#isReturned;
  }

  /**
   * @param {string} text
   * @param {string} style
   */
  write(text, style) {
    if (!text) return;
    this.isUsed = true;
    if (this.isRewritten || this.#isReturned) {
      this.spread();
      for (const character of text) this.#put(character, style);
      return;
    }
    const piece = text.slice(0, Math.max(0, MAX_LINE_CHARS - this.#length));
    this.#length += text.length;
    const last = this.#runs.at(-1);
    if (last && last[0] === style) last[1] += piece;
    else if (piece) this.#runs.push([style, piece]);
  }

  returnToStart() {
    this.#isReturned = true;
  }

  /** @param {number} cells */
  moveBack(cells) {
    this.spread();
    this.column = Math.max(0, this.column - cells);
  }

  /** @param {boolean} isWhole */
  erase(isWhole) {
    this.#isReturned ||= isWhole;
    if (!this.isRewritten && !this.#isReturned) return;
    this.spread();
    this.#cells.length = Math.min(this.#cells.length, this.column);
    this.#styles.length = this.#cells.length;
  }

  /** Lay the line out in cells, the cursor where the next character goes. */
  spread() {
    if (!this.isRewritten) {
      this.isRewritten = true;
      for (const [style, text] of this.#runs) {
        for (const character of text) this.#put(character, style);
      }
      this.#runs = [];
    }
    if (this.#isReturned) this.column = 0;
    this.#isReturned = false;
  }

  get width() {
    return this.#cells.length;
  }

  finish() {
    while (this.isRewritten && this.#cells.at(-1) === " " && !this.#styles.at(-1)) {
      this.#cells.pop();
      this.#styles.pop();
    }
    return this.text;
  }

  /**
   * @param {string} character
   * @param {string} style
   */
  #put(character, style) {
    if (this.column >= MAX_LINE_CHARS) return;
    if (character === "\t") {
      this.column += TAB_WIDTH - (this.column % TAB_WIDTH);
      return;
    }
    if (this.column > 0 && character > "\u02ff" && WITHOUT_WIDTH.test(character)) {
      const base = this.#cells[this.column - 1] === "" ? this.column - 2 : this.column - 1;
      if (this.#cells[base] !== undefined) this.#cells[base] += character;
      return;
    }
    const isWide = character > "\u02ff" && WIDE.test(character);
    while (this.#cells.length < this.column) {
      this.#cells.push(" ");
      this.#styles.push("");
    }
    if (this.#cells[this.column] === "") this.#cells[this.column - 1] = " ";
    const end = this.column + (isWide ? 2 : 1);
    if (this.#cells[end] === "") this.#cells[end] = " ";
    this.#cells[this.column] = character;
    this.#styles[this.column] = style;
    if (isWide) {
      this.#cells[this.column + 1] = "";
      this.#styles[this.column + 1] = style;
    }
    this.column = end;
  }

  /** @returns {[string, string][]} */
  #cellRuns() {
    /** @type {[string, string][]} */
    const runs = [];
    this.#cells.forEach((cell, at) => {
      const last = runs.at(-1);
      if (last && last[0] === this.#styles[at]) last[1] += cell;
      else runs.push([this.#styles[at], cell]);
    });
    return runs;
  }
}

/** Takes output as it comes, and releases lines once they are final. */
export class LineFolder {
  #held = "";
  #style = "";
  #open = [new OpenLine()];
  #current = 0;
  #reach = 0;

  /** What is to be seen of the lines that may still change, complete or begun. */
  get openLines() {
    const lines = this.#open.slice(0, -1).filter((line) => line.isUsed);
    const texts = lines.map((line) => line.text);
    const last = this.#open[this.#open.length - 1].text;
    return last ? [...texts, last] : texts;
  }

  /**
   * Take the next piece of output.
   * @param {string} text
   * @returns {string[]} The lines it completed, oldest first; each closes the colours it opens.
   */
  feed(text) {
    /** @type {string[]} */
    const lines = [];
    if (!this.#held && !DRIVES_TERMINAL.test(text)) {
      this.#writeText(shown(text), lines);
      return lines;
    }
    text = this.#held + text;
    const unfinished = UNFINISHED.exec(text);
    // The start of a sequence, or half of `\r\n`, may go on in the next piece; not for ever.
    const heldFrom = unfinished ? unfinished.index : text.endsWith("\r") ? text.length - 1 : text.length;
    const isTooLong = text.length - heldFrom > MAX_HELD;
    this.#held = isTooLong ? "" : text.slice(heldFrom);
    text = text.slice(0, heldFrom);
    let position = 0;
    for (const sequence of text.matchAll(SEQUENCE)) {
      this.#fold(text.slice(position, sequence.index), lines);
      position = sequence.index + sequence[0].length;
      if (sequence.groups?.kind) this.#obey(sequence.groups.kind, sequence.groups.parameters);
    }
    this.#fold(text.slice(position), lines);
    return lines;
  }

  /** The lines that were not final; the code has ended. */
  close() {
    if (this.#held === "\r") this.#open[this.#current].returnToStart();
    this.#held = "";
    const lines = this.#release(this.#open.length - 1);
    const last = this.#open[0].finish();
    this.#open = [new OpenLine()];
    this.#style = "";
    return last ? [...lines, last] : lines;
  }

  /**
   * @param {string} text
   * @param {string[]} lines
   */
  #fold(text, lines) {
    if (!text) return;
    text = shown(text.replaceAll("\r\n", "\n"));
    if (!text.includes("\r") && !text.includes("\b")) {
      this.#writeText(text, lines);
      return;
    }
    for (const [token] of text.matchAll(/[^\r\b]+|\r+|[\b]+/g)) {
      if (token[0] === "\r") this.#open[this.#current].returnToStart();
      else if (token[0] === "\b") this.#open[this.#current].moveBack(token.length);
      else this.#writeText(token, lines);
    }
  }

  /**
   * @param {string} text
   * @param {string[]} lines
   */
  #writeText(text, lines) {
    const parts = text.split("\n");
    const last = /** @type {string} */ (parts.pop());
    for (const part of parts) {
      const isPlain = !this.#style && this.#open.length === 1 && !this.#reach;
      if (isPlain && this.#open[0].isFresh && part.length <= MAX_LINE_CHARS) {
        lines.push(part);
        continue;
      }
      this.#open[this.#current].write(part, this.#style);
      this.#endLine(lines);
    }
    this.#open[this.#current].write(last, this.#style);
  }

  /**
   * @param {string} kind
   * @param {string} parameters
   */
  #obey(kind, parameters) {
    const line = this.#open[this.#current];
    const count = Math.min(Math.max(Number(parameters) || 1, 1), 9999);
    if (kind === "m" && /^[0-9;:]*$/.test(parameters)) {
      this.#style = restyle(this.#style, parameters);
    } else if (kind === "K" && (parameters === "" || parameters === "0" || parameters === "2")) {
      line.erase(parameters === "2");
    } else if (kind === "G" && (parameters === "" || parameters === "0" || parameters === "1")) {
      line.returnToStart();
    } else if (kind === "J" && (parameters === "" || parameters === "0")) {
      line.erase(false);
      this.#open.length = this.#current + 1;
    } else if ("ABEF".includes(kind) && /^[0-9]{0,4}$/.test(parameters)) {
      if (kind === "E" || kind === "F") line.returnToStart();
      this.#move(kind === "A" || kind === "F" ? -count : count);
    }
  }

  /**
   * Go to the start of the next line, and release those that are final.
   * @param {string[]} lines
   */
  #endLine(lines) {
    this.#open[this.#current].isUsed = true;
    this.#current += 1;
    if (this.#current < this.#open.length) {
      this.#open[this.#current].returnToStart();
      return;
    }
    this.#open.push(new OpenLine());
    let bars = 0;
    while (bars < this.#open.length - 1 && this.#open[this.#open.length - 2 - bars].isRewritten) {
      bars += 1;
    }
    const kept = Math.min(MAX_OPEN_LINES, Math.max(bars, this.#reach));
    lines.push(...this.#release(this.#open.length - 1 - kept));
  }

  /** @param {number} count */
  #release(count) {
    const released = this.#open.splice(0, Math.max(0, count));
    this.#current = Math.max(0, this.#current - released.length);
    return released.filter((line) => line.isUsed).map((line) => line.finish());
  }

  /**
   * Go up or down; not below the last line, nor far up.
   * @param {number} rows
   */
  #move(rows) {
    const missing = Math.min(-(this.#current + rows), MAX_OPEN_LINES + 1 - this.#open.length);
    for (let added = 0; added < missing; added += 1) {
      this.#open.unshift(new OpenLine()); // it was released: what is written there comes once more
      this.#current += 1;
    }
    this.#open[this.#current].spread();
    const { column } = this.#open[this.#current];
    this.#current = Math.max(0, Math.min(this.#current + rows, this.#open.length - 1));
    const line = this.#open[this.#current];
    line.spread();
    line.column = Math.min(column, line.width);
    this.#reach = Math.max(this.#reach, this.#open.length - 1 - this.#current);
  }
}

/**
 * Show characters that hide by their numbers.
 * @param {string} text
 */
function shown(text) {
  if (!BEYOND_LATIN.test(text)) return text;
  return text.replace(HIDDEN, (character) => {
    const number = /** @type {number} */ (character.codePointAt(0)).toString(16).toUpperCase();
    return `<U+${number.padStart(4, "0")}>`;
  });
}
