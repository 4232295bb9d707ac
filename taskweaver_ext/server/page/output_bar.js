/** What can be done with a long output: search it, and have all of it. */

import { button, make, setText } from "./dom.js";

/** An output with fewer lines needs no bar. */
const MIN_LINES = 50;

/** @typedef {import("./output_view.js").OutputView} OutputView */
/** @typedef {import("./output_store.js").OutputStore} OutputStore */
/** @typedef {{ store: OutputStore, view: OutputView }} SearchedOutput */

/** The foot of a cell's outputs. */
export class OutputBar {
  #outputs;
  #count = make("span", "quiet");
  #field = make("input", "", { type: "search", placeholder: "Find in output", "aria-label": "Find in output" });
  #found = make("span", "quiet", { role: "status" });
  #matches = /** @type {AsyncGenerator<[SearchedOutput, number]> | null} */ (null);
  #wanted = "";
  #stop = new AbortController();

  /**
   * @param {() => SearchedOutput[]} outputs  The outputs as they are now, oldest first.
   * @param {HTMLElement[]} links  To the whole output.
   * @param {(text: string) => Promise<void>} copy
   */
  constructor(outputs, links, copy) {
    this.#outputs = outputs;
    const form = make("form", "output-search", {}, this.#field, button("Next", () => this.#next()), this.#found);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#next();
    });
    this.element = make("div", "output-bar", { hidden: true }, this.#count, ...links, button("Copy output", async () => copy(await this.#text())), make("span", "spring"), form);
  }

  update() {
    const outputs = this.#outputs();
    const lines = outputs.reduce((sum, { store }) => sum + store.lineCount, 0);
    const leftOut = outputs.reduce((sum, { store }) => sum + store.leftOutCount, 0);
    this.element.hidden = lines < MIN_LINES;
    const kept = leftOut ? `, ${leftOut.toLocaleString()} of them in the whole output alone` : "";
    setText(this.#count, `${lines.toLocaleString()} lines${kept}`);
  }

  async #text() {
    const texts = await Promise.all(this.#outputs().map(({ store }) => store.text()));
    return texts.join("\n");
  }

  /** Bring the next match into sight; after the last one, the first. */
  async #next() {
    const wanted = this.#field.value;
    if (!wanted) return;
    if (wanted !== this.#wanted || !this.#matches) {
      this.#stop.abort();
      this.#stop = new AbortController();
      this.#wanted = wanted;
      this.#matches = this.#search(wanted, this.#stop.signal);
    }
    setText(this.#found, "searching…");
    const { value, done } = await this.#matches.next();
    if (done || !value) {
      this.#matches = null;
      setText(this.#found, "no more matches");
      return;
    }
    const [output, row] = value;
    output.view.show(row);
    setText(this.#found, `line ${(row + 1).toLocaleString()}`);
  }

  /**
   * @param {string} wanted
   * @param {AbortSignal} signal
   * @returns {AsyncGenerator<[SearchedOutput, number]>}
   */
  async *#search(wanted, signal) {
    for (const output of this.#outputs()) {
      for await (const row of output.store.find(wanted, signal)) yield [output, row];
    }
  }
}
