/** Asks a person: whether code may run, or what `input()` and `getpass()` want to know. */

import { CodeCompletion } from "./code_completion.js";
import { button, make } from "./dom.js";
import { lineDiff } from "./line_diff.js";

/** @typedef {import("./conversation.js").Question} Question */
/** @typedef {import("./page_actions.js").PageActions} PageActions */

/** One question, until it is answered here or elsewhere. */
export class QuestionView {
  #actions;

  /**
   * @param {Question} question
   * @param {PageActions} actions
   */
  constructor(question, actions) {
    this.question = question;
    this.#actions = actions;
    this.element = question.kind === "approval" ? this.#approval() : this.#input();
  }

  #approval() {
    const { code = "", prompt, reasons = [], choices = [] } = this.question;
    const editor = make("textarea", "code-editor", {
      value: code,
      hidden: true,
      spellcheck: false,
      rows: Math.min(20, code.split("\n").length + 1),
      "aria-label": "The code, to be edited",
    });
    const completion = new CodeCompletion(editor, (text, cursor) => this.#actions.complete(text, cursor, this.question.language ?? "python"));
    editor.addEventListener("keydown", (event) => completion.onKey(event));
    const diff = make("pre", "diff", { hidden: true, "aria-label": "Your changes" });
    editor.addEventListener("input", () => {
      diff.replaceChildren(...diffRows(code, editor.value));
      diff.hidden = editor.value === code;
    });
    const run = button("Run", () => this.#answer(editor.hidden || editor.value === code ? "approved" : "edited", editor.hidden ? "" : editor.value), "primary");
    const edit = button("Edit", () => {
      editor.hidden = !editor.hidden;
      if (!editor.hidden) editor.focus();
    }, "");
    const place = make(
      "div",
      "question approval",
      { role: "group", "aria-label": prompt, tabIndex: -1 },
      make("p", "", {}, make("strong", "", { textContent: prompt }), " ", make("span", "quiet", { textContent: reasons.join(" ") })),
      make("div", "code-place", {}, editor, completion.element),
      diff,
      choices.includes("pattern") && this.#patternForm(),
      make("div", "choices", {}, run, edit, button("Refuse", () => this.#answer("refused"), ""), choices.includes("always") && this.#always(), make("span", "quiet", { textContent: "Enter runs · e edits · n refuses" })),
    );
    place.addEventListener("keydown", (event) => {
      if (event.target === editor) return;
      if (event.key === "e") edit.click();
      else if (event.key === "n") void this.#answer("refused");
      else if (event.key === "Enter" && event.target === place) void this.#answer("approved");
      else return;
      event.preventDefault();
    });
    return place;
  }

  #always() {
    const press = button("Always", () => this.#answer("always"), "");
    press.title = this.question.always ?? "";
    return press;
  }

  /** Commands like this one, as the person wants to put it. */
  #patternForm() {
    const field = make("input", "mono", { value: this.question.pattern ?? "", "aria-label": "Commands that run without asking" });
    const form = make("form", "choices", {}, make("label", "", {}, "Always for ", field), make("button", "", { type: "submit", textContent: "Run, and allow these" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#answer("pattern", field.value);
    });
    return form;
  }

  #input() {
    const { kind, prompt } = this.question;
    const field = make("input", "", {
      type: kind === "password" ? "password" : "text",
      autocomplete: "off",
      "aria-label": prompt || "The code asks",
    });
    const form = make(
      "form",
      "question",
      {},
      make("label", "", {}, make("span", "", { textContent: prompt || (kind === "password" ? "Password: " : "The code asks: ") }), field),
      make("button", "primary", { type: "submit", textContent: "Answer" }),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#answer("answered", field.value);
    });
    return form;
  }

  /**
   * @param {string} outcome
   * @param {string} [text]
   */
  #answer(outcome, text = "") {
    return this.#actions.answer(this.question.question_id, outcome, text);
  }
}

/**
 * @param {string} before
 * @param {string} after
 */
function diffRows(before, after) {
  return lineDiff(before.split("\n"), after.split("\n")).map(([sign, line]) =>
    make("span", sign === "+" ? "added" : sign === "-" ? "removed" : "", { textContent: `${sign} ${line}\n` }),
  );
}
