// The walks of a query side by side, at equal cost: maps, a slider, counters and recall so far.
import { WalkMap, sceneOf, shortened } from "./map.js";
import { Chart } from "./chart.js";

const COLOURS = ["plain", "learned"];
const SECONDS = 6; // of a walk that is played
const [FASTEST, SLOWEST] = [40, 220]; // milliseconds per step

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });

/**
 * An HTML element; children are elements or text, which is never read as HTML.
 *
 * @param {string} name of the element.
 * @param {object} attributes those that are null are left out.
 * @param {...(Node|string)} children what it contains.
 */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(key, String(value));
  }
  element.append(...children);
  return element;
}

/** What a walk is called: the plain one is that of the original space. */
export function titleOf(walk) {
  if (walk.space === "original") return "Plain walk";
  return walk.space.startsWith("learned") ? "Learned walk" : "Compressed walk";
}

export function limitsText({ limits }) {
  const words = { budget: "budget", ef: "beam", slack: "slack", rerank: "rerank" };
  return Object.entries(limits).map(([key, value]) => `${words[key]} ${value}`).join(", ");
}

const ICONS = { play: "M7 5v14l12-7z", pause: "M7 5h4v14H7zM14 5h4v14h-4z" };

function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** The walks of one explanation within an element. */
export class Walks {
  /**
   * @param {Element} root what to fill.
   * @param {object} data an explanation with names.
   * @param {{plays: boolean, view: string}} options whether to play at once, and the first view.
   */
  constructor(root, data, { plays = false, view = "plane" } = {}) {
    Object.assign(this, { root, data, view });
    // A step ends a hop of at least one walk; each walk is shown at its last hop of that cost. The
    // first step is the cost at which all walks have begun.
    const begin = Math.max(...data.walks.map((walk) => walk.n_computed[0]));
    const costs = new Set(data.walks.flatMap((walk) => walk.n_computed));
    this.costs = [...costs].filter((cost) => cost >= begin).sort((a, b) => a - b);
    this.nSteps = this.costs.length - 1;
    this.isStill = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.build();
    this.showScene();
    this.observer = new ResizeObserver(() => this.resize());
    for (const panel of this.panels) this.observer.observe(panel.canvas);
    this.resize();
    this.moveTo(plays && !this.isStill ? 0 : this.nSteps);
    if (plays && !this.isStill) this.play();
  }

  destroy() {
    this.pause();
    this.observer.disconnect();
    this.chart.destroy();
    this.root.replaceChildren();
  }

  build() {
    this.panels = this.data.walks.map((walk, i) => this.panelOf(walk, COLOURS[i]));
    this.hint = make("p", { class: "hint", "aria-live": "off" });
    const chartRoot = make("div", { class: "chart-root" });
    const panels = make("div", { class: "panels" }, ...this.panels.map((panel) => panel.element));
    this.root.replaceChildren(this.controls(), panels, this.hint, this.legend(), chartRoot);
    this.chart = new Chart(
      chartRoot,
      {
        title: "Recall so far against distance computations so far, a line for each walk",
        xLabel: "distance computations so far",
        yLabel: `recall@${this.data.k} so far`,
        height: 190,
      },
      this.data.walks.map((walk, i) => ({
        colour: COLOURS[i],
        isStepped: true,
        points: walk.n_computed.map((x, hop) => [x, walk.recalls[hop]]),
      })),
    );
  }

  controls() {
    this.button = make("button", { type: "button", class: "play" });
    this.button.addEventListener("click", () => (this.timer ? this.pause() : this.play()));
    this.slider = make("input", {
      type: "range", class: "steps", min: 0, max: this.nSteps, step: 1, "aria-label": "Step of the walks",
    });
    this.slider.addEventListener("input", () => {
      this.pause();
      this.moveTo(Number(this.slider.value));
    });
    this.output = make("output", { class: "cost" });
    this.showButton();
    return make("div", { class: "controls" }, this.button, this.slider, this.output, this.views());
  }

  views() {
    const share = whole.format(100 * this.data.share);
    const names = [
      ["plane", "Plane", `The plane of the first two principal axes, ${share}% of the variance`],
      ["distance", "Distance", "How far from the middle: the true distance to the query"],
    ];
    this.viewButtons = names.map(([view, text, title]) => {
      const button = make("button", { type: "button", title, "aria-pressed": view === this.view }, text);
      button.addEventListener("click", () => {
        this.view = view;
        this.viewButtons.forEach((each, i) => each.setAttribute("aria-pressed", names[i][0] === view));
        this.showScene();
        this.draw();
      });
      return button;
    });
    return make("div", { class: "views", role: "group", "aria-label": "How points are placed" }, ...this.viewButtons);
  }

  panelOf(walk, colour) {
    const canvas = make("canvas", { role: "img" });
    const panel = { walk, canvas, pointed: null, map: new WalkMap(canvas, this.data, walk, colour) };
    const counter = (text) => {
      const value = make("dd");
      return [value, make("div", {}, make("dt", {}, text), value)];
    };
    const [hops, hopsBox] = counter("hops");
    const [computed, computedBox] = counter("distances computed");
    const [recall, recallBox] = counter(`recall@${this.data.k} so far`);
    Object.assign(panel, { hops, computed, recall });
    canvas.addEventListener("pointermove", (event) => this.pointAt(panel, event));
    canvas.addEventListener("pointerdown", (event) => this.pointAt(panel, event));
    canvas.addEventListener("pointerleave", () => this.pointAt(panel, null));
    panel.element = make(
      "figure",
      { class: `panel ${colour}` },
      make(
        "figcaption",
        {},
        make("h3", {}, titleOf(walk)),
        make("p", {}, `${walk.space} space · ${limitsText(walk)}`),
      ),
      make("dl", { class: "counters" }, recallBox, computedBox, hopsBox),
      canvas,
    );
    return panel;
  }

  legend() {
    const entry = (kind, text) => make("li", { class: kind }, text);
    const entries = [
      entry("query", "the query"),
      entry("missing", "true neighbour, not found yet"),
      entry("found", "true neighbour, found"),
      ...this.data.walks.map((walk, i) => entry(COLOURS[i], `visited by the ${titleOf(walk).toLowerCase()}`)),
    ];
    if (this.data.walks.length > 1) entries.push(entry("faint", "visited by the other walk, or later"));
    this.ringNote = entry("ring", `as near as true neighbour ${this.data.neighbors.length}`);
    return make("ul", { class: "legend" }, ...entries, this.ringNote);
  }

  showScene() {
    const scene = sceneOf(this.data, this.view);
    this.ringNote.hidden = scene.ring === null;
    for (const { map } of this.panels) map.show(scene);
  }

  resize() {
    for (const { map } of this.panels) map.resize();
    this.draw();
  }

  /** The last hop of a walk that costs at most as much as a step. */
  hopAt(walk, step) {
    let hop = walk.n_computed.length - 1;
    while (hop > 0 && walk.n_computed[hop] > this.costs[step]) hop -= 1;
    return hop;
  }

  /** Shows the walks after a step. */
  moveTo(step, phase = 1) {
    [this.step, this.phase] = [step, phase];
    const cost = whole.format(this.costs[step]);
    this.slider.value = String(step);
    this.slider.style.setProperty("--done", `${(100 * step) / (this.nSteps || 1)}%`);
    this.output.textContent = `${cost} distances`;
    const told = [];
    for (const panel of this.panels) {
      const { walk, hops, computed, recall, canvas } = panel;
      const at = this.hopAt(walk, step);
      [panel.at, panel.isMoving] = [at, step === 0 || at !== this.hopAt(walk, step - 1)];
      hops.textContent = at === walk.expanded.length ? `${at}, ended` : String(at);
      computed.textContent = whole.format(walk.n_computed[at]);
      recall.textContent = walk.recalls[at].toFixed(2);
      const text = `recall ${walk.recalls[at].toFixed(2)} after hop ${at} and ${whole.format(walk.n_computed[at])} distances`;
      told.push(`${titleOf(walk)}: ${text}`);
      canvas.setAttribute("aria-label", `Map of the ${titleOf(walk).toLowerCase()}: ${text}.`);
    }
    this.slider.setAttribute("aria-valuetext", `${cost} distances. ${told.join(". ")}`);
    this.chart.moveTo(this.panels.map(({ walk, at }) => [walk.n_computed[at], walk.recalls[at]]));
    this.draw();
  }

  draw() {
    if (this.step === undefined) return;
    const style = getComputedStyle(this.root);
    const ink = Object.fromEntries(
      ["ink", "muted", "faint", "paper", "truth", ...COLOURS].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]),
    );
    for (const { map, at, isMoving, pointed } of this.panels) {
      map.draw(at, isMoving ? this.phase : 1, ink, pointed);
    }
  }

  pointAt(panel, event) {
    const box = panel.canvas.getBoundingClientRect();
    panel.pointed = event && panel.map.pointNear(event.clientX - box.left, event.clientY - box.top, panel.at);
    this.hint.textContent = panel.pointed === null ? "" : this.told(panel, panel.pointed);
    this.draw();
  }

  told(panel, point) {
    const hop = panel.map.hopOf.get(point);
    const rank = panel.map.isNeighbor.get(point);
    const parts = [shortened(this.data.names[point], 60), `distance ${short.format(this.data.distances[point])}`];
    if (rank !== undefined) parts.push(`true neighbour ${rank + 1}`);
    parts.push(hop === undefined ? "not visited by this walk" : hop === 0 ? "an entry point" : `visited in hop ${hop}`);
    return parts.join(" · ");
  }

  play() {
    if (this.step >= this.nSteps) this.moveTo(0);
    const pace = Math.min(SLOWEST, Math.max(FASTEST, (1000 * SECONDS) / Math.max(1, this.nSteps)));
    const [first, begin] = [this.step, performance.now()];
    const advance = (now) => {
      const passed = Math.max(0, now - begin) / pace;
      const step = Math.min(this.nSteps, first + Math.floor(passed) + 1);
      const isOver = first + passed >= this.nSteps;
      this.moveTo(step, isOver || this.isStill ? 1 : passed % 1);
      if (isOver) this.pause();
      else this.timer = requestAnimationFrame(advance);
    };
    this.timer = requestAnimationFrame(advance);
    this.showButton();
  }

  pause() {
    if (this.timer) cancelAnimationFrame(this.timer);
    this.timer = null;
    if (this.phase < 1) this.moveTo(this.step);
    this.showButton();
  }

  showButton() {
    const isPlaying = Boolean(this.timer);
    this.button.setAttribute("aria-label", isPlaying ? "Pause the walk" : "Play the walk");
    this.button.replaceChildren(icon(isPlaying ? "pause" : "play"));
  }
}
