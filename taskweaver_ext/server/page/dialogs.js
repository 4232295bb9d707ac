/** Questions of the page itself, as dialogs: the keyboard stays in them, Escape says no. */

import { make } from "./dom.js";

/**
 * Ask for a text; resolves with null where the person has thought better of it.
 * @param {string} title
 * @param {string} value
 * @param {string} action  What the button says.
 * @returns {Promise<string | null>}
 */
export function askForText(title, value, action) {
  const field = make("input", "", { value, maxLength: 1000, required: true, "aria-label": title });
  return open(title, [field], action, "primary").then((isWanted) => (isWanted ? field.value : null));
}

/**
 * Ask whether something is to be done.
 * @param {string} title
 * @param {string} words  What it costs.
 * @param {string} action
 * @returns {Promise<boolean>}
 */
export function askWhether(title, words, action) {
  return open(title, [make("p", "", { textContent: words })], action, "danger");
}

/**
 * Show something over the page until it is closed.
 * @param {string} title
 * @param {Node[]} content
 * @param {Node[]} tools
 */
export function show(title, content, tools) {
  const close = make("button", "", { type: "submit", textContent: "Close" });
  void opened(make("form", "", { method: "dialog" }, heading(title), ...content, make("div", "choices", {}, ...tools, make("span", "spring"), close)), "wide", title);
}

/**
 * @param {string} title
 * @param {Node[]} content
 * @param {string} action
 * @param {string} look
 * @returns {Promise<boolean>}
 */
function open(title, content, action, look) {
  const cancel = make("button", "", { type: "button", textContent: "Cancel" });
  const yes = make("button", look, { type: "submit", value: "yes", textContent: action });
  const form = make("form", "", { method: "dialog" }, heading(title), ...content, make("div", "choices", {}, make("span", "spring"), cancel, yes));
  cancel.addEventListener("click", () => /** @type {HTMLDialogElement} */ (form.parentElement).close(""));
  return opened(form, "", title).then((answer) => answer === "yes");
}

/** @param {string} title */
function heading(title) {
  return make("h2", "", { textContent: title });
}

/**
 * @param {HTMLElement} content
 * @param {string} name
 * @param {string} label
 * @returns {Promise<string>}
 */
function opened(content, name, label) {
  const dialog = make("dialog", name, { "aria-label": label }, content);
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
    dialog.showModal();
  });
}
