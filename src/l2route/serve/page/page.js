// The page: search by label, id or vector, and watch the walk. Text is inserted as text only.
import { Chart } from "./chart.js";
import { shortened } from "./map.js";
import { Suggestions } from "./suggest.js";
import { Walks, make, titleOf } from "./walk.js";

const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const COLOURS = ["plain", "learned"];

/** The answer of the server to a request, or an error in plain words. */
async function ask(path, body) {
  const options = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let response;
  try {
    response = await fetch(`page/${path}`, options || {});
  } catch {
    throw new Error("The server does not answer.");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  throw new Error(reasonOf(answer) || `The server answered with status ${response.status}.`);
}

function reasonOf(answer) {
  const reason = answer?.error?.message ?? answer?.error ?? answer?.detail;
  if (Array.isArray(reason)) return reason.map((each) => each.msg).join("; ");
  return typeof reason === "string" ? reason : null;
}

/** The page's state: what was asked for last, and what is drawn. */
class Page {
  async start() {
    this.setUpTheme();
    byId("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.search();
    });
    byId("query").addEventListener("input", () => (this.chosen = null));
    byId("limit").addEventListener("change", () => this.search());
    byId("k").addEventListener("change", () => {
      this.search();
      this.showCurve();
    });
    new Suggestions(
      byId("query"),
      (text) => ask(`labels?text=${encodeURIComponent(text)}`),
      (label) => this.searchFor(label),
    );
    try {
      this.about = await ask("about");
    } catch (error) {
      this.tell(error.message);
      return;
    }
    this.showAbout();
    const asked = new URLSearchParams(window.location.search).get("q");
    if (asked) byId("query").value = asked;
    if (asked) await this.search();
    else if (this.about.examples.length > 0) await this.searchFor(this.about.examples[0]);
    await this.showCurve();
  }

  setUpTheme() {
    const root = document.documentElement;
    const system = window.matchMedia("(prefers-color-scheme: dark)");
    const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
    const show = () => {
      byId("theme").textContent = isDark() ? "Light" : "Dark";
      byId("theme").setAttribute("aria-label", `Use ${isDark() ? "light" : "dark"} colours`);
      this.walks?.draw();
    };
    try {
      const kept = localStorage.getItem("theme");
      if (kept) root.dataset.theme = kept;
    } catch {
      // without storage the choice is forgotten
    }
    byId("theme").addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem("theme", root.dataset.theme);
      } catch {
        // without storage the choice is forgotten
      }
      show();
    });
    system.addEventListener("change", show);
    show();
  }

  showAbout() {
    const { n_vectors: n, dim, metric, spaces, n_labels: nLabels, limits, examples } = this.about;
    const parts = [`${whole.format(n)} vectors`, `${dim} dimensions`, metric, `spaces: ${spaces.join(", ")}`];
    byId("about").textContent = parts.join(" · ");
    const kinds = nLabels > 0 ? "a label, an id or a vector" : "an id or a vector";
    byId("query").placeholder = `${kinds}, such as 0.1, −0.2, …`;
    byId("limit").replaceChildren(
      ...limits.map(({ text, is_default: isDefault }, i) =>
        make("option", { value: i, selected: isDefault ? "" : null }, text),
      ),
    );
    const buttons = examples.map((label) => {
      const button = make("button", { type: "button" }, shortened(label.name, 24));
      button.addEventListener("click", () => this.searchFor(label));
      return button;
    });
    const separated = buttons.flatMap((button, i) => (i > 0 ? [", ", button] : [button]));
    byId("help").replaceChildren(...(buttons.length > 0 ? ["Try ", ...separated, "."] : []));
  }

  /** Searches for a label that was chosen from a list. */
  async searchFor(label) {
    byId("query").value = label.name;
    this.chosen = label;
    await this.search();
  }

  async search() {
    const [text, k] = [byId("query").value.trim(), Number(byId("k").value)];
    if (!text || !this.about) return;
    const { text: _, is_default: __, ...limits } = this.about.limits[Number(byId("limit").value)];
    const button = document.querySelector(".go");
    this.asked = (this.asked || 0) + 1;
    const number = this.asked;
    button.setAttribute("aria-busy", "true");
    try {
      const answer = await ask("explain", { text, id: this.chosen?.id ?? null, k, ...limits });
      if (number === this.asked) this.show(answer);
    } catch (error) {
      if (number === this.asked) this.tell(error.message);
    } finally {
      if (number === this.asked) button.removeAttribute("aria-busy");
    }
  }

  tell(message) {
    byId("message").textContent = message;
    byId("message").hidden = !message;
  }

  show({ name, explanation }) {
    this.tell("");
    byId("result").hidden = false;
    byId("answers").hidden = false;
    byId("headline").textContent = name;
    document.title = `${shortened(name, 40)} · l2route`;
    const url = new URL(window.location.href);
    url.searchParams.set("q", byId("query").value.slice(0, 2000));
    window.history.replaceState(null, "", url);
    this.showSummary(explanation);
    this.walks?.destroy();
    this.walks = new Walks(byId("walks"), explanation, { plays: true });
    this.showAnswers(explanation);
  }

  showSummary({ walks, neighbors, n_vectors: n }) {
    const costs = walks.map(({ n_computed: computed }) => whole.format(computed[computed.length - 1]));
    const told = (walk, i) => {
      const found = Math.round(walk.recalls[walk.recalls.length - 1] * neighbors.length);
      const cost = i === 0 || costs[i] !== costs[0] ? [" with ", make("b", {}, costs[i]), " distance computations"] : [];
      return [
        i === 0 ? "the plain walk finds " : `, the ${titleOf(walk).toLowerCase()} finds `,
        make("b", {}, i === 0 ? `${found} of the ${neighbors.length}` : String(found)),
        i === 0 ? " nearest" : "",
        ...cost,
      ];
    };
    byId("summary").replaceChildren(`Among ${whole.format(n)} vectors, `, ...walks.flatMap(told), ".");
  }

  showAnswers(data) {
    const head = ["", "answer", "distance", ...data.walks.map((walk) => titleOf(walk).split(" ")[0].toLowerCase())];
    byId("answers-head").replaceChildren(...head.map((text) => make("th", { scope: "col" }, text)));
    const last = data.walks[data.walks.length - 1];
    const answers = new Set(last.answers);
    const missed = data.neighbors.filter((point) => !answers.has(point));
    const rows = [...last.answers, ...missed].sort((a, b) => data.distances[a] - data.distances[b]);
    byId("answers-body").replaceChildren(...rows.map((point) => this.rowOf(data, point, answers.has(point))));
    const isMissing = missed.length > 0;
    byId("answers-note").textContent = isMissing
      ? `Grey: nearer than an answer, but missed by the ${titleOf(last).toLowerCase()}.`
      : `All ${data.neighbors.length} nearest vectors were found.`;
    this.answers = last.answers;
  }

  rowOf(data, point, isAnswer) {
    const button = make("button", { type: "button", title: shortened(data.names[point], 200) }, shortened(data.names[point], 80));
    button.addEventListener("click", () => this.searchFor({ id: data.ids[point], name: data.names[point] }));
    const last = data.walks[data.walks.length - 1];
    const hops = data.walks.map((walk) => {
      const at = walk.visited.indexOf(point);
      const isFound = at >= 0;
      return make("td", { class: isFound ? "hop found" : "hop" }, isFound ? `hop ${walk.hops[at]}` : "missed");
    });
    return make(
      "tr",
      isAnswer ? {} : { class: "missed" },
      make("td", { class: "rank" }, isAnswer ? String(last.answers.indexOf(point) + 1) : "–"),
      make("td", { class: "name" }, button),
      make("td", { class: "distance" }, digits.format(data.distances[point])),
      ...hops,
    );
  }

  async showCurve() {
    const k = Number(byId("k").value);
    try {
      const { curves, reason } = await ask(`curve?k=${k}`);
      this.curve?.destroy();
      byId("curve-note").textContent = reason ?? this.curveNote(curves);
      byId("curve-legend").replaceChildren();
      if (curves.length > 0) this.drawCurves(curves, k);
    } catch (error) {
      byId("curve-note").textContent = error.message;
    }
  }

  curveNote(curves) {
    const mean = `Mean of ${whole.format(curves[0].n_queries)} validation queries, by beam width.`;
    if (curves.some((curve) => curve.chosen.length > 0)) return mean;
    return `${mean} No setting that reaches a recall@${curves[0].k} has been measured yet: see l2route calibrate.`;
  }

  drawCurves(curves, k) {
    const recalls = curves.flatMap((curve) => curve.points.map((point) => point.recall));
    const series = curves.map((curve, i) => ({
      colour: COLOURS[i],
      points: curve.points.map((point) => [point.n_computed, point.recall]),
      marks: curve.chosen.map((point) => ({
        x: point.n_computed,
        y: point.recall,
        text: `recall=${point.target} → ${point.recall.toFixed(3)}`,
      })),
    }));
    const options = {
      title: `Recall@${k} against distance computations per query, a line for each space`,
      xLabel: "distance computations per query",
      yLabel: `recall@${k}`,
      isLog: true,
      height: 300,
      yLow: Math.floor(Math.min(...recalls) * 10) / 10,
    };
    this.curve = new Chart(byId("curve"), options, series);
    const keys = curves.map((curve, i) => make("li", { class: COLOURS[i] }, `${curve.space} space`));
    if (curves.some((curve) => curve.chosen.length > 0)) {
      keys.push(make("li", { class: "mark-key" }, "what recall= chooses"));
    }
    byId("curve-legend").replaceChildren(...keys);
  }
}

new Page().start();
