/**
 * HTML of running code, in a frame that can reach nothing and is as high as what it shows.
 *
 * The server adds to such a document a line that says its height; that number is all we hear of it.
 */

import { make } from "./dom.js";

const MIN_PIXELS = 24;
const MAX_PIXELS = 640;

/** @type {WeakMap<MessageEventSource, HTMLIFrameElement>} */
const frames = new WeakMap();

addEventListener("message", (event) => {
  const frame = event.source && frames.get(event.source);
  const height = event.data?.taskweaver_height;
  if (!frame || typeof height !== "number" || !Number.isFinite(height)) return;
  frame.style.height = `${Math.min(MAX_PIXELS, Math.max(MIN_PIXELS, Math.ceil(height)))}px`;
});

/**
 * Make the frame of a document that the server serves in a sandbox.
 * @param {string} address
 * @param {string} title  For screen readers.
 */
export function htmlFrame(address, title) {
  const frame = make("iframe", "html-display", { src: address, title, loading: "lazy" });
  frame.setAttribute("sandbox", "allow-scripts");
  frame.addEventListener("load", () => {
    if (frame.contentWindow) frames.set(frame.contentWindow, frame);
    frame.contentWindow?.postMessage("taskweaver_height", "*");
  });
  return frame;
}
