/**
 * Shows an output: a short one as wrapped lines, a long one as a list of which only the rows in
 * sight exist. Follows the end until the reader scrolls up, and again once they are back there.
 */

import { runsOf, styleElement } from "./terminal_colors.js";

/** An output with more rows than this is a list with a height of its own. */
const MAX_SHORT_ROWS = 200;
/** Of a longer line only this much is drawn; the record has it whole. */
const MAX_DRAWN_CHARS = 4000;
/** Browsers do not draw far beyond this; a longer list scrolls in proportion. */
const MAX_HEIGHT_PIXELS = 4_000_000;
const SPARE_ROWS = 20;
const AT_END_PIXELS = 4;

/** @typedef {import("./output_store.js").OutputStore} OutputStore */
/** @typedef {import("./output_store.js").Row} Row */

/** Draws one store into an element; at most once per frame, and only while it is in sight. */
export class OutputView {
  /** @type {HTMLElement} */
  element;
  /** Whether the end is kept in sight as output comes. */
  isFollowing = true;

  #store;
  #list = make("div", "output-list");
  #space = make("div", "output-space");
  #rows = make("div", "output-rows");
  #jump = /** @type {HTMLButtonElement} */ (make("button", "output-jump"));
  #isAsked = false;
  #isVisible = false;
  #rowHeight = 0;
  #drawnShort = 0;
  #drawnTop = 0;
  #marked = -1;
  #observer;

  /**
   * @param {OutputStore} store
   * @param {string} label  What a screen reader calls it.
   */
  constructor(store, label) {
    this.#store = store;
    this.element = make("div", "output");
    this.#list.tabIndex = 0;
    this.#list.setAttribute("role", "group");
    this.#list.setAttribute("aria-label", label);
    this.#jump.type = "button";
    this.#jump.textContent = "Follow the end";
    this.#jump.hidden = true;
    this.#jump.addEventListener("click", () => this.follow());
    this.#list.append(this.#space, this.#rows);
    this.element.append(this.#list, this.#jump);
    this.#list.addEventListener("scroll", () => this.#onScroll(), { passive: true });
    this.#observer = new IntersectionObserver(([entry]) => {
      this.#isVisible = entry.isIntersecting;
      if (this.#isVisible) this.ask();
    });
    this.#observer.observe(this.element);
    store.onChange = () => this.ask();
    this.ask();
  }

  /** Draw before the next frame. */
  ask() {
    if (this.#isAsked) return;
    this.#isAsked = true;
    requestAnimationFrame(() => {
      this.#isAsked = false;
      this.#draw();
    });
  }

  /** Keep the end in sight from now on. */
  follow() {
    this.isFollowing = true;
    this.ask();
  }

  /**
   * Bring a row into sight and mark it, as a search does.
   * @param {number} row
   */
  show(row) {
    this.#marked = row;
    this.isFollowing = false;
    if (this.#isLong) this.#list.scrollTop = this.#offsetOf(row) - this.#list.clientHeight / 2;
    this.#drawnShort = 0;
    this.ask();
  }

  /** Let go of the store. */
  close() {
    this.#observer.disconnect();
    this.#store.onChange = () => {};
  }

  get #isLong() {
    return this.#store.rowCount > MAX_SHORT_ROWS;
  }

  #draw() {
    const count = this.#store.rowCount;
    this.element.hidden = count === 0;
    this.element.classList.toggle("long", this.#isLong);
    if (!this.#isLong) this.#drawShort();
    else if (this.#isVisible) this.#drawLong(count);
  }

  /** Lines that are complete are drawn once; those that may change are drawn anew. */
  #drawShort() {
    const complete = this.#store.lineCount;
    if (this.#drawnShort > complete || this.#drawnShort === 0) {
      this.#rows.replaceChildren();
      this.#drawnShort = 0;
      this.#rows.style.transform = "";
      this.#space.style.height = "";
    }
    while (this.#rows.children.length > this.#drawnShort) this.#rows.lastElementChild?.remove();
    const rows = this.#store.rows(this.#drawnShort, this.#store.rowCount);
    this.#rows.append(...rows.map((row, at) => this.#element(row, this.#drawnShort + at)));
    this.#drawnShort = complete;
    this.#jump.hidden = true;
  }

  /** @param {number} count */
  #drawLong(count) {
    this.#drawnShort = 0;
    this.#rowHeight ||= this.#measure();
    const height = Math.min(count * this.#rowHeight, MAX_HEIGHT_PIXELS);
    this.#space.style.height = `${height}px`;
    const seen = this.#list.clientHeight;
    if (this.isFollowing) this.#list.scrollTop = height;
    const top = this.#drawnTop = this.#list.scrollTop;
    const inSight = Math.ceil(seen / this.#rowHeight);
    const share = height > seen ? Math.min(1, top / (height - seen)) : 0;
    const firstInSight = Math.round(share * Math.max(0, count - inSight));
    const first = Math.max(0, firstInSight - SPARE_ROWS);
    const rows = this.#store.rows(first, Math.min(count, firstInSight + inSight + SPARE_ROWS));
    this.#rows.replaceChildren(...rows.map((row, at) => this.#element(row, first + at)));
    const lastPage = share === 1 ? height - (count - first) * this.#rowHeight : null;
    const offset = lastPage ?? top - (firstInSight - first) * this.#rowHeight;
    this.#rows.style.transform = `translateY(${Math.max(0, offset)}px)`;
    this.#jump.hidden = this.isFollowing;
  }

  /** @param {number} row */
  #offsetOf(row) {
    const count = this.#store.rowCount;
    const height = Math.min(count * this.#rowHeight, MAX_HEIGHT_PIXELS);
    return (row / Math.max(1, count)) * height;
  }

  #onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.#list;
    const isAtEnd = scrollTop + clientHeight >= scrollHeight - AT_END_PIXELS;
    // An end that has moved on meanwhile is no reason to let go: only the reader scrolls up.
    if (isAtEnd) this.isFollowing = true;
    else if (scrollTop < this.#drawnTop) this.isFollowing = false;
    this.ask();
  }

  #measure() {
    const row = this.#element({ stream: "stdout", line: "M" }, -1);
    this.#rows.replaceChildren(row);
    return row.getBoundingClientRect().height || 18;
  }

  /**
   * @param {Row | null} row
   * @param {number} number
   */
  #element(row, number) {
    const element = make("div", "output-row");
    if (row === null) {
      element.classList.add("absent");
      element.textContent = "⋯";
      return element;
    }
    if (row.stream === "stderr") element.classList.add("stderr");
    if (number === this.#marked) element.classList.add("marked");
    let room = MAX_DRAWN_CHARS;
    for (const [style, text] of runsOf(row.line)) {
      const drawn = text.slice(0, room);
      room -= drawn.length;
      element.append(style ? styled(drawn, style) : drawn);
      if (room <= 0) {
        element.append(` … (a line of more than ${MAX_DRAWN_CHARS.toLocaleString()} characters)`);
        break;
      }
    }
    return element;
  }
}

/**
 * @param {string} text
 * @param {string} style
 */
function styled(text, style) {
  const span = document.createElement("span");
  styleElement(span, style);
  span.textContent = text;
  return span;
}

/**
 * @param {string} tag
 * @param {string} name
 */
function make(tag, name) {
  const element = document.createElement(tag);
  element.className = name;
  return element;
}
