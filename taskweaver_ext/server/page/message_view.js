/** Shows what is said: a person's words, a thought, an answer with its code, a plan, a notice. */

import { button, make, setText } from "./dom.js";
import { isMarkdown } from "./markdown_choice.js";
import { renderInto } from "./rendered.js";

/** @typedef {import("./conversation.js").Message} Message */
/** @typedef {import("./conversation.js").Plan} Plan */
/** @typedef {import("./conversation.js").Notice} Notice */
/** @typedef {import("./page_actions.js").PageActions} PageActions */

/** One message; plain while it grows, Markdown once it is whole. */
export class MessageView {
  #message;
  #actions;
  #body = make("div", "message-body");
  #toggle = button("Source", () => this.#turn(), "quiet turn");
  /** What the person wants of this message, whatever its kind. @type {boolean | null} */
  #isMarkdown = null;
  #rendered = "";

  /**
   * @param {Message} message
   * @param {PageActions} actions
   */
  constructor(message, actions) {
    this.#message = message;
    this.#actions = actions;
    this.element = make("article", "message", { id: message.id, tabIndex: -1 });
    this.element.append(this.#body, this.#toggle);
    this.update();
  }

  update() {
    const { manner, text, isOpen, isError, files, role } = this.#message;
    this.element.className = `message ${manner}${isError ? " error" : ""}`;
    this.element.setAttribute("aria-label", manner === "asked" ? "You wrote" : `${role} wrote`);
    this.element.hidden = manner === "instructed" || (!text && !isOpen);
    const isWhole = !isOpen && !isError && manner === "said";
    const isPlain = !isWhole || !this.#wantsMarkdown;
    this.#toggle.hidden = !isWhole;
    setText(this.#toggle, isPlain ? "Markdown" : "Source");
    if (isPlain) {
      delete this.#body.dataset.source; // what is still on its way comes too late
      setText(this.#body, files.length ? `${text}\n(with ${files.join(", ")})` : text);
      this.#rendered = "";
    } else if (this.#rendered !== this.#key) {
      this.#rendered = this.#key;
      if (!this.#body.textContent) setText(this.#body, text);
      void renderInto(this.#body, "markdown", text).then(() => this.#addTools());
    }
  }

  get #wantsMarkdown() {
    return this.#isMarkdown ?? isMarkdown("agent");
  }

  #turn() {
    this.#isMarkdown = !this.#wantsMarkdown;
    this.update();
  }

  get #key() {
    return `${this.#message.text}\n${[...this.#message.proposed.keys()].join()}`;
  }

  /** Give each block of code in the answer its number, and what can be done with it. */
  #addTools() {
    const blocks = [...this.#body.querySelectorAll("pre")];
    for (const [part, { number, language, code }] of this.#message.proposed) {
      const block = blocks[part - 1];
      if (!block || block.previousElementSibling?.classList.contains("code-tools")) continue;
      block.before(
        make(
          "div",
          "code-tools",
          {},
          make("span", "number", { textContent: String(number), id: `block-${number}` }),
          button("Run", () => this.#actions.runBlock(number, code, language)),
          button("Edit", () => this.#actions.edit(code, language)),
          button("Copy", () => this.#actions.copy(code)),
        ),
      );
    }
  }
}

/** A plan, collapsed to its current step. */
export class PlanView {
  #plan;
  #summary = make("summary");
  #steps = make("ol", "plan-steps");
  #reasoning = make("p", "quiet");

  /** @param {Plan} plan */
  constructor(plan) {
    this.#plan = plan;
    this.element = make("details", "plan", { id: plan.id }, this.#summary, this.#steps, this.#reasoning);
    this.update();
  }

  update() {
    const { steps, current, reasoning } = this.#plan;
    const number = Number(/^\s*(\d+)/.exec(current)?.[1] ?? 0);
    const words = current.replace(/^\s*\d+[.)]\s*/, "") || steps[0] || "";
    const place = number && steps.length > 1 ? `Plan · step ${number} of ${steps.length}` : "Plan";
    this.#summary.replaceChildren(place, words ? ": " : "", make("span", "plan-current", { textContent: words }));
    const rows = steps.map((step, at) =>
      make("li", at + 1 === number ? "current" : "", { textContent: step.replace(/^\d+[.)]\s*/, "") }),
    );
    this.#steps.replaceChildren(...rows);
    setText(this.#reasoning, reasoning);
  }
}

/** A notice of the session. */
export class NoticeView {
  /** @param {Notice} notice */
  constructor(notice) {
    const role = notice.tone === "error" ? "alert" : "note";
    this.element = make("p", `notice ${notice.tone}`, { id: notice.id, role, textContent: notice.text });
  }

  update() {}
}
