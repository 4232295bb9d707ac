/** One session on the page: its blocks, the composer, and how it stands. */

import { ApiError, ask, sessionPath } from "./api.js";
import { CellView } from "./cell_view.js";
import { Composer } from "./composer.js";
import { Connection } from "./connection.js";
import { Cell, Conversation, Message, Notice, Plan } from "./conversation.js";
import { byteCount, make, setText } from "./dom.js";
import { FilesPanel } from "./files_panel.js";
import { choices } from "./markdown_choice.js";
import { MessageView, NoticeView, PlanView } from "./message_view.js";
import { SettingsPanel } from "./settings_panel.js";
import { say } from "./toast.js";
import { VariablesPanel } from "./variables_panel.js";

/** @typedef {import("./conversation.js").Item} Item */
/** @typedef {import("./composer.js").Mode} Mode */

const TICK_MS = 1000;
const AT_END_PIXELS = 80;
const CONNECTION_WORDS = { connecting: "connecting", live: "live", offline: "offline, trying again", gone: "not there" };

/** Follows a session from its first event, and does what the person asks. */
export class SessionPage {
  /** Called when the session may be called otherwise now. */
  onTitle = () => {};

  #sessionId;
  #connection;
  #conversation = new Conversation();
  #blocks = make("div", "blocks", { role: "log", "aria-live": "off", "aria-label": "Conversation" });
  #scroller = make("div", "scroller", { tabIndex: -1 }, this.#blocks);
  #isFollowing = true;
  #scrolledTop = 0;
  #title = make("h1");
  #folder = make("span", "folder quiet");
  #state = make("span", "chip");
  #usage = make("span", "chip aside");
  #model = make("span", "chip aside");
  #line = make("span", "chip", { role: "status" });
  #settings = new SettingsPanel((command, fields) => this.#do(command, fields));
  #context = make("span", "quiet", { hidden: true });
  #composer = new Composer(this.#settings.autoSend, this.#context);
  #kernel = make("span", "chip aside");
  #variables;
  #files;
  /** @type {Map<Item, CellView | MessageView | PlanView | NoticeView>} */
  #views = new Map();
  /** @type {Set<Item>} */
  #changed = new Set();
  #isAsked = false;
  #wasBusy = false;
  #kernelMode = "";
  #timer;
  #growth;
  /** @type {HTMLElement | null} */
  #linked = null;
  #goTo = () => this.#goToLinked();
  #redraw = () => this.#conversation.items.forEach((item) => this.#ask(item));
  /** Stops what runs, wherever the person is. @param {KeyboardEvent} event */
  #onPageKey = (event) => {
    if (event.key === "." && (event.ctrlKey || event.metaKey)) void this.#actions.stop(false);
  };

  /** @param {string} sessionId */
  constructor(sessionId) {
    this.#sessionId = sessionId;
    this.#variables = new VariablesPanel(sessionId);
    this.#files = new FilesPanel(sessionId, (file) => this.#composer.fill("agent", `Look at ${file}: `));
    this.top = [this.#title, this.#folder, make("span", "spring"), this.#state, this.#kernel, this.#model, this.#usage, this.#line];
    this.middle = [this.#scroller, this.#composer.element];
    this.right = [this.#variables.element, this.#files.element, this.#settings.element];
    this.#conversation.onItem = (item) => this.#add(item);
    this.#conversation.onChange = (item) => this.#ask(item);
    this.#conversation.onSession = () => this.#ask(null);
    this.#composer.onSend = (mode, text) => this.#send(mode, text);
    this.#composer.onStop = () => void this.#actions.stop(false);
    this.#composer.onComplete = (mode, code, cursor) => this.#complete(code, cursor, mode === "shell" ? "bash" : "python");
    this.#composer.onLeave = () => this.#focusLast();
    this.#variables.onMemory = (bytes) => this.#drawKernel(bytes);
    this.#composer.onFiles = (files) => void this.#files.upload(files);
    this.#blocks.addEventListener("keydown", (event) => this.#onKey(event));
    this.#scroller.addEventListener("scroll", () => this.#onScroll(), { passive: true });
    // Pictures and frames grow after they were drawn.
    this.#growth = new ResizeObserver(() => this.#follow());
    this.#growth.observe(this.#blocks);
    addEventListener("hashchange", this.#goTo);
    addEventListener("keydown", this.#onPageKey);
    choices.addEventListener("change", this.#redraw);
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
    this.#connection = new Connection(sessionId);
    this.#connection.onEvent = (event) => this.#conversation.receive(event);
    this.#connection.onState = () => {
      this.#ask(null);
      if (this.#connection.state === "live") void this.#askFacts();
    };
  }

  /** Let the person write at once, where that opens no keyboard on the screen. */
  focus() {
    if (!location.hash && matchMedia("(hover: hover)").matches) this.#composer.focus();
  }

  /** Leave the session; it goes on. */
  close() {
    clearInterval(this.#timer);
    this.#growth.disconnect();
    removeEventListener("hashchange", this.#goTo);
    removeEventListener("keydown", this.#onPageKey);
    choices.removeEventListener("change", this.#redraw);
    this.#connection.close();
    this.#variables.close();
    this.#files.close();
  }

  /** @type {import("./page_actions.js").PageActions} */
  get #actions() {
    return {
      sessionId: this.#sessionId,
      runBlock: (number, code, language) => this.#run({ code, language, repeats: number }),
      edit: (code, language) => this.#composer.fill(language === "bash" ? "shell" : "python", code),
      copy: (text) => copy(text),
      complete: (code, cursor, language) => this.#complete(code, cursor, language),
      stop: (isKill) => this.#do("interrupt", { kill: isKill }),
      answer: (questionId, outcome, text = "") => this.#do("answer", { question_id: questionId, outcome, text }),
      dropFromContext: (number) => this.#do("drop", { block: number }),
      recordAddress: (executionId, stream) => `/api/v1${sessionPath(this.#sessionId, `/records/${encodeURIComponent(executionId)}/whole`)}?stream=${stream}`,
    };
  }

  /** @param {Item} item */
  #add(item) {
    const view = this.#view(item);
    this.#views.set(item, view);
    this.#blocks.append(view.element);
  }

  /** @param {Item} item */
  #view(item) {
    if (item instanceof Cell) return new CellView(item, this.#actions);
    if (item instanceof Message) return new MessageView(item, this.#actions);
    if (item instanceof Plan) return new PlanView(item);
    return new NoticeView(/** @type {Notice} */ (item));
  }

  /** Draw an item, and how the session stands, before the next frame. @param {Item | null} item */
  #ask(item) {
    if (item) this.#changed.add(item);
    if (this.#isAsked) return;
    this.#isAsked = true;
    requestAnimationFrame(() => {
      this.#isAsked = false;
      this.#draw();
    });
  }

  #draw() {
    for (const item of this.#changed) this.#views.get(item)?.update();
    this.#changed.clear();
    this.#goToLinked();
    this.#drawTop();
    this.#settings.update(this.#conversation.settings);
    const isBusy = this.#conversation.roundId !== null;
    this.#variables.setBusy(isBusy);
    if (this.#wasBusy && !isBusy) void this.#files.refresh();
    this.#wasBusy = isBusy;
  }

  #drawTop() {
    const { roundId, activity, usage, title } = this.#conversation;
    const isBusy = roundId !== null;
    const isAsked = this.#conversation.isAsking;
    this.#composer.setBusy(isBusy);
    setText(this.#title, title || this.#firstWords() || "New session");
    document.title = `${isBusy ? "● " : ""}${this.#title.textContent}`;
    this.#state.className = `chip ${isAsked ? "asks" : isBusy ? "busy" : "quiet"}`;
    setText(this.#state, isAsked ? "asks you" : isBusy ? activity || "running" : "ready");
    this.#drawContext();
    const { state, reason } = this.#connection;
    this.#line.className = `chip ${state === "live" ? "good" : "bad"}`;
    setText(this.#line, CONNECTION_WORDS[state]);
    this.#line.title = reason;
    this.#usage.hidden = !usage;
    if (usage) setText(this.#usage, `${(usage.prompt + usage.completion).toLocaleString()} tokens`);
  }

  #drawContext() {
    const { context } = this.#conversation;
    this.#context.hidden = context.length === 0;
    setText(this.#context, `${context.length} ${context.length === 1 ? "block goes" : "blocks go"} with your next message`);
  }

  /** @param {number | null} bytes */
  #drawKernel(bytes) {
    setText(this.#kernel, [this.#kernelMode, bytes && byteCount(bytes)].filter(Boolean).join(" · "));
    this.#kernel.hidden = !this.#kernel.textContent;
    this.#kernel.title = "Where code runs, and what the kernel holds in memory";
  }

  #firstWords() {
    const first = this.#conversation.items.find((item) => item instanceof Message && item.manner === "asked");
    return first instanceof Message ? first.text.slice(0, 60) : "";
  }

  #tick() {
    for (const view of this.#views.values()) if (view instanceof CellView) view.tick();
  }

  async #askFacts() {
    try {
      const session = await ask("GET", sessionPath(this.#sessionId));
      // A server that was killed has said nothing of the end of its rounds.
      const isCaughtUp = this.#connection.seq >= session.last_seq;
      if (session.state === "saved" && isCaughtUp && this.#conversation.roundId) this.#conversation.lose();
      // A folder of its own says nothing to a person; their own one does.
      setText(this.#folder, session.cwd.includes(this.#sessionId) ? "" : session.cwd);
      const server = await ask("GET", "/server");
      this.#kernelMode = server.kernel_mode;
      setText(this.#model, server.model.split(/;| at /)[0]);
      this.#model.title = server.model;
      void this.#variables.refresh();
    } catch {
      // Said by the connection.
    }
  }

  /**
   * @param {Mode} mode
   * @param {string} text
   */
  async #send(mode, text) {
    this.#isFollowing = true;
    this.#follow();
    try {
      if (mode === "agent") await this.#begin("/messages", { message: text });
      else await this.#begin("/runs", { code: text, language: mode === "shell" ? "bash" : "python" });
      this.onTitle();
    } catch (error) {
      this.#fail(error);
      throw error;
    }
  }

  /** @param {Record<string, unknown>} wanted */
  async #run(wanted) {
    this.#isFollowing = true;
    await this.#begin("/runs", wanted).catch((error) => this.#fail(error));
  }

  /**
   * @param {"/messages"|"/runs"} path
   * @param {Record<string, unknown>} wanted
   */
  async #begin(path, wanted) {
    await ask("POST", sessionPath(this.#sessionId, path), wanted);
  }

  /**
   * @param {string} command
   * @param {Record<string, unknown>} fields
   */
  async #do(command, fields) {
    try {
      await this.#connection.send(command, fields);
    } catch (error) {
      this.#fail(error);
    }
  }

  /** @param {unknown} error */
  #fail(error) {
    say(error instanceof ApiError ? error.message : String(error), "error");
  }

  /**
   * @param {string} code
   * @param {number} cursor
   * @param {string} language
   */
  async #complete(code, cursor, language) {
    if (language !== "python") return []; // the server completes nothing else
    try {
      const path = sessionPath(this.#sessionId, "/completions");
      const { matches, start, end } = await ask("POST", path, { code, cursor, language });
      return matches.map((/** @type {any} */ one) => ({ text: one.text, start, end }));
    } catch {
      return [];
    }
  }

  /** From block to block with the arrow keys. @param {KeyboardEvent} event */
  #onKey(event) {
    const block = /** @type {HTMLElement} */ (event.target).closest(".blocks > *");
    if (block === null || block !== event.target || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "f" && this.#foldBlock(block)) return;
    if (event.key === "c") return void this.#copyBlock(block);
    if (event.key === "i") {
      event.preventDefault();
      return this.#composer.focus();
    }
    const next = { ArrowDown: block.nextElementSibling, j: block.nextElementSibling, ArrowUp: block.previousElementSibling, k: block.previousElementSibling }[event.key];
    if (!(next instanceof HTMLElement)) return;
    event.preventDefault();
    next.focus();
  }

  /** @param {Element} block */
  #copyBlock(block) {
    const item = [...this.#views].find(([, view]) => view.element === block)?.[0];
    if (item instanceof Cell) return copy(item.code);
    return copy(item && "text" in item ? item.text : "");
  }

  /** To what asks, or else to the latest block. */
  #focusLast() {
    const asking = [...this.#blocks.querySelectorAll(".question")].at(-1);
    const wanted = asking ?? [...this.#blocks.children].filter((one) => !(/** @type {HTMLElement} */ (one).hidden)).at(-1);
    if (wanted instanceof HTMLElement) wanted.focus();
  }

  /** @param {Element} block */
  #foldBlock(block) {
    const view = [...this.#views.values()].find((one) => one.element === block);
    if (view instanceof CellView) view.fold();
    return view instanceof CellView;
  }

  /** Go where the address points to, as soon as that block is there. */
  #goToLinked() {
    const linked = location.hash ? document.getElementById(location.hash.slice(1)) : null;
    if (!linked || linked === this.#linked) return;
    this.#linked = linked;
    this.#isFollowing = false;
    linked.scrollIntoView();
    linked.focus();
  }

  /** Only the reader lets go of the end, by scrolling up, and takes hold of it again. */
  #onScroll() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    if (scrollTop + clientHeight >= scrollHeight - AT_END_PIXELS) this.#isFollowing = true;
    else if (scrollTop < this.#scrolledTop) this.#isFollowing = false;
    this.#scrolledTop = scrollTop;
  }

  #follow() {
    if (!this.#isFollowing) return;
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    this.#scrolledTop = this.#scroller.scrollTop;
  }
}

/** @param {string} text */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say("Copied.");
  } catch {
    say("The browser does not let this page copy.", "error");
  }
}
