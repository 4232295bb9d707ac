/** Completion in a field of code: Tab asks, a menu offers, keys or a press choose. */

import { make } from "./dom.js";

/** @typedef {{ text: string, start: number, end: number }} Completion */
/** @typedef {(code: string, cursor: number) => Promise<Completion[]>} Complete  What fits at a place. */

const INDENT = "    ";
const MAX_OFFERED = 50;
let menuCount = 0;

/** Offers what fits in one field. */
export class CodeCompletion {
  #field;
  #complete;
  #menu;
  /** @type {Completion[]} */
  #offered = [];
  #chosen = 0;
  #count = 0;

  /**
   * @param {HTMLTextAreaElement} field
   * @param {Complete} complete
   */
  constructor(field, complete) {
    this.#field = field;
    this.#complete = complete;
    this.#menu = this.element = make("ul", "completions", { id: `completions-${(menuCount += 1)}`, role: "listbox", hidden: true, "aria-label": "Completions" });
    field.setAttribute("aria-controls", this.element.id);
    field.addEventListener("input", () => this.#close());
    field.addEventListener("blur", () => this.#close());
  }

  /**
   * Do what a key means here; says whether it meant something.
   * @param {KeyboardEvent} event
   */
  onKey(event) {
    if (!this.#menu.hidden && this.#onMenuKey(event)) return true;
    if (event.key !== "Tab" || event.shiftKey || !this.#field.value.trim()) return false;
    event.preventDefault();
    void this.#ask();
    return true;
  }

  async #ask() {
    const count = (this.#count += 1);
    const { value, selectionEnd } = this.#field;
    const found = await this.#complete(value, selectionEnd);
    if (count !== this.#count || this.#field.value !== value) return;
    if (found.length === 0) insert(INDENT);
    else if (found.length === 1) this.#take(found[0]);
    else this.#offer(found);
  }

  /** @param {Completion[]} found */
  #offer(found) {
    this.#offered = found.slice(0, MAX_OFFERED);
    const rows = this.#offered.map((one, at) => {
      const row = make("li", "", { id: `${this.#menu.id}-${at}`, role: "option", textContent: one.text });
      // A press that took the focus would close the menu before it chose.
      row.addEventListener("mousedown", (event) => event.preventDefault());
      row.addEventListener("click", () => this.#take(one));
      return row;
    });
    this.#menu.replaceChildren(...rows);
    this.#menu.hidden = false;
    this.#choose(0);
  }

  /** @param {number} wanted */
  #choose(wanted) {
    this.#chosen = (wanted + this.#offered.length) % this.#offered.length;
    [...this.#menu.children].forEach((row, at) => {
      row.classList.toggle("chosen", at === this.#chosen);
      row.setAttribute("aria-selected", String(at === this.#chosen));
    });
    const row = this.#menu.children[this.#chosen];
    row.scrollIntoView({ block: "nearest" });
    this.#field.setAttribute("aria-activedescendant", row.id);
  }

  /** @param {KeyboardEvent} event */
  #onMenuKey(event) {
    const step = { ArrowDown: 1, Tab: event.shiftKey ? -1 : 1, ArrowUp: -1 }[event.key];
    if (step) this.#choose(this.#chosen + step);
    else if (event.key === "Escape") this.#close();
    else if (event.key === "Enter") this.#take(this.#offered[this.#chosen]);
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }

  /** @param {Completion} completion */
  #take(completion) {
    this.#field.focus();
    this.#field.setSelectionRange(completion.start, completion.end);
    insert(completion.text);
    this.#close();
  }

  #close() {
    this.#menu.hidden = true;
    this.#field.removeAttribute("aria-activedescendant");
  }
}

/** Insert text where the cursor is, through the browser, so that it can be undone. @param {string} text */
export function insert(text) {
  if (text) document.execCommand("insertText", false, text);
}
