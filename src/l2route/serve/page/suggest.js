// Labels to choose from while a query is typed: an ARIA combobox.
import { shortened } from "./map.js";
import { make } from "./walk.js";

const WAIT = 120; // milliseconds after the last letter

/** Suggestions under an input field. */
export class Suggestions {
  /**
   * @param {HTMLInputElement} input the field, whose list is named by its aria-controls.
   * @param {(text: string) => Promise<{id: string, name: string}[]>} find labels for a text.
   * @param {(label: {id: string, name: string}) => void} choose called with the label chosen.
   */
  constructor(input, find, choose) {
    Object.assign(this, { input, find, choose, labels: [], active: -1, asked: 0 });
    this.list = document.getElementById(input.getAttribute("aria-controls"));
    input.addEventListener("input", () => this.wait());
    input.addEventListener("keydown", (event) => this.onKey(event));
    input.addEventListener("blur", () => this.close());
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // keeps the focus
    this.list.addEventListener("click", (event) => {
      const option = event.target.closest("li");
      if (option) this.take(Number(option.dataset.at));
    });
  }

  wait() {
    clearTimeout(this.timer);
    const text = this.input.value.trim();
    this.asked += 1;
    if (!text || text.length > 200) return this.close();
    this.timer = setTimeout(() => this.ask(text, this.asked), WAIT);
    return undefined;
  }

  async ask(text, number) {
    const labels = await this.find(text).catch(() => []);
    if (number !== this.asked || document.activeElement !== this.input) return;
    this.show(labels);
  }

  show(labels) {
    [this.labels, this.active] = [labels, -1];
    this.list.replaceChildren(
      ...labels.map(({ id, name }, at) =>
        make(
          "li",
          { id: `suggestion-${at}`, role: "option", "aria-selected": "false", "data-at": at },
          make("span", {}, shortened(name, 80)),
          make("span", {}, `id ${id}`),
        ),
      ),
    );
    this.list.hidden = labels.length === 0;
    this.input.setAttribute("aria-expanded", String(labels.length > 0));
    this.input.removeAttribute("aria-activedescendant");
  }

  close() {
    clearTimeout(this.timer);
    this.asked += 1; // an answer that is under way comes too late
    this.show([]);
  }

  onKey(event) {
    const n = this.labels.length;
    if (event.key === "Escape" && n > 0) {
      event.preventDefault();
      this.close();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && n > 0) {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.point((this.active + step + (this.active < 0 && step < 0 ? 1 : 0) + n) % n);
    } else if (event.key === "Enter" && this.active >= 0) {
      event.preventDefault();
      this.take(this.active);
    }
  }

  point(at) {
    this.active = at;
    [...this.list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === at)));
    this.list.children[at].scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", `suggestion-${at}`);
  }

  take(at) {
    const label = this.labels[at];
    this.close();
    this.choose(label);
  }
}
