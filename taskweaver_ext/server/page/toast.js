/** Short messages that come and go, for eyes and screen readers. */

import { make } from "./dom.js";

const SECONDS = 8;

const place = make("div", "toasts", { role: "status", "aria-live": "polite" });

/**
 * Say something for a while.
 * @param {string} text
 * @param {"note"|"error"} [tone]
 */
export function say(text, tone = "note") {
  if (!place.isConnected) document.body.append(place);
  const toast = make("p", `toast ${tone}`, { textContent: text });
  place.append(toast);
  setTimeout(() => toast.remove(), SECONDS * 1000);
}
