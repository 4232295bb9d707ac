/**
 * Markdown, code, formulas and tables as HTML, made and cleaned by the server, asked for once each.
 *
 * The only place where markup becomes elements: all of it comes from our own server's sanitiser.
 */

import { ask } from "./api.js";

const MAX_KEPT = 500;
const MAX_AT_ONCE = 50;

/** @typedef {"markdown"|"code"|"latex"|"html"} RenderKind */
/** @typedef {{ kind: RenderKind, text: string, language?: string }} RenderItem */

/** @type {Map<string, Promise<string>>} */
const kept = new Map();
/** @type {{ item: RenderItem, resolve: (html: string) => void, reject: (error: unknown) => void }[]} */
let waiting = [];

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
  try {
    const html = await rendered(key, language ? { kind, text, language } : { kind, text });
    // It may have changed while we waited.
    if (element.dataset.source === text) element.innerHTML = html;
  } catch {
    kept.delete(key);
  }
}

/**
 * @param {string} key
 * @param {RenderItem} item
 */
function rendered(key, item) {
  const known = kept.get(key);
  if (known) return known;
  const html = /** @type {Promise<string>} */ (
    new Promise((resolve, reject) => {
      if (waiting.length === 0) setTimeout(askForAll);
      waiting.push({ item, resolve, reject });
    })
  );
  kept.set(key, html);
  if (kept.size > MAX_KEPT) kept.delete(/** @type {string} */ (kept.keys().next().value));
  return html;
}

/** Ask for everything that came together in as few requests as the server allows. */
async function askForAll() {
  const all = waiting;
  waiting = [];
  for (let first = 0; first < all.length; first += MAX_AT_ONCE) {
    const some = all.slice(first, first + MAX_AT_ONCE);
    try {
      const { html } = await ask("POST", "/render", { items: some.map(({ item }) => item) });
      some.forEach(({ resolve }, at) => resolve(html[at]));
    } catch (error) {
      some.forEach(({ reject }) => reject(error));
    }
  }
}
