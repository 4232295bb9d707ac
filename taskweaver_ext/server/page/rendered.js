/**
 * Markdown, code, formulas and tables as HTML, made and cleaned by the server, asked for once each.
 *
 * The only place where markup becomes elements: all of it comes from our own server's sanitiser.
 */

import { ask } from "./api.js";

const MAX_KEPT = 500;

/** @typedef {"markdown"|"code"|"latex"|"html"} RenderKind */

/** @type {Map<string, Promise<string>>} */
const kept = new Map();

/**
 * Fill an element with a text made into HTML; it keeps its plain text until that is there, and
 * where the server cannot be asked.
 * @param {HTMLElement} element
 * @param {RenderKind} kind
 * @param {string} text
 * @param {string} [language]
 */
export async function renderInto(element, kind, text, language = "") {
  element.dataset.source = text;
  const key = `${kind}\n${language}\n${text}`;
  let html = kept.get(key);
  if (!html) {
    html = ask("POST", "/render", { kind, text, language }).then((answer) => answer.html);
    kept.set(key, html);
    if (kept.size > MAX_KEPT) kept.delete(/** @type {string} */ (kept.keys().next().value));
  }
  try {
    const made = await html;
    // It may have changed while we waited.
    if (element.dataset.source === text) element.innerHTML = made;
  } catch {
    kept.delete(key);
  }
}
