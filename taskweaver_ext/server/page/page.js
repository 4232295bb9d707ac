/** The page: one session in the middle, the others and what it has around it. */

import { ApiError, ask, sessionPath } from "./api.js";
import { make } from "./dom.js";
import { SessionPage } from "./session_page.js";
import { SessionsPanel } from "./sessions_panel.js";
import { say } from "./toast.js";

/** Shows the session that the address names, and follows it from session to session. */
class Page {
  #top = make("header", "top");
  #middle = make("main", "", { id: "conversation", tabIndex: -1 });
  #left = new SessionsPanel();
  #right = make("aside", "right", { "aria-label": "Of this session" });
  /** @type {SessionPage | null} */
  #session = null;

  constructor() {
    document.body.append(this.#top, this.#left.element, this.#middle, this.#right);
    this.#left.element.id = "sessions";
    this.#right.id = "panels";
    addEventListener("popstate", () => void this.#open());
    this.#left.onChoose = (sessionId) => this.#go(sessionId);
    this.#left.onNew = this.#left.onGone = () => void this.#begin();
    void this.#open();
  }

  /** @param {string} sessionId */
  #go(sessionId) {
    history.pushState(null, "", `/?session=${encodeURIComponent(sessionId)}`);
    void this.#open();
  }

  async #open() {
    const wanted = new URLSearchParams(location.search).get("session");
    if (wanted) this.#show(wanted);
    else await this.#begin();
  }

  async #begin() {
    try {
      const made = await ask("POST", "/sessions", {});
      this.#go(made.session_id);
    } catch (error) {
      say(error instanceof ApiError ? error.message : String(error), "error");
    }
  }

  /** @param {string} sessionId */
  #show(sessionId) {
    this.#session?.close();
    this.#session = new SessionPage(sessionId);
    this.#session.onTitle = () => void this.#left.refresh();
    document.body.classList.remove("shows-sessions", "shows-panels");
    this.#top.replaceChildren(
      opener("Sessions", "sessions"),
      ...this.#session.top,
      opener("Details", "panels"),
    );
    this.#middle.replaceChildren(...this.#session.middle);
    this.#right.replaceChildren(...this.#session.right);
    this.#left.setCurrent(sessionId);
    this.#session.focus();
    void ask("GET", sessionPath(sessionId)).catch((error) => say(error.message, "error"));
  }
}

/**
 * A button for what has no room beside the conversation on a narrow screen.
 * @param {string} label
 * @param {"sessions"|"panels"} what
 */
function opener(label, what) {
  const press = make("button", `opener for-${what}`, { type: "button", textContent: label, "aria-controls": what, "aria-expanded": "false" });
  press.addEventListener("click", () => {
    const isOpen = document.body.classList.toggle(`shows-${what}`);
    press.setAttribute("aria-expanded", String(isOpen));
  });
  return press;
}

new Page();
