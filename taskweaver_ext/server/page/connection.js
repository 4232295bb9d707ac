/**
 * The line to one session: its events in order, each exactly once, and commands with their replies.
 *
 * Comes back by itself from the last event it has seen; always says how it stands.
 */

import { ApiError, ask, eventsAddress, sessionPath } from "./api.js";

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5000;
/** Statuses with which a session is not to be had, however often one asks. */
const FINAL_STATUSES = new Set([401, 403, 404, 410]);

/** @typedef {import("./conversation.js").SessionEvent} SessionEvent */
/** @typedef {"connecting"|"live"|"offline"|"gone"} ConnectionState */

/** A WebSocket that outlives its breaks. */
export class Connection {
  /** @type {ConnectionState} */
  state = "connecting";
  /** Why there is no connection, for people. */
  reason = "";
  /** @type {(event: SessionEvent) => void} */
  onEvent = () => {};
  onState = () => {};

  #sessionId;
  /** @type {WebSocket | null} */
  #socket = null;
  #epoch = 0;
  #seq = 0;
  #commandCount = 0;
  #waitMs = FIRST_WAIT_MS;
  #timer = 0;
  #isClosed = false;
  /** @type {Map<number, { resolve: (reply: any) => void, reject: (error: Error) => void, isBegun: boolean }>} */
  #waiting = new Map();
  #retry = () => this.#retryNow();

  /** @param {string} sessionId */
  constructor(sessionId) {
    this.#sessionId = sessionId;
    addEventListener("online", this.#retry);
    this.#open();
  }

  /**
   * Send a command; resolves with its outcome when it is done.
   * @param {string} command
   * @param {Record<string, unknown>} [fields]
   * @returns {Promise<any>}
   */
  send(command, fields = {}) {
    if (this.#socket?.readyState !== WebSocket.OPEN) {
      return Promise.reject(new ApiError(0, "There is no connection to the server now; nothing was sent."));
    }
    const id = (this.#commandCount += 1);
    this.#socket.send(JSON.stringify({ command, id, ...fields }));
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, isBegun: false });
    });
  }

  /** The number of the last event that came. */
  get seq() {
    return this.#seq;
  }

  /** Let go of the session; it goes on without us. */
  close() {
    this.#isClosed = true;
    removeEventListener("online", this.#retry);
    clearTimeout(this.#timer);
    this.#socket?.close();
    this.#failWaiting();
  }

  #open() {
    const after = this.#seq ? `${this.#epoch}:${this.#seq}` : "";
    const socket = new WebSocket(eventsAddress(this.#sessionId, after));
    this.#socket = socket;
    socket.addEventListener("message", (message) => this.#receive(JSON.parse(message.data)));
    socket.addEventListener("close", () => {
      if (socket === this.#socket && !this.#isClosed) void this.#lost();
    });
  }

  /** @param {any} said */
  #receive(said) {
    if (said.event !== undefined) {
      if (said.seq && said.seq <= this.#seq) return;
      this.#seq = said.seq || this.#seq;
      this.onEvent(said);
    } else if (said.protocol !== undefined) {
      this.#epoch = said.epoch;
      this.#waitMs = FIRST_WAIT_MS;
      this.#set("live");
    } else if (said.reply !== undefined) {
      this.#settle(said);
    }
  }

  /** @param {any} reply */
  #settle(reply) {
    const waiting = this.#waiting.get(reply.id);
    if (!waiting) return;
    if (reply.reply === "accepted") {
      waiting.isBegun = true;
      return;
    }
    this.#waiting.delete(reply.id);
    if (reply.reply === "done") waiting.resolve(reply.outcome);
    else waiting.reject(new ApiError(409, reply.reason));
  }

  async #lost() {
    this.#socket = null;
    this.#failWaiting();
    this.#set("offline", "The connection is lost; trying again.");
    try {
      await ask("GET", sessionPath(this.#sessionId));
    } catch (error) {
      if (error instanceof ApiError && FINAL_STATUSES.has(error.status)) {
        this.#set("gone", error.message);
        return;
      }
    }
    if (this.#isClosed) return;
    this.#timer = setTimeout(() => this.#open(), this.#waitMs);
    this.#waitMs = Math.min(this.#waitMs * 2, LONGEST_WAIT_MS);
  }

  #retryNow() {
    if (this.state !== "offline" || this.#socket || this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#waitMs = FIRST_WAIT_MS;
    this.#open();
  }

  /** What was begun goes on, and its events will say so; the rest may not have arrived. */
  #failWaiting() {
    for (const { resolve, reject, isBegun } of this.#waiting.values()) {
      if (isBegun) resolve({});
      else reject(new ApiError(0, "The connection was lost before the server had answered."));
    }
    this.#waiting.clear();
  }

  /**
   * @param {ConnectionState} state
   * @param {string} [reason]
   */
  #set(state, reason = "") {
    if (this.state === state && this.reason === reason) return;
    this.state = state;
    this.reason = reason;
    this.onState();
  }
}
