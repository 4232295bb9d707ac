/** Making elements: text is text, never markup. */

/** @typedef {Node | string | null | undefined | false} Child */

/**
 * Make an element with its class, properties and children.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {string} [name]  Its classes.
 * @param {Partial<HTMLElementTagNameMap[Tag]> & Record<string, any>} [properties]  Those with a dash are attributes.
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, name = "", properties = {}, ...children) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes("-")) element.setAttribute(key, String(value));
    else /** @type {any} */ (element)[key] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/**
 * Make a button that does something; while it is at it, it cannot be pressed again.
 * @param {string} label
 * @param {() => unknown} act
 * @param {string} [name]
 */
export function button(label, act, name = "quiet") {
  const element = make("button", name, { type: "button", textContent: label });
  element.addEventListener("click", async () => {
    element.disabled = true;
    try {
      await act();
    } finally {
      element.disabled = false;
    }
  });
  return element;
}

/**
 * Set a text only where it differs, so that a selection in it stays.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A number of bytes in few characters. @param {number} count */
export function byteCount(count) {
  if (count < 1000) return `${count} B`;
  const units = ["kB", "MB", "GB"];
  let at = -1;
  let size = count;
  while (size >= 1000 && at < units.length - 1) {
    size /= 1000;
    at += 1;
  }
  return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${units[at]}`;
}
