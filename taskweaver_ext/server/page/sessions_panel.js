/** The sessions of the project: found, chosen, begun, renamed, exported, deleted. */

import { ask, sessionPath } from "./api.js";
import { askForText, askWhether } from "./dialogs.js";
import { button, make } from "./dom.js";
import { say } from "./toast.js";

const REFRESH_MS = 10_000;
const EXPORTS = [["ipynb", "Notebook"], ["md", "Markdown"], ["html", "Web page"], ["bundle", "Bundle"]];

/** A list that looks again now and then. */
export class SessionsPanel {
  /** @type {(sessionId: string) => void} */
  onChoose = () => {};
  onNew = () => {};
  /** Called when the session that is shown is no longer there. */
  onGone = () => {};

  #search = make("input", "", { type: "search", placeholder: "Search sessions", "aria-label": "Search sessions" });
  #list = make("ul", "sessions");
  #current = "";
  #shown = "";

  constructor() {
    const head = make("div", "panel-head", {}, make("h2", "", { textContent: "Sessions" }), button("New", () => this.onNew(), "primary small"));
    this.element = make("nav", "left", { "aria-label": "Sessions" }, head, this.#search, this.#list);
    this.#search.addEventListener("input", () => void this.refresh());
    addEventListener("click", (event) => this.#closeMenus(/** @type {Node} */ (event.target)));
    this.#list.addEventListener("keydown", (event) => {
      const menu = event.key === "Escape" ? this.#list.querySelector("details[open]") : null;
      if (!menu) return;
      this.#closeMenus(null);
      menu.querySelector("summary")?.focus();
    });
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
      this.#draw(sessions);
    } catch {
      // The connection's state is said elsewhere; the list stays as it was.
    }
  }

  /** Leave alone what has not changed, and what a person is at. @param {any[]} sessions */
  #draw(sessions) {
    const shown = JSON.stringify([this.#current, sessions.map((one) => [one.session_id, one.title, one.state, when(one.last_used_at)])]);
    if (shown === this.#shown || this.#list.querySelector("details[open]")) return;
    this.#shown = shown;
    const focused = document.activeElement?.closest("li")?.dataset.session;
    const wasSummary = document.activeElement?.tagName === "SUMMARY";
    this.#list.replaceChildren(...sessions.map((one) => this.#row(one)));
    const again = focused && [...this.#list.children].find((row) => /** @type {HTMLElement} */ (row).dataset.session === focused);
    if (again) /** @type {HTMLElement} */ (again.querySelector(wasSummary ? "summary" : "a")).focus();
  }

  /** @param {Node | null} but  Where the person is. */
  #closeMenus(but) {
    for (const menu of this.#list.querySelectorAll("details[open]")) {
      if (!but || !menu.contains(but)) menu.removeAttribute("open");
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
    const row = make("li", isCurrent ? "current" : "", {}, choose, this.#menu(session, words));
    row.dataset.session = session.session_id;
    return row;
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
    menu.append(
      make(
        "div",
        "menu-items",
        {},
        button("Rename", () => this.#rename(path, title)),
        ...exports,
        button("Delete", () => this.#delete(session.session_id, title), "quiet danger"),
      ),
    );
    return menu;
  }

  /**
   * @param {string} path
   * @param {string} title
   */
  async #rename(path, title) {
    this.#closeMenus(null);
    const wanted = await askForText("Rename this session", title, "Rename");
    if (wanted !== null) await this.#ask("PATCH", path, { title: wanted });
  }

  /**
   * @param {string} sessionId
   * @param {string} title
   */
  async #delete(sessionId, title) {
    this.#closeMenus(null);
    const words = "Its conversation, its outputs and the files in its own folder are lost for good.";
    if (!(await askWhether(`Delete “${title}”?`, words, "Delete"))) return;
    const isGone = await this.#ask("DELETE", sessionPath(sessionId));
    if (isGone && sessionId === this.#current) this.onGone();
  }

  /**
   * @param {"PATCH"|"DELETE"} method
   * @param {string} path
   * @param {unknown} [body]
   */
  async #ask(method, path, body) {
    try {
      await ask(method, path, body);
    } catch (error) {
      say(error instanceof Error ? error.message : String(error), "error");
      return false;
    }
    await this.refresh();
    return true;
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
