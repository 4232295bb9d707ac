/** JSON as a tree that opens step by step; large ones are made as far as they are opened. */

import { make } from "./dom.js";

const MAX_ENTRIES = 200;
const MAX_TEXT = 2000;

/**
 * Make the tree of a value.
 * @param {unknown} value
 * @param {string} [name]
 * @param {boolean} [isOpen]
 * @returns {HTMLElement}
 */
export function jsonTree(value, name = "", isOpen = true) {
  const label = name ? `${name}: ` : "";
  if (typeof value !== "object" || value === null) {
    const text = JSON.stringify(value) ?? String(value);
    const shown = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text;
    const leaf = make("span", `json-${value === null ? "null" : typeof value}`, { textContent: shown });
    return make("div", "json-leaf", {}, label, leaf);
  }
  const entries = Object.entries(value);
  const size = Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`;
  const node = make("details", "json-node", {}, make("summary", "", {}, label, make("span", "quiet", { textContent: size })));
  const fill = () => {
    if (!node.open || node.children.length > 1) return;
    node.append(...entries.slice(0, MAX_ENTRIES).map(([key, inner]) => jsonTree(inner, key, false)));
    const more = entries.length - MAX_ENTRIES;
    if (more > 0) node.append(make("p", "quiet", { textContent: `and ${more.toLocaleString()} more` }));
  };
  node.addEventListener("toggle", fill);
  node.open = isOpen && entries.length > 0;
  fill();
  return node;
}
