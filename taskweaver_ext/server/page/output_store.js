/**
 * The lines of one output, however many: the last ones at hand, older ones packed, and of an
 * output beyond all bounds the middle left out, which is said (the record has it).
 */

import { LineFolder } from "./terminal_text.js";
import { plainText } from "./terminal_colors.js";

export const CHUNK_LINES = 1000;
/** How many characters of one output are kept unpacked; one character is one byte, mostly. */
const MAX_PLAIN_CHARS = 4_000_000;
/** How many packed bytes of one output are kept. */
const MAX_PACKED_BYTES = 24_000_000;
/** The first so many chunks always stay: a reader begins at the top. */
const HEAD_CHUNKS = 10;
const MAX_UNPACKED_CHUNKS = 16;
/** Stands before lines of stderr in a chunk; the folder lets no such character through. */
const STDERR_MARK = "\x02";

/** @typedef {"stdout" | "stderr"} Stream */
/** @typedef {{ stream: Stream, line: string }} Row */

/**
 * @typedef {object} Chunk  So many complete lines, in one of three states.
 * @property {string | null} text  All lines, while they are at hand.
 * @property {Promise<Uint8Array> | null} packed  The same, packed.
 * @property {number} packedBytes
 * @property {boolean} isLeftOut  Whether they are in the record alone.
 */

/** Folds what code writes into lines, and keeps them in bounded memory. */
export class OutputStore {
  /** How many lines are complete. */
  lineCount = 0;
  /** How many of them are in the record alone. */
  leftOutCount = 0;
  /** Called when rows have changed, or came back into memory. */
  onChange = () => {};

  /** @type {Record<Stream, LineFolder>} */
  #folders = { stdout: new LineFolder(), stderr: new LineFolder() };
  /** @type {Chunk[]} */
  #chunks = [];
  /** @type {string[]} */
  #last = [];
  #plainChars = 0;
  #packedBytes = 0;
  #firstPlain = 0;
  #firstKept = HEAD_CHUNKS;
  /** @type {Map<number, string[]>} */
  #unpacked = new Map();
  /** @type {Set<number>} */
  #unpacking = new Set();

  /** How many rows are to be seen: complete lines, then those that may still change. */
  get rowCount() {
    return this.lineCount + this.openRows.length;
  }

  /** The rows that may still change, those of stderr last. @returns {Row[]} */
  get openRows() {
    return /** @type {Stream[]} */ (["stdout", "stderr"]).flatMap((stream) =>
      this.#folders[stream].openLines.map((line) => ({ stream, line })),
    );
  }

  /**
   * Take the next piece of output.
   * @param {Stream} stream
   * @param {string} text
   */
  feed(stream, text) {
    this.#append(stream, this.#folders[stream].feed(text));
    this.onChange();
  }

  /** The code has ended, or was cleared: no line changes any more. */
  end() {
    for (const stream of /** @type {Stream[]} */ (["stdout", "stderr"])) {
      this.#append(stream, this.#folders[stream].close());
    }
    this.onChange();
  }

  /** Forget everything, as `clear_output` does. */
  clear() {
    this.#folders = { stdout: new LineFolder(), stderr: new LineFolder() };
    this.#chunks = [];
    this.#last = [];
    this.#unpacked.clear();
    this.#plainChars = this.#packedBytes = this.#firstPlain = 0;
    this.lineCount = this.leftOutCount = 0;
    this.#firstKept = HEAD_CHUNKS;
    this.onChange();
  }

  /**
   * The rows from `first` up to `end`; null for one that is on its way (`onChange` tells) or in
   * the record alone.
   * @param {number} first
   * @param {number} end
   * @returns {(Row | null)[]}
   */
  rows(first, end) {
    /** @type {(Row | null)[]} */
    const rows = [];
    const open = this.openRows;
    for (let at = first; at < Math.min(end, this.lineCount + open.length); at += 1) {
      if (at >= this.lineCount) {
        rows.push(open[at - this.lineCount]);
        continue;
      }
      const line = this.#lines(Math.floor(at / CHUNK_LINES))?.[at % CHUNK_LINES];
      rows.push(line === undefined ? null : rowOf(line));
    }
    return rows;
  }

  /**
   * Find the rows that hold a text, oldest first; those in the record alone are not looked at.
   * @param {string} text
   * @param {AbortSignal} signal
   * @returns {AsyncGenerator<number>}
   */
  async *find(text, signal) {
    const wanted = text.toLowerCase();
    const matchesCase = wanted !== text;
    for (let index = 0; index * CHUNK_LINES < this.lineCount && !signal.aborted; index += 1) {
      const lines = await this.#linesLater(index);
      for (let at = 0; at < lines.length && !signal.aborted; at += 1) {
        const plain = plainText(lines[at]);
        const isFound = matchesCase ? plain.includes(text) : plain.toLowerCase().includes(wanted);
        if (isFound) yield index * CHUNK_LINES + at;
      }
    }
  }

  /**
   * All kept lines as plain text, for the clipboard.
   * @returns {Promise<string>}
   */
  async text() {
    const parts = [];
    for (let index = 0; index * CHUNK_LINES < this.lineCount; index += 1) {
      const lines = await this.#linesLater(index);
      parts.push(...lines.map((line) => plainText(rowOf(line).line)));
    }
    return [...parts, ...this.openRows.map((row) => plainText(row.line))].join("\n");
  }

  /**
   * @param {Stream} stream
   * @param {string[]} lines
   */
  #append(stream, lines) {
    for (const line of lines) {
      this.#last.push(stream === "stderr" ? STDERR_MARK + line : line);
      this.lineCount += 1;
      if (this.#last.length === CHUNK_LINES) this.#seal();
    }
  }

  #seal() {
    const text = this.#last.join("\n");
    this.#last = [];
    this.#chunks.push({ text, packed: null, packedBytes: 0, isLeftOut: false });
    this.#plainChars += text.length;
    while (this.#plainChars > MAX_PLAIN_CHARS && this.#firstPlain < this.#chunks.length - 1) {
      this.#pack(this.#chunks[this.#firstPlain]);
      this.#firstPlain += 1;
    }
  }

  /** @param {Chunk} chunk */
  #pack(chunk) {
    const text = /** @type {string} */ (chunk.text);
    this.#plainChars -= text.length;
    chunk.packed = packed(text);
    void chunk.packed.then((bytes) => {
      chunk.text = null;
      chunk.packedBytes = bytes.length;
      this.#packedBytes += bytes.length;
      this.#leaveOutMiddle();
    });
  }

  #leaveOutMiddle() {
    while (this.#packedBytes > MAX_PACKED_BYTES) {
      const chunk = this.#chunks[this.#firstKept];
      if (chunk === undefined || chunk.text !== null) return;
      this.#packedBytes -= chunk.packedBytes;
      chunk.packed = null;
      chunk.isLeftOut = true;
      this.leftOutCount += CHUNK_LINES;
      this.#firstKept += 1;
    }
  }

  /**
   * The lines of a chunk if they are at hand; else they are fetched, and `onChange` is called.
   * @param {number} index
   * @returns {string[] | undefined}
   */
  #lines(index) {
    if (index === this.#chunks.length) return this.#last;
    const chunk = this.#chunks[index];
    const known = this.#unpacked.get(index);
    if (known) return known;
    if (chunk.text !== null) return this.#keepAtHand(index, chunk.text);
    if (!chunk.isLeftOut && !this.#unpacking.has(index)) {
      this.#unpacking.add(index);
      void this.#linesLater(index).then(() => {
        this.#unpacking.delete(index);
        this.onChange();
      });
    }
    return undefined;
  }

  /**
   * @param {number} index
   * @returns {Promise<string[]>}
   */
  async #linesLater(index) {
    if (index === this.#chunks.length) return this.#last;
    const chunk = this.#chunks[index];
    if (chunk.text !== null) return chunk.text.split("\n");
    if (chunk.packed === null) return [];
    return this.#keepAtHand(index, await unpacked(await chunk.packed));
  }

  /**
   * @param {number} index
   * @param {string} text
   */
  #keepAtHand(index, text) {
    const lines = text.split("\n");
    this.#unpacked.set(index, lines);
    if (this.#unpacked.size > MAX_UNPACKED_CHUNKS) {
      this.#unpacked.delete(/** @type {number} */ (this.#unpacked.keys().next().value));
    }
    return lines;
  }
}

/**
 * @param {string} line
 * @returns {Row}
 */
function rowOf(line) {
  return line[0] === STDERR_MARK
    ? { stream: "stderr", line: line.slice(1) }
    : { stream: "stdout", line };
}

/** @param {string} text */
async function packed(text) {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {Uint8Array} bytes */
async function unpacked(bytes) {
  const blob = new Blob([/** @type {BlobPart} */ (bytes)]);
  const stream = blob.stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}
