/** The working folder of the session: files up by drop, down by a press. */

import { ask, fileAddress, sessionPath } from "./api.js";
import { make } from "./dom.js";
import { say } from "./toast.js";

/** Looks when it is told to. */
export class FilesPanel {
  #sessionId;
  #list = make("ul", "files");

  /**
   * @param {string} sessionId
   * @param {(name: string) => void} onUploaded
   */
  constructor(sessionId, onUploaded) {
    this.#sessionId = sessionId;
    this.onUploaded = onUploaded;
    this.element = make("section", "files-panel", { "aria-label": "Files" }, make("h2", "", { textContent: "Files" }), this.#list, make("p", "quiet", { textContent: "Drop files anywhere to add them." }));
    addEventListener("dragover", (event) => event.preventDefault());
    addEventListener("drop", (event) => {
      event.preventDefault();
      if (this.element.isConnected) void this.upload([...(event.dataTransfer?.files ?? [])]);
    });
    void this.refresh();
  }

  /** @param {File[]} files */
  async upload(files) {
    for (const file of files) {
      try {
        await ask("PUT", sessionPath(this.#sessionId, `/files/${encodeURIComponent(file.name)}`), file);
        say(`${file.name} is in the working folder.`);
        this.onUploaded(file.name);
      } catch (error) {
        say(`${file.name}: ${error instanceof Error ? error.message : error}`, "error");
      }
    }
    await this.refresh();
  }

  async refresh() {
    try {
      const { files } = await ask("GET", sessionPath(this.#sessionId, "/files"));
      this.#list.replaceChildren(...files.map((/** @type {any} */ file) => this.#row(file)));
    } catch {
      // Said elsewhere.
    }
  }

  /** @param {{ path: string, size_bytes: number }} file */
  #row({ path, size_bytes: size }) {
    return make("li", "", {}, make("a", "", { href: fileAddress(this.#sessionId, path), download: "", textContent: path }), make("span", "quiet", { textContent: bytes(size) }));
  }
}

/** @param {number} count */
function bytes(count) {
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
