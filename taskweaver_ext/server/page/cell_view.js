/** Shows a cell: its number and state, the code, what it has promised, asks and says. */

import { artifactAddress } from "./api.js";
import { DisplayView } from "./display_view.js";
import { button, make, setText } from "./dom.js";
import { isMarkdown } from "./markdown_choice.js";
import { OutputBar } from "./output_bar.js";
import { OutputView } from "./output_view.js";
import { QuestionView } from "./question_view.js";
import { renderInto } from "./rendered.js";
import { plainText } from "./terminal_colors.js";

/** @typedef {import("./conversation.js").Cell} Cell */
/** @typedef {import("./conversation.js").Output} Output */
/** @typedef {import("./page_actions.js").PageActions} PageActions */

/** The sign, the words and the look of each state. @type {Record<import("./conversation.js").CellState, [string, string, string]>} */
const STATES = {
  writing: ["●", "being written", "busy"],
  asking: ["?", "asks", "asks"],
  waiting: ["●", "starting", "busy"],
  running: ["●", "running", "busy"],
  success: ["✔", "", "good"],
  error: ["✖", "failed", "bad"],
  timeout: ["✖", "timed out", "bad"],
  paused: ["■", "paused", "quiet"],
  cancelled: ["■", "stopped", "quiet"],
  died: ["✖", "kernel died", "bad"],
  lost: ["■", "lost with its process", "quiet"],
  refused: ["⃠", "refused", "quiet"],
  not_run: ["○", "not run", "quiet"],
};

/** One cell. */
export class CellView {
  #cell;
  #actions;
  #number = make("a", "number");
  #state = make("span", "state");
  #title = make("strong", "title");
  #objective = make("span", "objective quiet");
  #stop = button("Stop", () => this.#actions.stop(false));
  #kill = button("Kill", () => this.#actions.stop(true), "quiet danger");
  #again;
  #edit;
  #known;
  #fold;
  #turn = button("Markdown", () => this.#turnOutput());
  /** What the person wants of this output, whatever its kind. @type {boolean | null} */
  #isMarkdown = null;
  /** The outputs as Markdown, while they are shown so. @type {Map<OutputView, HTMLElement>} */
  #markdown = new Map();
  #code = make("code");
  #codePlace = make("pre", "code", { tabIndex: 0 }, this.#code);
  #contract = make("table", "contract");
  #question = make("div", "question-place");
  #outputs = make("div", "outputs");
  #error = make("pre", "error-text", { tabIndex: 0 });
  #notices = make("div", "notices");
  #artifacts = make("div", "artifacts");
  #late = make("div", "late");
  /** @type {Map<Output, OutputView | DisplayView | { element: HTMLElement, update(): void }>} */
  #views = new Map();
  /** @type {QuestionView | null} */
  #questionView = null;
  /** @type {OutputView | null} */
  #lateView = null;
  #shownCode = "";
  #bar;

  /**
   * @param {Cell} cell
   * @param {PageActions} actions
   */
  constructor(cell, actions) {
    this.#cell = cell;
    this.#actions = actions;
    this.#again = button("Run again", () => actions.runBlock(this.#requireNumber(), cell.code, cell.language));
    this.#edit = button("Edit", () => actions.edit(cell.code, cell.language));
    this.#known = button("Known to the agent", () => actions.dropFromContext(this.#requireNumber()), "quiet known");
    this.#known.title = "The agent knows this block. Press to take it out.";
    this.#fold = button("Fold", () => this.fold());
    const tools = make(
      "span",
      "tools",
      {},
      this.#known,
      this.#stop,
      this.#kill,
      this.#again,
      this.#edit,
      button("Copy", () => actions.copy(cell.code)),
      this.#turn,
      this.#fold,
    );
    const whole = /** @type {const} */ (["stdout", "stderr"]).map((stream) =>
      make("a", "", { href: actions.recordAddress(cell.id, stream), target: "_blank", rel: "noopener", textContent: `whole ${stream}` }),
    );
    this.#bar = new OutputBar(() => this.#searchedOutputs(), whole, actions.copy);
    this.#kill.title = "Ends the kernel: its variables are lost.";
    const head = make("header", "", {}, this.#number, this.#state, this.#title, this.#objective, tools);
    this.#late.append(make("h3", "", { textContent: "Late output" }));
    this.element = make(
      "article",
      "cell",
      { tabIndex: -1 },
      head,
      this.#codePlace,
      this.#contract,
      this.#question,
      this.#outputs,
      this.#bar.element,
      this.#error,
      this.#notices,
      this.#artifacts,
      this.#late,
    );
    this.update();
  }

  /** Hide all but the head, or show it again. */
  fold() {
    const isFolded = this.element.classList.toggle("folded");
    setText(this.#fold, isFolded ? "Unfold" : "Fold");
    this.#fold.setAttribute("aria-expanded", String(!isFolded));
  }

  update() {
    this.#updateHead();
    this.#updateCode();
    this.#updateContract();
    this.#updateQuestion();
    this.#updateOutputs();
    const { error, notices } = this.#cell;
    setText(this.#error, plainText(error));
    this.#error.hidden = !error;
    this.#notices.replaceChildren(...notices.map((text) => make("p", "quiet", { textContent: text })));
    this.#updateArtifacts();
    this.#updateLate();
  }

  #requireNumber() {
    return this.#cell.number ?? 0;
  }

  #updateHead() {
    const { number, state, isOpen, program, objective, by, isEdited, isKnown, repeats } = this.#cell;
    const [sign, words, look] = STATES[state];
    this.element.className = `cell ${look} by-${by}${this.element.classList.contains("folded") ? " folded" : ""}`;
    if (number !== null) this.element.id = `block-${number}`;
    setText(this.#number, number === null ? "" : String(number));
    this.#number.href = `#block-${number}`;
    this.#number.title = "A link to this block";
    this.#state.className = `state ${look}`;
    setText(this.#state, [sign, words, this.#time()].filter(Boolean).join(" "));
    const about = [isEdited && "edited by you", repeats !== null && `block ${repeats} again`];
    setText(this.#title, program || (by === "person" ? "You" : ""));
    setText(this.#objective, [objective, ...about].filter(Boolean).join(" · "));
    this.element.setAttribute("aria-label", `Block ${number ?? ""}, ${words || "done"}`);
    this.#stop.hidden = !isOpen || state === "asking";
    this.#kill.hidden = state !== "running";
    this.#again.hidden = this.#edit.hidden = isOpen || number === null;
    this.#known.hidden = !isKnown || isOpen || number === null;
    this.element.classList.toggle("in-context", isKnown);
  }

  /** Bring the clock of a running cell up to date. */
  tick() {
    if (this.#cell.isOpen) this.#updateHead();
  }

  #time() {
    const { seconds, beganAt, state } = this.#cell;
    if (seconds !== null) return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
    if (state !== "running" || beganAt === null) return "";
    const elapsed = Math.floor(Date.now() / 1000 - beganAt);
    return elapsed >= 1 ? `${elapsed} s` : "";
  }

  #updateCode() {
    const { language, state } = this.#cell;
    const code = this.#cell.code.replace(/^(?:[ \t]*\n)+/, "").trimEnd();
    this.#codePlace.hidden = !code;
    const key = `${state === "writing"} ${language} ${code}`;
    if (key === this.#shownCode) return;
    this.#shownCode = key;
    if (this.#code.dataset.source !== code) {
      this.#code.dataset.source = code;
      setText(this.#code, code);
    }
    if (state !== "writing") void renderInto(this.#code, "code", code, language);
  }

  #updateContract() {
    const { contract, isOpen } = this.#cell;
    this.#contract.hidden = contract.length === 0;
    if (contract.length === 0) return;
    const head = make("tr", "", {}, ...["promised", "type", "state"].map((name) => make("th", "", { textContent: name, scope: "col" })));
    const rows = contract.map(({ name, type, isThere, description }) =>
      make(
        "tr",
        "",
        { title: description },
        make("td", "", { textContent: name }),
        make("td", "", { textContent: type }),
        make("td", isThere ? "good" : "quiet", { textContent: isThere ? "✔ there" : isOpen ? "waiting" : "missing" }),
      ),
    );
    this.#contract.replaceChildren(make("thead", "", {}, head), make("tbody", "", {}, ...rows));
  }

  #updateQuestion() {
    const { question } = this.#cell;
    if (this.#questionView?.question === question) return;
    this.#questionView = question ? new QuestionView(question, this.#actions) : null;
    this.#question.replaceChildren(...(this.#questionView ? [this.#questionView.element] : []));
  }

  #updateOutputs() {
    const { outputs } = this.#cell;
    for (const [output, view] of this.#views) {
      if (outputs.includes(output)) continue;
      view.element.remove();
      if (view instanceof OutputView) view.close();
      this.#views.delete(output);
    }
    for (const output of outputs) {
      const view = this.#views.get(output);
      if (view) {
        if (view instanceof DisplayView) view.update();
        continue;
      }
      const made = this.#view(output);
      this.#views.set(output, made);
      this.#outputs.append(made.element);
    }
    this.#bar.update();
    this.#updateMarkdown();
  }

  get #wantsMarkdown() {
    return this.#isMarkdown ?? isMarkdown(this.#cell.language === "bash" ? "shell" : "python");
  }

  #turnOutput() {
    this.#isMarkdown = !this.#wantsMarkdown;
    this.#updateMarkdown();
  }

  /** Show what was written as Markdown, once it is whole. */
  #updateMarkdown() {
    const outputs = this.#searchedOutputs();
    const isOn = this.#wantsMarkdown && !this.#cell.isOpen;
    this.#turn.hidden = this.#cell.isOpen || outputs.length === 0;
    setText(this.#turn, isOn ? "Source" : "Markdown");
    for (const { store, view } of outputs) {
      const known = this.#markdown.get(view);
      view.element.classList.toggle("turned", isOn);
      if (known) known.hidden = !isOn;
      else if (isOn) {
        const place = make("div", "display markdown-display");
        this.#markdown.set(view, place);
        view.element.after(place);
        void Promise.resolve(store.text()).then((text) => renderInto(place, "markdown", plainText(text)));
      }
    }
  }

  #searchedOutputs() {
    return this.#cell.outputs.flatMap((output) => {
      const view = this.#views.get(output);
      return output.type === "text" && view instanceof OutputView ? [{ store: output.store, view }] : [];
    });
  }

  /** @param {Output} output */
  #view(output) {
    if (output.type === "text") return new OutputView(output.store, `Output of block ${this.#cell.number ?? ""}`);
    if (output.type === "display") return new DisplayView(output, this.#actions.sessionId);
    const text =
      output.type === "log"
        ? `[${output.level}] ${output.tag}: ${output.message}`
        : `${output.prompt}${output.text}${output.outcome === "cancelled" ? " (not answered)" : ""}`;
    return { element: make("p", `output-${output.type}`, { textContent: text }), update() {} };
  }

  #updateArtifacts() {
    // Pictures that were displayed are seen above; they have names of ours alone.
    const named = this.#cell.artifacts.filter(({ original_name: name }) => name && !name.startsWith(this.#cell.id));
    const links = named.map(({ seq, original_name: name }) =>
      make("a", "file", { href: artifactAddress(this.#actions.sessionId, seq), download: name, textContent: name }),
    );
    this.#artifacts.replaceChildren(...links);
  }

  #updateLate() {
    const { late, number } = this.#cell;
    this.#late.hidden = !late;
    if (late && !this.#lateView) {
      this.#lateView = new OutputView(late, `Late output of block ${number ?? ""}`);
      this.#late.append(this.#lateView.element);
    }
  }
}
