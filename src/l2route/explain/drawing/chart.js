// Line charts of recall against cost, in SVG.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { top: 28, right: 16, bottom: 40, left: 44 };

/** An SVG element with attributes, and text. */
function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Numbers 1, 2 and 5 times powers of ten within bounds, or as many as fit on a line. */
export function ticksOf(low, high, isLog, most = 6) {
  if (isLog) {
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
      for (const digit of [1, 2, 5]) ticks.push(digit * 10 ** power);
    }
    const inside = ticks.filter((tick) => tick >= low && tick <= high);
    return inside.length > most ? inside.filter((_, i) => i % 2 === 0) : inside;
  }
  const step = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(step || 1));
  const nice = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= step) || 1;
  const first = Math.ceil(low / nice - 1e-9);
  const n = Math.floor((high - first * nice) / nice + 1e-9);
  return Array.from({ length: n + 1 }, (_, i) => (first + i) * nice);
}

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

/** A chart of lines, drawn again whenever its width changes. */
export class Chart {
  /**
   * @param {Element} root where to draw.
   * @param {object} options title (for screen readers), xLabel, yLabel, isLog, height, yLow.
   * @param {object[]} series lines: colour, points [[x, y]], isStepped; marks: [{x, y, text}].
   */
  constructor(root, options, series) {
    Object.assign(this, { root, options, series });
    this.observer = new ResizeObserver(() => this.render());
    this.observer.observe(root);
    this.render();
  }

  destroy() {
    this.observer.disconnect();
    this.root.replaceChildren();
  }

  render() {
    const width = Math.max(260, Math.floor(this.root.clientWidth));
    const { height = 220, title } = this.options;
    this.svg = shape("svg", { class: "chart", width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
    this.svg.append(shape("title", {}, title));
    this.frame = {
      left: MARGIN.left,
      right: width - MARGIN.right,
      top: MARGIN.top,
      bottom: height - MARGIN.bottom,
    };
    this.scale();
    this.drawAxes();
    for (const line of this.series) this.drawLine(line);
    this.root.replaceChildren(this.svg);
    if (this.at) this.moveTo(this.at);
  }

  scale() {
    const points = this.series.flatMap((line) => [...line.points, ...(line.marks || []).map(({ x, y }) => [x, y])]);
    const xs = points.map(([x]) => x);
    const low = this.options.isLog ? Math.max(1, Math.min(...xs) / 1.15) : 0;
    const high = Math.max(...xs, low + 1) * (this.options.isLog ? 1.15 : 1);
    this.bounds = { x: [low, high], y: [this.options.yLow ?? 0, 1] };
  }

  x(value) {
    const [low, high] = this.bounds.x;
    const at = this.options.isLog
      ? Math.log(value / low) / Math.log(high / low)
      : (value - low) / (high - low);
    return this.frame.left + at * (this.frame.right - this.frame.left);
  }

  y(value) {
    const [low, high] = this.bounds.y;
    return this.frame.bottom - ((value - low) / (high - low)) * (this.frame.bottom - this.frame.top);
  }

  drawAxes() {
    const { left, right, top, bottom } = this.frame;
    for (const tick of ticksOf(...this.bounds.y, false, 5)) {
      const y = this.y(tick);
      this.svg.append(
        shape("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
        shape("text", { class: "tick", x: left - 8, y: y + 4, "text-anchor": "end" }, number.format(tick)),
      );
    }
    const most = Math.max(2, Math.floor((right - left) / 70));
    for (const tick of ticksOf(...this.bounds.x, this.options.isLog, most)) {
      this.svg.append(
        shape("text", { class: "tick", x: this.x(tick), y: bottom + 18, "text-anchor": "middle" }, number.format(tick)),
      );
    }
    this.svg.append(
      shape("text", { class: "axis", x: right, y: bottom + 35, "text-anchor": "end" }, this.options.xLabel),
      shape("text", { class: "axis", x: left, y: top - 14, "text-anchor": "start" }, this.options.yLabel),
    );
  }

  drawLine({ colour, points, isStepped, marks = [] }) {
    const path = points.map(([x, y], i) => {
      const at = `${this.x(x).toFixed(1)} ${this.y(y).toFixed(1)}`;
      if (i === 0) return `M${at}`;
      return isStepped ? `H${this.x(x).toFixed(1)}V${this.y(y).toFixed(1)}` : `L${at}`;
    });
    this.svg.append(shape("path", { class: `line ${colour}`, d: path.join("") }));
    if (!isStepped) {
      this.svg.append(...points.map(([x, y]) => shape("circle", { class: `dot ${colour}`, cx: this.x(x), cy: this.y(y), r: 2.5 })));
    }
    for (const { x, y, text } of marks) {
      const isRight = this.x(x) > (this.frame.left + this.frame.right) / 2;
      this.svg.append(
        shape("circle", { class: `mark ${colour}`, cx: this.x(x), cy: this.y(y), r: 6.5 }),
        shape(
          "text",
          {
            class: `mark-text ${colour}`,
            x: this.x(x) + (isRight ? -11 : 11),
            y: this.y(y) + (isRight ? -9 : 19),
            "text-anchor": isRight ? "end" : "start",
          },
          text,
        ),
      );
    }
  }

  /** Shows a place on each line; [x, y] per line. */
  moveTo(places) {
    this.at = places;
    for (const cursor of this.svg.querySelectorAll(".cursor")) cursor.remove();
    places.forEach(([x, y], i) => {
      this.svg.append(shape("circle", { class: `cursor ${this.series[i].colour}`, cx: this.x(x), cy: this.y(y), r: 5 }));
    });
  }
}
