/**
 * A session's events, folded into what a person reads: messages, plans, cells, notices.
 *
 * Pure but for the callbacks: events in, in their order; items out, each told when it is new and
 * whenever it has changed. Numbers of cells come from `post_code_block` events, as in every frontend.
 */

import { OutputStore } from "./output_store.js";

/** @typedef {import("./output_store.js").Stream} Stream */

/**
 * @typedef {object} SessionEvent  What `event_to_json` makes of an event; `events/types.py` has it all.
 * @property {string} event
 * @property {number} seq
 * @property {number} at
 * @property {string} [round_id]
 * @property {string} [post_id]
 * @property {string} [msg]
 * @property {any} [extra]
 */

/** @typedef {"writing"|"asking"|"waiting"|"running"|"success"|"error"|"timeout"|"cancelled"|"died"|"paused"|"lost"|"refused"|"not_run"} CellState */

/**
 * @typedef {object} Question
 * @property {string} question_id
 * @property {"input"|"password"|"approval"} kind
 * @property {string} prompt
 * @property {string} [code]
 * @property {string} [language]
 * @property {string[]} [reasons]
 * @property {string[]} [choices]
 * @property {string} [always]  What "always" allows, in a sentence.
 * @property {string} [pattern]  What "pattern" allows, unless the answer is another one.
 */

/** @typedef {{ seq: number, name: string, type: string, mime_type: string, original_name: string, file_name: string, preview: string }} Artifact */
/** @typedef {{ type: "text", store: OutputStore }} TextOutput */
/**
 * @typedef {object} DisplayOutput
 * @property {"display"} type
 * @property {Record<string, any>} bundle
 * @property {Record<string, string>} files
 * @property {number} seq  The event that showed it, or changed it last.
 * @property {boolean} isResult
 */
/** @typedef {{ type: "log", level: string, tag: string, message: string }} LogOutput */
/** @typedef {{ type: "answer", kind: string, prompt: string, outcome: string, text: string }} AnswerOutput */
/** @typedef {TextOutput | DisplayOutput | LogOutput | AnswerOutput} Output */

/** Something that a person or a role says. */
export class Message {
  kind = /** @type {const} */ ("message");
  text = "";
  sendTo = "";
  isOpen = true;
  isError = false;
  /** @type {string[]} */
  files = [];
  /** The code blocks in its text, by their place. @type {Map<number, { number: number, language: string, code: string }>} */
  proposed = new Map();

  /**
   * @param {string} id
   * @param {string} role
   * @param {"asked"|"said"|"thought"|"instructed"} manner
   * @param {number} at
   */
  constructor(id, role, manner, at) {
    this.id = id;
    this.role = role;
    this.manner = manner;
    this.at = at;
  }
}

/** What a planner wants done; a later one of the same round takes its place. */
export class Plan {
  kind = /** @type {const} */ ("plan");
  text = "";
  current = "";
  reasoning = "";

  /** @param {string} id */
  constructor(id) {
    this.id = id;
  }

  /** @returns {string[]} */
  get steps() {
    return this.text.split("\n").map((line) => line.trim()).filter(Boolean);
  }
}

/** Code, who wrote it, and what comes of it. */
export class Cell {
  kind = /** @type {const} */ ("cell");
  /** @type {number | null} */
  number = null;
  code = "";
  language = "python";
  program = "";
  objective = "";
  /** What the code has promised to make. @type {{ name: string, type: string, description: string, isThere: boolean }[]} */
  contract = [];
  /** The files it has made. @type {Artifact[]} */
  artifacts = [];
  /** @type {CellState} */
  state = "writing";
  isEdited = false;
  /** @type {Output[]} */
  outputs = [];
  /** @type {OutputStore | null} */
  late = null;
  error = "";
  /** @type {string[]} */
  notices = [];
  /** @type {Question | null} */
  question = null;
  /** @type {number | null} */
  beganAt = null;
  /** @type {number | null} */
  seconds = null;
  /** @type {number | null} */
  exitCode = null;
  /** @type {number | null} */
  repeats = null;
  /** Whether the agent knows of it. */
  isKnown = false;

  /**
   * @param {string} id  Of its post, which is its execution's too.
   * @param {"person"|"agent"} by
   */
  constructor(id, by) {
    this.id = id;
    this.by = by;
    this.isKnown = by === "agent";
  }

  get isOpen() {
    return ["writing", "asking", "waiting", "running"].includes(this.state);
  }

  /** Where text that comes next goes: after a display, text begins anew. */
  get lastStore() {
    const last = this.outputs.at(-1);
    if (last?.type === "text") return last.store;
    const store = new OutputStore();
    this.outputs.push({ type: "text", store });
    return store;
  }
}

/** Something to know of the session that no role has said. */
export class Notice {
  kind = /** @type {const} */ ("notice");

  /**
   * @param {string} id
   * @param {string} text
   * @param {"notice"|"error"|"cancelled"} tone
   */
  constructor(id, text, tone) {
    this.id = id;
    this.text = text;
    this.tone = tone;
  }
}

/** @typedef {Message | Plan | Cell | Notice} Item */

/** One post while it grows. */
class Post {
  role = "";
  sendTo = "";
  /** @type {Map<string, { type: string, text: string, extra: any }>} */
  attachments = new Map();
  /** @type {Message | null} */
  message = null;
  /** @type {Message | null} */
  thought = null;
  /** @type {Cell | null} */
  cell = null;
  panelCode = "";
  willClear = false;

  /** @param {string} type */
  textOf(type) {
    return [...this.attachments.values()].filter((one) => one.type === type).at(-1)?.text ?? "";
  }
}

const NOT_SAID = new Set(["code_error", "execution_result"]);
const TEXT = "text";
const USER = "User";
const TOLD_STATES = new Set(["restarted", "limit", "paused"]);

/** The items of a session, and what they are part of. */
export class Conversation {
  /** @type {Item[]} */
  items = [];
  /** The round that is under way. @type {string | null} */
  roundId = null;
  /** What a role is doing now, in its own words. */
  activity = "";
  /** What goes to the agent with the next message. @type {string[]} */
  context = [];
  /** What frontends can change of the session, as it was said last. @type {Record<string, any>} */
  settings = {};
  /** @type {{ prompt: number, completion: number, cached: number } | null} */
  usage = null;
  title = "";

  /** Called with an item that is new. @type {(item: Item) => void} */
  onItem = () => {};
  /** Called with an item that has changed. @type {(item: Item) => void} */
  onChange = () => {};
  /** Called when something of the session itself has changed. */
  onSession = () => {};

  /** @type {Map<string, Post>} */
  #posts = new Map();
  /** @type {Map<string, Cell>} */
  #cells = new Map();
  /** @type {Map<string, [Cell, DisplayOutput][]>} */
  #displays = new Map();
  /** @type {Map<string, Cell>} */
  #asking = new Map();
  /** @type {Plan | null} */
  #plan = null;
  #hasStarted = false;

  /** Whether something waits for the person. */
  get isAsking() {
    return this.#asking.size > 0;
  }

  /** Take the next event. @param {SessionEvent} event */
  receive(event) {
    const extra = event.extra ?? {};
    const text = event.msg ?? "";
    if (event.post_id) this.#receivePost(event, this.#post(event.post_id), text, extra);
    else if (event.event.startsWith("round_")) this.#receiveRound(event, text, extra);
    else this.#receiveSession(event, text, extra);
  }

  /**
   * @param {SessionEvent} event
   * @param {string} text
   * @param {any} extra
   */
  #receiveSession(event, text, extra) {
    switch (event.event) {
      case "session_start":
        if (this.#hasStarted) this.#resume(event);
        this.#hasStarted = true;
        break;
      case "session_late_output":
        this.#receiveLate(extra.execution_id, extra.stream, text);
        break;
      case "session_question":
        this.#ask({ ...extra, prompt: text });
        break;
      case "session_answered":
        this.#answer(extra);
        break;
      case "session_context_update":
        this.context = extra.blocks ?? [];
        this.#know(extra.runs ?? [], true);
        this.#know(extra.dropped ?? [], false);
        break;
      case "session_settings":
        this.settings = { ...this.settings, ...extra };
        break;
      case "session_renamed":
        this.title = text;
        break;
      case "session_notice":
        this.#add(new Notice(`event-${event.seq}`, text, "notice"));
        break;
      case "session_memory_update":
        if (!extra.role) this.#know([...this.#cells.keys()], false);
        this.#add(new Notice(`event-${event.seq}`, text || "From here on, the agent knows nothing of what was said before.", "notice"));
        break;
      case "session_events_missed":
        this.#add(new Notice(`event-${event.seq}`, `${extra.last_seq - extra.first_seq + 1} events are no longer kept.`, "error"));
        break;
    }
    this.onSession();
  }

  /**
   * @param {SessionEvent} event
   * @param {string} text
   * @param {any} extra
   */
  #receiveRound(event, text, extra) {
    switch (event.event) {
      case "round_start":
        this.roundId = event.round_id ?? null;
        this.#plan = null;
        if (extra.kind === "message") {
          const message = new Message(`event-${event.seq}`, USER, "asked", event.at);
          message.text = extra.user_query;
          message.files = extra.files ?? [];
          message.isOpen = false;
          this.#add(message);
        }
        break;
      case "round_new_post":
        if (extra.post) this.#settle(extra.post);
        break;
      case "round_error":
        this.#add(new Notice(`event-${event.seq}`, text, "error"));
        break;
      case "round_end":
        this.roundId = null;
        this.activity = "";
        this.usage = extra.usage ?? this.usage;
        this.#closeCells(extra.state === "cancelled" ? "cancelled" : "lost");
        if (extra.state === "cancelled") {
          this.#add(new Notice(`event-${event.seq}`, "Stopped.", "cancelled"));
        }
        this.#posts.clear();
        break;
    }
    this.onSession();
  }

  /**
   * @param {SessionEvent} event
   * @param {Post} post
   * @param {string} text
   * @param {any} extra
   */
  #receivePost(event, post, text, extra) {
    switch (event.event) {
      case "post_start":
        post.role = extra.role;
        break;
      case "post_status_update":
        this.activity = text;
        this.onSession();
        break;
      case "post_send_to_update":
        post.sendTo = extra.role;
        if (post.message) this.#direct(post, post.message);
        break;
      case "post_message_update":
        this.#say(event, post, text, Boolean(extra.is_end));
        break;
      case "post_attachment_update":
        this.#attach(event, post, text, extra);
        break;
      case "post_code_block":
        this.#number(event, post, text, extra);
        break;
      case "post_code_exec":
        this.#showPanel(event, post, text, extra);
        break;
      case "post_execution_output": {
        const cell = this.#begun(event, post);
        this.#clearIfDue(post, cell);
        cell.lastStore.feed(extra.stream, text);
        this.onChange(cell);
        break;
      }
      case "post_execution_event":
        this.#receiveExecution(event, post, extra.event);
        break;
      case "post_error":
        this.#say(event, post, "", true);
        if (post.message) {
          post.message.text = text;
          post.message.isError = true;
          post.message.manner = "said";
          this.onChange(post.message);
        }
        break;
      case "post_end":
        this.#endPost(post);
        break;
    }
  }

  /**
   * Take note of what the agent knows, or knows no longer.
   * @param {string[]} ids
   * @param {boolean} isKnown
   */
  #know(ids, isKnown) {
    for (const id of ids) {
      const cell = this.#cells.get(id);
      if (!cell || cell.isKnown === isKnown) continue;
      cell.isKnown = isKnown;
      this.onChange(cell);
    }
  }

  /** @param {string} id */
  #post(id) {
    let post = this.#posts.get(id);
    if (!post) this.#posts.set(id, (post = new Post()));
    return post;
  }

  /** @param {Item} item */
  #add(item) {
    this.items.push(item);
    this.onItem(item);
  }

  /**
   * @param {SessionEvent} event
   * @param {Post} post
   * @param {string} text
   * @param {boolean} isEnd
   */
  #say(event, post, text, isEnd) {
    if (post.role === USER) return;
    if (!post.message) {
      if (!text && !isEnd) return;
      post.message = new Message(/** @type {string} */ (event.post_id), post.role, "said", event.at);
      this.#direct(post, post.message);
      this.#add(post.message);
    }
    post.message.text += text;
    post.message.isOpen = !isEnd;
    this.onChange(post.message);
  }

  /**
   * What one role says to another is not for the person; what is said of a cell, the cell shows.
   * @param {Post} post
   * @param {Message} message
   */
  #direct(post, message) {
    message.sendTo = post.sendTo;
    message.manner = post.sendTo && post.sendTo !== USER ? "instructed" : "said";
  }

  /** Let what the roles know of a post be its message: some may have been taken back. @param {any} known */
  #settle(known) {
    const post = this.#posts.get(known.id);
    if (!post?.message || post.message.isError) return;
    post.sendTo = known.send_to;
    post.message.text = known.message;
    post.message.isOpen = false;
    this.#direct(post, post.message);
    this.onChange(post.message);
  }

  /**
   * @param {SessionEvent} event
   * @param {Post} post
   * @param {string} text
   * @param {any} extra
   */
  #attach(event, post, text, extra) {
    const known = post.attachments.get(extra.id);
    const attachment = known ?? { type: extra.type, text: "", extra: null };
    attachment.text += text;
    attachment.extra = extra.extra;
    if (!known) post.attachments.set(extra.id, attachment);
    switch (extra.type) {
      case "plan":
      case "init_plan":
      case "current_plan_step":
      case "plan_reasoning":
        this.#showPlan(event, post);
        break;
      case "thought":
        if (!post.thought) {
          post.thought = new Message(`${event.post_id}-thought`, post.role, "thought", event.at);
          this.#add(post.thought);
        }
        post.thought.text = post.textOf("thought");
        post.thought.isOpen = !extra.is_end;
        this.onChange(post.thought);
        break;
      case "reply_type":
      case "reply_content":
        this.#write(event, post, attachment.extra);
        break;
      case "verification":
        if (post.cell && attachment.text.trim() === "INCORRECT") post.cell.state = "refused";
        break;
      case "code_error":
        if (post.cell && !post.cell.error) post.cell.error = attachment.text;
        break;
      case "execution_status":
        if (post.cell?.isOpen && attachment.text === "NONE") post.cell.state = "refused";
        break;
    }
    if (post.cell && NOT_SAID.has(extra.type)) this.onChange(post.cell);
  }

  /**
   * @param {SessionEvent} event
   * @param {Post} post
   */
  #showPlan(event, post) {
    const text = post.textOf("plan") || post.textOf("init_plan");
    if (!this.#plan) {
      if (!text.trim()) return;
      this.#plan = new Plan(`${event.post_id}-plan`);
      this.#add(this.#plan);
    }
    this.#plan.text = text || this.#plan.text;
    this.#plan.current = post.textOf("current_plan_step") || this.#plan.current;
    this.#plan.reasoning = post.textOf("plan_reasoning") || this.#plan.reasoning;
    this.onChange(this.#plan);
  }

  /**
   * Take up code of a reply, or of a person.
   * @param {SessionEvent} event
   * @param {Post} post
   * @param {any} extra
   */
  #write(event, post, extra) {
    const language = post.textOf("reply_type").trim();
    const code = post.textOf("reply_content");
    if (language === TEXT) return;
    if (!post.cell && !code.trim()) return;
    const cell = this.#cell(event, post);
    if (language) cell.language = language;
    if (code) cell.code = code;
    cell.isEdited ||= Boolean(extra?.edited_by);
    this.onChange(cell);
  }

  /**
   * @param {SessionEvent} event
   * @param {Post} post
   */
  #cell(event, post) {
    if (!post.cell) {
      const id = /** @type {string} */ (event.post_id);
      post.cell = new Cell(id, post.role === USER ? "person" : "agent");
      this.#cells.set(id, post.cell);
      this.#add(post.cell);
    }
    return post.cell;
  }

  /**
   * @param {SessionEvent} event
   * @param {Post} post
   * @param {string} text
   * @param {any} extra
   */
  #number(event, post, text, extra) {
    if (extra.part) {
      post.message?.proposed.set(extra.part, { number: extra.number, language: extra.language, code: text });
      if (post.message) this.onChange(post.message);
      return;
    }
    const cell = this.#cell(event, post);
    cell.number = extra.number;
    cell.language = extra.language || cell.language;
    cell.repeats = extra.repeats ?? null;
    this.onChange(cell);
  }

  /**
   * @param {SessionEvent} event
   * @param {Post} post
   * @param {string} text
   * @param {any} extra
   */
  #showPanel(event, post, text, extra) {
    const part = extra.sub_type.replace("code_exec.", "");
    if (part === "code" && !text && !post.cell) return;
    const cell = this.#cell(event, post);
    if (part === "code") {
      post.panelCode = extra.index === 0 ? text : post.panelCode + text;
      if (!post.textOf("reply_content")) cell.code = post.panelCode;
      cell.language = extra.language || cell.language;
    } else if (part === "objective") {
      cell.objective = extra.index === 0 ? text : cell.objective + text;
    } else if (part === "program.name") {
      cell.program = extra.index === 0 ? text : cell.program + text;
    } else if (part === "contract") {
      cell.contract = (extra.payload?.contract ?? []).map((/** @type {any} */ one) => ({
        name: one.filename || one.artifact_name,
        type: one.mime ?? "",
        description: one.description ?? "",
        isThere: false,
      }));
    } else if (part === "status" && extra.payload?.status === "exec" && cell.state === "writing") {
      cell.state = "waiting";
    }
    this.onChange(cell);
  }

  /**
   * @param {SessionEvent} event
   * @param {Post} post
   */
  #begun(event, post) {
    const cell = this.#cell(event, post);
    if (cell.beganAt === null) cell.beganAt = event.at;
    if (cell.isOpen && cell.state !== "asking") cell.state = "running";
    return cell;
  }

  /**
   * @param {SessionEvent} event
   * @param {Post} post
   * @param {any} said
   */
  #receiveExecution(event, post, said) {
    const cell = this.#begun(event, post);
    switch (said.event) {
      case "output":
        this.#clearIfDue(post, cell);
        cell.lastStore.feed(said.stream, said.text);
        break;
      case "display":
        this.#clearIfDue(post, cell);
        this.#show(cell, event, said);
        break;
      case "display_update":
        for (const [owner, display] of this.#displays.get(said.display_id) ?? []) {
          Object.assign(display, { bundle: said.bundle, files: said.files ?? {}, seq: event.seq });
          this.onChange(owner);
        }
        break;
      case "clear_output":
        post.willClear = true;
        if (!said.wait) this.#clearIfDue(post, cell);
        break;
      case "log":
        cell.outputs.push({ type: "log", level: said.level, tag: said.tag, message: said.message });
        break;
      case "artifact":
        this.#tick(cell, { ...said, seq: event.seq });
        break;
      case "status":
        if (TOLD_STATES.has(said.status) && said.detail) cell.notices.push(said.detail);
        break;
      case "finished":
        this.#finish(cell, said);
        break;
    }
    this.onChange(cell);
  }

  /**
   * @param {Cell} cell
   * @param {SessionEvent} event
   * @param {any} said
   */
  #show(cell, event, said) {
    /** @type {DisplayOutput} */
    const display = {
      type: "display",
      bundle: said.bundle ?? {},
      files: said.files ?? {},
      seq: event.seq,
      isResult: Boolean(said.is_result),
    };
    cell.outputs.push(display);
    if (said.display_id) {
      const known = this.#displays.get(said.display_id) ?? [];
      this.#displays.set(said.display_id, [...known, [cell, display]]);
    }
  }

  /**
   * @param {Post} post
   * @param {Cell} cell
   */
  #clearIfDue(post, cell) {
    if (post.willClear) cell.outputs = [];
    post.willClear = false;
  }

  /**
   * Tick off what the code has promised.
   * @param {Cell} cell
   * @param {Artifact} artifact
   */
  #tick(cell, artifact) {
    cell.artifacts.push(artifact);
    const names = [artifact.file_name, artifact.name, artifact.original_name].map(lastPart);
    for (const promised of cell.contract) {
      promised.isThere ||= names.includes(lastPart(promised.name));
    }
  }

  /**
   * @param {Cell} cell
   * @param {any} said
   */
  #finish(cell, said) {
    cell.state = said.status;
    cell.error = said.error || cell.error;
    cell.exitCode = said.exit_code ?? null;
    cell.seconds = said.duration_seconds;
    const told = (said.notices ?? []).filter((/** @type {any} */ one) => one.kind !== "truncated");
    cell.notices = [...new Set([...cell.notices, ...told.map((/** @type {any} */ one) => one.message)])];
    for (const output of cell.outputs) if (output.type === "text") output.store.end();
  }

  /**
   * @param {string} id
   * @param {Stream} stream
   * @param {string} text
   */
  #receiveLate(id, stream, text) {
    const cell = this.#cells.get(id);
    if (!cell) return;
    cell.late ??= new OutputStore();
    cell.late.feed(stream, text);
    this.onChange(cell);
  }

  /** @param {Question & { execution_id: string }} question */
  #ask(question) {
    const cell = this.#cells.get(question.execution_id);
    if (!cell) return;
    cell.question = question;
    if (question.kind === "approval") {
      cell.state = "asking";
      cell.code = question.code ?? cell.code;
    }
    this.#asking.set(question.question_id, cell);
    this.onChange(cell);
  }

  /** @param {any} answer */
  #answer(answer) {
    const cell = this.#asking.get(answer.question_id);
    const question = cell?.question;
    this.#asking.delete(answer.question_id);
    if (!cell || question?.question_id !== answer.question_id) return;
    cell.question = null;
    if (question?.kind === "approval") {
      cell.state = answer.outcome === "refused" || answer.outcome === "cancelled" ? "refused" : "waiting";
      if (answer.outcome === "edited") {
        cell.code = answer.answer ?? cell.code;
        cell.isEdited = true;
      }
    } else if (question) {
      const { kind, prompt } = question;
      const shownText = kind === "password" ? "••••" : (answer.answer ?? "");
      cell.outputs.push({ type: "answer", kind, prompt, outcome: answer.outcome, text: shownText });
    }
    this.onChange(cell);
  }

  /** @param {Post} post */
  #endPost(post) {
    if (post.thought) post.thought.isOpen = false;
    if (post.message) post.message.isOpen = false;
    const { cell } = post;
    if (cell?.isOpen && cell.beganAt === null) cell.state = "not_run";
    if (cell) this.onChange(cell);
    if (post.message) this.onChange(post.message);
  }

  /** The process that worked on the round is lost: nothing of it goes on. */
  lose() {
    this.#closeCells("lost");
    this.#posts.clear();
    this.roundId = null;
    this.activity = "";
    this.onSession();
  }

  /** @param {CellState} state */
  #closeCells(state) {
    for (const post of this.#posts.values()) {
      if (!post.cell?.isOpen) continue;
      post.cell.state = post.cell.beganAt === null ? "not_run" : state;
      if (post.cell.question) this.#asking.delete(post.cell.question.question_id);
      post.cell.question = null;
      this.onChange(post.cell);
    }
  }

  /** @param {SessionEvent} event */
  #resume(event) {
    this.lose();
    const text = "The session was continued by another process, on a fresh kernel.";
    this.#add(new Notice(`event-${event.seq}`, text, "notice"));
  }
}

/** @param {string} path */
function lastPart(path) {
  return path.split("/").at(-1) ?? "";
}
