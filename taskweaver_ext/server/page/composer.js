/** Where a person writes: a message to the agent, Python or shell; with earlier lines and Tab. */

import { CodeCompletion, insert } from "./code_completion.js";
import { button, make } from "./dom.js";

/** @typedef {"agent"|"python"|"shell"} Mode */
/** @typedef {import("./code_completion.js").Completion} Completion */

const MODES = /** @type {[Mode, string, string][]} */ ([
  ["agent", "Ask", "Ask the agent"],
  ["python", "Python", "Python to run"],
  ["shell", "Shell", "A shell command"],
]);
const PREFIXES = /** @type {Record<string, Mode>} */ ({ ">": "python", "!": "shell" });
const INDENT = "    ";

/** The field at the foot of the page. */
export class Composer {
  /** @type {Mode} */
  mode = "agent";
  /** Sends what was written; resolves once it is accepted. @type {(mode: Mode, text: string) => Promise<void>} */
  onSend = async () => {};
  /** Returns what fits at a place in Python code. @type {(mode: Mode, code: string, cursor: number) => Promise<Completion[]>} */
  onComplete = async () => [];
  /** @type {(files: File[]) => void} */
  onFiles = () => {};
  onStop = () => {};
  /** Leaves the field for the blocks. */
  onLeave = () => {};

  #field = make("textarea", "", { rows: 1, spellcheck: false });
  #modes = make("div", "modes", { role: "radiogroup", "aria-label": "What is written" });
  #send = button("Send", () => this.#submit(), "primary");
  #stop = button("Stop", () => this.onStop(), "");
  #completion = new CodeCompletion(this.#field, (code, cursor) => this.onComplete(this.mode, code, cursor));
  /** @type {string[]} */
  #history = [];
  #place = 0;

  /** @param {...HTMLElement} options  What else a person decides where they write. */
  constructor(...options) {
    const files = make("input", "", { type: "file", multiple: true, hidden: true });
    files.addEventListener("change", () => {
      this.onFiles([...(files.files ?? [])]);
      files.value = "";
    });
    this.element = make(
      "form",
      "composer",
      { "aria-label": "Write" },
      this.#field,
      this.#completion.element,
      make("div", "composer-bar", {}, this.#modes, button("+ files", () => files.click()), files, ...options, make("span", "spring"), this.#stop, this.#send),
    );
    this.element.addEventListener("submit", (event) => event.preventDefault());
    this.#field.addEventListener("keydown", (event) => this.#onKey(event));
    this.#field.addEventListener("input", () => this.#onInput());
    this.#stop.title = "Ctrl+. stops, too";
    this.setMode("agent");
    this.setBusy(false);
  }

  /** @param {Mode} mode */
  setMode(mode) {
    this.mode = mode;
    this.#modes.replaceChildren(
      ...MODES.map(([name, label]) => {
        const press = button(label, () => this.setMode(name), name === mode ? "mode chosen" : "mode");
        press.setAttribute("role", "radio");
        press.setAttribute("aria-checked", String(name === mode));
        return press;
      }),
    );
    const [, , words] = /** @type {[Mode, string, string]} */ (MODES.find(([name]) => name === mode));
    this.#field.placeholder = mode === "agent" ? "Ask, or switch to Python or shell" : words;
    this.#field.setAttribute("aria-label", words);
    this.#field.classList.toggle("mono", mode !== "agent");
    this.#field.focus();
  }

  /** @param {boolean} isBusy */
  setBusy(isBusy) {
    this.#stop.hidden = !isBusy;
    this.#send.hidden = isBusy;
  }

  /**
   * Put a text into the field, ready to be edited.
   * @param {Mode} mode
   * @param {string} text
   */
  fill(mode, text) {
    this.setMode(mode);
    this.#field.value = text;
    this.#grow();
    this.#field.focus();
  }

  focus() {
    this.#field.focus();
  }

  async #submit() {
    const text = this.#field.value.trimEnd();
    if (!text.trim()) return;
    const { mode } = this;
    await this.onSend(mode, text);
    this.#history.push(text);
    this.#place = this.#history.length;
    if (this.#field.value.trimEnd() === text) this.#field.value = "";
    this.#grow();
  }

  /** @param {KeyboardEvent} event */
  #onKey(event) {
    if (this.mode !== "agent" && this.#completion.onKey(event)) return;
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && this.#isWhole()) {
      event.preventDefault();
      if (!this.#send.hidden && !this.#send.disabled) this.#send.click();
    } else if (event.key === "Escape") {
      this.onLeave();
    } else if ((event.key === "ArrowUp" || event.key === "ArrowDown") && !this.#field.value.includes("\n")) {
      if (this.#recall(event.key === "ArrowUp" ? -1 : 1)) event.preventDefault();
    }
  }

  /** Whether Enter sends: a block of Python goes on until an empty line ends it. */
  #isWhole() {
    const { value, selectionEnd } = this.#field;
    if (this.mode !== "python" || selectionEnd < value.length) return true;
    const last = value.split("\n").at(-1) ?? "";
    if (/[:([{,\\]\s*$/.test(last) || (value.includes("\n") && /^\s+\S/.test(last))) {
      const indent = /^\s*/.exec(last)?.[0] ?? "";
      const deeper = last.trimEnd().endsWith(":") ? INDENT : "";
      setTimeout(() => insert(`${indent}${deeper}`)); // after the line break of the key itself
      return false;
    }
    return true;
  }

  #onInput() {
    const mode = PREFIXES[this.#field.value[0]];
    if (this.mode === "agent" && mode && this.#field.value.length === 1) {
      this.#field.value = "";
      this.setMode(mode);
    }
    this.#grow();
  }

  #grow() {
    this.#field.style.height = "auto";
    this.#field.style.height = `${Math.min(this.#field.scrollHeight, innerHeight / 3)}px`;
  }

  /** @param {number} step */
  #recall(step) {
    const place = this.#place + step;
    if (place < 0 || place > this.#history.length || this.#history.length === 0) return false;
    this.#place = place;
    this.#field.value = this.#history[place] ?? "";
    this.#grow();
    return true;
  }
}
