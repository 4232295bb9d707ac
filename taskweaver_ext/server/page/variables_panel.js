/** The kernel at this moment, also while it is busy: its variables, its memory, the line it is at. */

import { ask, sessionPath } from "./api.js";
import { make, setText } from "./dom.js";

const BUSY_MS = 2000;
const KERNEL_WORDS = /** @type {Record<string, string>} */ ({
  put_away: "No kernel is at work; the next run starts one.",
  starting: "The kernel starts.",
  dead: "The kernel has died; the next run starts a fresh one.",
});

/** @typedef {{ name: string, type_name: string, kind: string, size: string, value: string }} Variable */

/** Looks when something has ended, and now and then while something runs. */
export class VariablesPanel {
  /** Called with the bytes that the kernel holds, where that is known. @type {(bytes: number | null) => void} */
  onMemory = () => {};

  #sessionId;
  #rows = make("tbody");
  #otherRows = make("tbody");
  #others = make("details", "quiet", { hidden: true }, make("summary"), make("table", "", { "aria-label": "Functions, classes and modules" }, this.#otherRows));
  #line = make("p", "quiet running-line");
  #isBusy = false;
  #timer = 0;

  /** @param {string} sessionId */
  constructor(sessionId) {
    this.#sessionId = sessionId;
    const table = make("table", "", { "aria-label": "Variables" }, this.#rows);
    this.element = make("section", "variables", { "aria-label": "Variables" }, make("h2", "", { textContent: "Variables" }), table, this.#others, this.#line);
    void this.refresh();
  }

  /** @param {boolean} isBusy */
  setBusy(isBusy) {
    if (isBusy === this.#isBusy) return;
    this.#isBusy = isBusy;
    clearInterval(this.#timer);
    if (isBusy) this.#timer = setInterval(() => void this.refresh(), BUSY_MS);
    else void this.refresh();
  }

  close() {
    clearInterval(this.#timer);
  }

  async refresh() {
    if (document.hidden) return;
    try {
      this.#draw(await ask("GET", sessionPath(this.#sessionId, "/variables")));
    } catch {
      // There is no server; the connection says so.
    }
  }

  /** @param {any} seen  A `KernelPeek`. */
  #draw(seen) {
    /** @type {Variable[]} */
    const variables = [...(seen.variables ?? [])].reverse();
    const values = variables.filter(({ kind }) => kind === "instance");
    const others = variables.filter(({ kind }) => kind !== "instance");
    this.#rows.replaceChildren(...values.map(row));
    this.#otherRows.replaceChildren(...others.map(row));
    this.#others.hidden = others.length === 0;
    setText(/** @type {Element} */ (this.#others.firstElementChild), `${others.length} functions, classes and modules`);
    const line = seen.running?.stack.at(-1);
    setText(this.#line, line ? `line ${line.line}: ${line.text}` : (KERNEL_WORDS[seen.state] ?? ""));
    this.onMemory(seen.memory_bytes ?? null);
  }
}

/** The latest comes first. @param {Variable} variable */
function row({ name, type_name: type, size, value }) {
  const about = make("td", "quiet", { textContent: size ? `${type} · ${size}` : type });
  return make("tr", "", { title: value }, make("th", "", { textContent: name, scope: "row" }), about, make("td", "value", { textContent: value }));
}
