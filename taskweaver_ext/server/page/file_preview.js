/** A look at a file of the working folder, without leaving the page. */

import { ApiError, fileAddress } from "./api.js";
import { show } from "./dialogs.js";
import { make } from "./dom.js";
import { htmlFrame } from "./html_frame.js";
import { renderInto } from "./rendered.js";

const MAX_BYTES = 256 * 1024;
const DOCUMENT = /\.(html?|svg)$/i;
const PICTURE = /\.(png|jpe?g|gif|webp|avif)$/i;
const LANGUAGES = /** @type {Record<string, string>} */ ({ py: "python", sh: "bash", js: "javascript", ts: "typescript", json: "json", sql: "sql", yaml: "yaml", yml: "yaml", toml: "toml", html: "html", css: "css" });

/**
 * Show a file: pictures and documents as such, texts from their beginning, of others their size.
 * @param {string} sessionId
 * @param {string} path
 */
export async function previewFile(sessionId, path) {
  const address = fileAddress(sessionId, path);
  const download = make("a", "file", { href: `${address}?download=true`, download: path.split("/").at(-1) ?? "", textContent: "Download" });
  show(path, [await content(address, path)], [download]);
}

/**
 * @param {string} address
 * @param {string} path
 * @returns {Promise<HTMLElement>}
 */
async function content(address, path) {
  if (PICTURE.test(path)) return make("img", "picture", { src: address, alt: path });
  if (DOCUMENT.test(path)) return htmlFrame(address, path);
  const response = await fetch(address, { credentials: "same-origin" }).catch(() => null);
  if (!response?.ok) throw new ApiError(response?.status ?? 0, `${path} cannot be read.`);
  if (!response.headers.get("content-type")?.startsWith("text/plain")) {
    void response.body?.cancel();
    return make("p", "quiet", { textContent: "This kind of file cannot be shown here." });
  }
  return text(await beginning(response), path);
}

/**
 * @param {string} words
 * @param {string} path
 */
function text(words, path) {
  const suffix = path.split(".").at(-1) ?? "";
  if (suffix === "md") {
    const place = make("div", "preview message-body", { textContent: words });
    void renderInto(place, "markdown", words);
    return place;
  }
  const code = make("code", "", { textContent: words });
  const language = LANGUAGES[suffix];
  if (language) void renderInto(code, "code", words, language);
  return make("pre", "preview", { tabIndex: 0 }, code);
}

/** Read the first part of an answer, and no more of it. @param {Response} response */
async function beginning(response) {
  const reader = response.body?.getReader();
  const decoder = new TextDecoder();
  let words = "";
  let size = 0;
  while (reader) {
    const { value, done } = await reader.read();
    if (done) return words + decoder.decode();
    size += value.length;
    words += decoder.decode(value, { stream: true });
    if (size >= MAX_BYTES) {
      void reader.cancel();
      return `${words}\n… (only the beginning is shown)`;
    }
  }
  return words;
}
