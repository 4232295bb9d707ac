/** The variables of the kernel, also while it is busy, and what it is at. */

import { ask, sessionPath } from "./api.js";
import { make, setText } from "./dom.js";

const BUSY_MS = 2000;

/** Looks when something has ended, and now and then while something runs. */
export class VariablesPanel {
  #sessionId;
  #rows = make("tbody");
  #line = make("p", "quiet running-line");
  #isBusy = false;
  #timer = 0;

  /** @param {string} sessionId */
  constructor(sessionId) {
    this.#sessionId = sessionId;
    this.element = make("section", "variables", { "aria-label": "Variables" }, make("h2", "", { textContent: "Variables" }), make("table", "", {}, this.#rows), this.#line);
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
      const seen = await ask("GET", sessionPath(this.#sessionId, "/variables"));
      this.#rows.replaceChildren(...(seen.variables ?? []).map(row));
      const line = seen.running?.stack.at(-1);
      setText(this.#line, line ? `line ${line.line}: ${line.text}` : "");
    } catch {
      // There is no kernel yet, or no server; both are said elsewhere.
    }
  }
}

/** @param {{ name: string, type_name: string, value: string }} variable */
function row({ name, type_name: type, value }) {
  return make("tr", "", { title: value }, make("th", "", { textContent: name, scope: "row" }), make("td", "quiet", { textContent: type }), make("td", "value", { textContent: value }));
}
