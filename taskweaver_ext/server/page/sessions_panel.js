/** The sessions of the project: found, chosen, begun, renamed, exported, deleted. */

import { ask, sessionPath } from "./api.js";
import { button, make } from "./dom.js";
import { say } from "./toast.js";

const REFRESH_MS = 10_000;
const EXPORTS = [["ipynb", "Notebook"], ["md", "Markdown"], ["html", "Web page"], ["bundle", "Bundle"]];

/** A list that looks again now and then. */
export class SessionsPanel {
  /** @type {(sessionId: string) => void} */
  onChoose = () => {};
  onNew = () => {};

  #search = make("input", "", { type: "search", placeholder: "Search sessions", "aria-label": "Search sessions" });
  #list = make("ul", "sessions");
  #current = "";

  constructor() {
    const head = make("div", "panel-head", {}, make("h2", "", { textContent: "Sessions" }), button("New", () => this.onNew(), "primary small"));
    this.element = make("nav", "left", { "aria-label": "Sessions" }, head, this.#search, this.#list);
    this.#search.addEventListener("input", () => void this.refresh());
    setInterval(() => {
      if (!document.hidden) void this.refresh();
    }, REFRESH_MS);
  }

  /** @param {string} sessionId */
  setCurrent(sessionId) {
    this.#current = sessionId;
    void this.refresh();
  }

  /** Ask the server for the list. */
  async refresh() {
    const search = encodeURIComponent(this.#search.value.trim());
    try {
      const { sessions } = await ask("GET", `/sessions?search=${search}`);
      this.#list.replaceChildren(...sessions.map((/** @type {any} */ one) => this.#row(one)));
    } catch {
      // The connection's state is said elsewhere; the list stays as it was.
    }
  }

  /** @param {any} session */
  #row(session) {
    const isCurrent = session.session_id === this.#current;
    const words = session.title || "New session";
    const choose = make("a", "session-link", { href: `/?session=${encodeURIComponent(session.session_id)}` },
      make("span", "session-title", { textContent: words }),
      make("span", "quiet", { textContent: `${when(session.last_used_at)} · ${session.state}` }));
    if (isCurrent) choose.setAttribute("aria-current", "page");
    choose.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey) return;
      event.preventDefault();
      this.onChoose(session.session_id);
    });
    return make("li", isCurrent ? "current" : "", {}, choose, this.#menu(session, words));
  }

  /**
   * @param {any} session
   * @param {string} title
   */
  #menu(session, title) {
    const path = sessionPath(session.session_id);
    const menu = make("details", "menu", {}, make("summary", "", { textContent: "⋯", "aria-label": `What can be done with ${title}` }));
    const exports = EXPORTS.map(([format, label]) =>
      make("a", "", { href: `/api/v1${path}/export?to=${format}`, download: "", textContent: `Export: ${label}` }),
    );
    menu.append(make("div", "menu-items", {}, button("Rename", () => this.#rename(path, title)), ...exports, button("Delete", () => this.#delete(path, title), "quiet danger")));
    return menu;
  }

  /**
   * @param {string} path
   * @param {string} title
   */
  async #rename(path, title) {
    const wanted = prompt("What is this session called?", title);
    if (wanted !== null) await this.#ask("PATCH", path, { title: wanted });
  }

  /**
   * @param {string} path
   * @param {string} title
   */
  async #delete(path, title) {
    if (confirm(`Delete "${title}" for good, with its files?`)) await this.#ask("DELETE", path);
  }

  /**
   * @param {"PATCH"|"DELETE"} method
   * @param {string} path
   * @param {unknown} [body]
   */
  async #ask(method, path, body) {
    try {
      await ask(method, path, body);
      await this.refresh();
    } catch (error) {
      say(error instanceof Error ? error.message : String(error), "error");
    }
  }
}

/** @param {number} at  In seconds. */
function when(at) {
  const seconds = Date.now() / 1000 - at;
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(at * 1000).toLocaleDateString(undefined, { day: "numeric", month: "short" });
}
