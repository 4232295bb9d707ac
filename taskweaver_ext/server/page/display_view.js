/** Shows what code displays: pictures, tables, Markdown, formulas, JSON, HTML in a frame of its own. */

import { displayAddress } from "./api.js";
import { make } from "./dom.js";
import { htmlFrame } from "./html_frame.js";
import { jsonTree } from "./json_tree.js";
import { renderInto } from "./rendered.js";
import { makeSortable } from "./sortable_table.js";

/** @typedef {import("./conversation.js").DisplayOutput} DisplayOutput */

const PICTURES = ["image/svg+xml", "image/png", "image/jpeg", "image/gif", "image/webp"];
const WIDGET = "application/vnd.jupyter.widget-view+json";
const MAX_INLINE_TABLE_CHARS = 2_000_000;

/** One display, drawn anew when it is updated. */
export class DisplayView {
  #display;
  #sessionId;
  #drawnSeq = -1;

  /**
   * @param {DisplayOutput} display
   * @param {string} sessionId
   */
  constructor(display, sessionId) {
    this.#display = display;
    this.#sessionId = sessionId;
    this.element = make("div", "display");
    this.update();
  }

  update() {
    if (this.#drawnSeq === this.#display.seq) return;
    this.#drawnSeq = this.#display.seq;
    this.element.replaceChildren(...this.#draw());
  }

  /** @returns {HTMLElement[]} */
  #draw() {
    const { bundle, files } = this.#display;
    const has = (/** @type {string} */ type) => type in bundle || type in files;
    const plain = String(bundle["text/plain"] ?? "");
    if (has(WIDGET)) return [asText(plain), note("A widget, which is not interactive here: this is its text.")];
    const picture = PICTURES.find(has);
    if (picture) return [this.#picture(picture, plain)];
    if (has("text/html")) return [this.#html(String(bundle["text/html"] ?? ""), plain)];
    if (has("text/markdown")) return [rendered("markdown", String(bundle["text/markdown"] ?? plain))];
    if (has("text/latex")) return [rendered("latex", String(bundle["text/latex"] ?? plain))];
    if (has("application/json")) return [jsonTree(bundle["application/json"])];
    return plain ? [asText(plain)] : [note(`Shown as ${Object.keys({ ...bundle, ...files }).join(", ")}.`)];
  }

  /**
   * @param {string} type
   * @param {string} plain
   */
  #picture(type, plain) {
    const address = displayAddress(this.#sessionId, this.#display.seq, type);
    const alt = plain && !plain.startsWith("<") ? plain : "A picture that the code has drawn";
    const image = make("img", "picture", { src: address, alt, loading: "lazy" });
    return make("a", "picture-link", { href: address, target: "_blank", rel: "noopener" }, image);
  }

  /**
   * Tables of data come into the page, cleaned, so that they can be sorted; other HTML may hold
   * scripts, and lives in a frame that can reach nothing.
   * @param {string} html
   * @param {string} plain
   */
  #html(html, plain) {
    const isTable = /<table[^>]*class="[^"]*\bdataframe\b/.test(html) && !/<script/i.test(html);
    if (isTable && html.length < MAX_INLINE_TABLE_CHARS) {
      const place = make("div", "table-display", { textContent: plain });
      void renderInto(place, "html", html).then(() => makeSortable(place));
      return place;
    }
    return htmlFrame(`${displayAddress(this.#sessionId, this.#display.seq, "text/html")}&framed=true`, "HTML that the code displays");
  }
}

/**
 * @param {import("./rendered.js").RenderKind} kind
 * @param {string} text
 */
function rendered(kind, text) {
  const place = make("div", `${kind}-display`, { textContent: text });
  void renderInto(place, kind, text);
  return place;
}

/** @param {string} text */
function asText(text) {
  return make("pre", "plain-display", { textContent: text, tabIndex: 0 });
}

/** @param {string} text */
function note(text) {
  return make("p", "quiet", { textContent: text });
}
