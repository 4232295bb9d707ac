/** The working folder of the session: files up by drop, seen and taken down by a press. */

import { ask, fileAddress, sessionPath } from "./api.js";
import { byteCount, make } from "./dom.js";
import { previewFile } from "./file_preview.js";
import { say } from "./toast.js";

const MAX_SHOWN = 200;

/** Looks when it is told to. */
export class FilesPanel {
  #sessionId;
  #list = make("ul", "files");
  #more = make("p", "quiet");
  #end = new AbortController();

  /**
   * @param {string} sessionId
   * @param {(name: string) => void} onUploaded
   */
  constructor(sessionId, onUploaded) {
    this.#sessionId = sessionId;
    this.onUploaded = onUploaded;
    this.element = make("section", "files-panel", { "aria-label": "Files" }, make("h2", "", { textContent: "Files" }), this.#list, this.#more);
    const { signal } = this.#end;
    addEventListener("dragover", (event) => event.preventDefault(), { signal });
    addEventListener("drop", (event) => {
      event.preventDefault();
      void this.upload([...(event.dataTransfer?.files ?? [])]);
    }, { signal });
    void this.refresh();
  }

  close() {
    this.#end.abort();
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
      const { files, is_complete: isComplete } = await ask("GET", sessionPath(this.#sessionId, "/files"));
      this.#list.replaceChildren(...files.slice(0, MAX_SHOWN).map((/** @type {any} */ file) => this.#row(file)));
      const isAll = isComplete && files.length <= MAX_SHOWN;
      this.#more.textContent = isAll ? "Drop files anywhere to add them." : `The first ${Math.min(MAX_SHOWN, files.length)} files.`;
    } catch {
      // Said elsewhere.
    }
  }

  /** @param {{ path: string, size_bytes: number }} file */
  #row({ path, size_bytes: size }) {
    const look = make("a", "", { href: fileAddress(this.#sessionId, path), textContent: path });
    look.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey) return;
      event.preventDefault();
      previewFile(this.#sessionId, path).catch((error) => say(error.message, "error"));
    });
    return make("li", "", {}, look, make("span", "quiet", { textContent: byteCount(size) }));
  }
}
