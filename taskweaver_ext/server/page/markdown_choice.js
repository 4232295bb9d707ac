/** Which kinds of blocks are drawn as Markdown unless a block says otherwise; this browser keeps it. */

/** @typedef {"agent"|"python"|"shell"} BlockKind */

const KEY = "taskweaver-markdown";
/** @type {Record<BlockKind, boolean>} */
const chosen = { agent: true, python: false, shell: false, ...kept() };

/** Tells views that they may be drawn otherwise now. */
export const choices = new EventTarget();

/** @param {BlockKind} kind */
export function isMarkdown(kind) {
  return chosen[kind];
}

/**
 * @param {BlockKind} kind
 * @param {boolean} isOn
 */
export function chooseMarkdown(kind, isOn) {
  chosen[kind] = isOn;
  try {
    localStorage.setItem(KEY, JSON.stringify(chosen));
  } catch {
    // A browser that keeps nothing has it for this page.
  }
  choices.dispatchEvent(new Event("change"));
}

function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}");
  } catch {
    return {};
  }
}
