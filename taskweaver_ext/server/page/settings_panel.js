/** What a person can change of the session: what the agent may run, and what it hears. */

import { button, make } from "./dom.js";
import { chooseMarkdown, isMarkdown } from "./markdown_choice.js";

/** @typedef {(command: string, fields: Record<string, unknown>) => Promise<void>} Send */

const APPROVALS = [
  ["ask shell", "Shell after asking me"],
  ["ask all", "All of it after asking me"],
  ["auto shell", "All of it without asking"],
  ["deny shell", "Nothing"],
];
const AUTO_SENDS = [
  ["off", "My runs stay here"],
  ["next", "My runs go with my next message"],
  ["on", "My runs go to the agent at once"],
];

const KINDS = /** @type {[import("./markdown_choice.js").BlockKind, string][]} */ ([
  ["agent", "What the agent says"],
  ["python", "Output of Python"],
  ["shell", "Output of the shell"],
]);

/** Shows the settings as the session said them last; a change is a command, and comes back as an event. */
export class SettingsPanel {
  #send;
  #approval = choice("What the agent may run", APPROVALS);
  /** Stands where a person writes. */
  autoSend = choice("What the agent hears", AUTO_SENDS);
  #allowed = make("ul", "allowed");
  #shown = "";

  /** @param {Send} send */
  constructor(send) {
    this.#send = send;
    this.#approval.addEventListener("change", () => {
      const [mode, scope] = this.#approval.value.split(" ");
      void send("set_approval", { mode, scope });
    });
    this.autoSend.addEventListener("change", () => void send("set_auto_send", { value: this.autoSend.value }));
    this.element = make(
      "section",
      "settings",
      { "aria-label": "Settings" },
      make("h2", "", { textContent: "The agent" }),
      make("label", "", {}, "May run", this.#approval),
      this.#allowed,
      make("h2", "", { textContent: "Drawn as Markdown" }),
      ...KINDS.map(([kind, words]) => markdownSwitch(kind, words)),
    );
  }

  /** @param {Record<string, any>} settings */
  update(settings) {
    const shown = JSON.stringify(settings);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const { approval = "ask", approval_scope: scope = "shell", auto_send: autoSend = "off" } = settings;
    this.#approval.value = approval === "ask" ? `ask ${scope}` : `${approval} shell`;
    this.autoSend.value = autoSend;
    const allowed = [...(settings.allowed_patterns ?? []), ...(settings.allowed_kinds ?? [])];
    this.#allowed.replaceChildren(...allowed.map((one) => this.#row(one)));
  }

  /** @param {string} allowed */
  #row(allowed) {
    const forget = button("Ask again", () => this.#send("forget_allowed", { allowed }));
    return make("li", "", {}, make("code", "", { textContent: allowed }), " without asking ", forget);
  }
}

/**
 * @param {import("./markdown_choice.js").BlockKind} kind
 * @param {string} words
 */
function markdownSwitch(kind, words) {
  const box = make("input", "", { type: "checkbox", checked: isMarkdown(kind) });
  box.addEventListener("change", () => chooseMarkdown(kind, box.checked));
  return make("label", "switch", {}, box, words);
}

/**
 * @param {string} label
 * @param {string[][]} options
 */
function choice(label, options) {
  const select = make("select", "", { "aria-label": label });
  select.append(...options.map(([value, words]) => make("option", "", { value, textContent: words })));
  return select;
}
