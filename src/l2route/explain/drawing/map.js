// The map of a walk: everything that the walks of a query visited, drawn on a canvas.

const TAU = 2 * Math.PI;
const INNERMOST = 0.1; // radius of the nearest point where radii are distances
const EVEN = 0.75; // how far angles are moved to even gaps

/**
 * Places of all points, around (0, 0), and how far they reach to the side and up.
 *
 * @param {object} data an explanation.
 * @param {"distance"|"plane"} view whether radii are true distances to the query, and angles are
 *   in the order of those on the plane; or places are those of the plane.
 * @returns {{xs: Float64Array, ys: Float64Array, origin: number[], reach: number[], ring: ?number}}
 */
export function sceneOf(data, view) {
  return view === "distance" ? radialScene(data) : planarScene(data);
}

function planarScene(data) {
  const all = [...data.positions, data.origin];
  const bounds = [0, 1].map((axis) => extent(all.map((position) => position[axis])));
  const reach = bounds.map(([low, high]) => (high - low) / 2);
  const middle = bounds.map(([low, high]) => (low + high) / 2);
  const largest = Math.max(...reach) || 1;
  return {
    xs: Float64Array.from(data.positions, ([x]) => x - middle[0]),
    ys: Float64Array.from(data.positions, ([, y]) => middle[1] - y),
    origin: [data.origin[0] - middle[0], middle[1] - data.origin[1]],
    reach: reach.map((half) => Math.max(half, largest / 100)),
    ring: null,
  };
}

function radialScene(data) {
  // Squared distances grow too fast to be told apart near the query.
  const scaled = data.metric === "l2" ? (d) => Math.sqrt(Math.max(d, 0)) : (d) => d;
  const reach = data.distances.map((d) => scaled(d ?? 0));
  const [low, high] = extent(reach);
  const span = high - low || 1;
  const radius = (r) => INNERMOST + (1 - INNERMOST) * ((r - low) / span);
  const angles = spreadAngles(
    data.positions.map(([x, y], i) => {
      const [dx, dy] = [x - data.origin[0], y - data.origin[1]];
      // Points at the query's own place on the plane spread by the golden angle.
      return dx || dy ? Math.atan2(dy, dx) : (i * 2.399963) % TAU;
    }),
  );
  const xs = Float64Array.from(angles, (angle, i) => radius(reach[i]) * Math.cos(angle));
  const ys = Float64Array.from(angles, (angle, i) => -radius(reach[i]) * Math.sin(angle));
  const last = data.neighbors[data.neighbors.length - 1];
  return { xs, ys, origin: [0, 0], reach: [1, 1], ring: last === undefined ? null : radius(reach[last]) };
}

// Moves angles most of the way to even gaps; their order stays. Most points are seen on one side of
// the query otherwise, and half of the map is empty.
function spreadAngles(angles) {
  const turned = angles.map((angle) => (angle + TAU) % TAU);
  const order = turned.map((_, i) => i).sort((a, b) => turned[a] - turned[b] || a - b);
  const n = order.length;
  const gap = (at) => (turned[order[(at + 1) % n]] - turned[order[at]] + TAU) % TAU;
  let widest = 0;
  for (let at = 1; at < n; at += 1) if (gap(at) > gap(widest)) widest = at;
  const first = (widest + 1) % n;
  const begin = turned[order[first]];
  const spread = new Array(n);
  for (let at = 0; at < n; at += 1) {
    const point = order[(first + at) % n];
    const own = (turned[point] - begin + TAU) % TAU;
    spread[point] = begin + (1 - EVEN) * own + EVEN * ((TAU * at) / n);
  }
  return spread;
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return Number.isFinite(low) ? [low, high] : [0, 0];
}

/** The number of points visited before a hop and by its end. */
function visitedIn(walk, hop) {
  return [hop > 0 ? walk.n_visited[hop - 1] : 0, walk.n_visited[hop]];
}

/** A canvas on which one walk is drawn. */
export class WalkMap {
  constructor(canvas, data, walk, colour) {
    Object.assign(this, { canvas, data, walk, colour });
    this.context = canvas.getContext("2d");
    this.isNeighbor = new Map(data.neighbors.map((point, rank) => [point, rank]));
    // The vertex from which each visited one was reached; null for entry points.
    this.parents = walk.hops.map((hop) => (hop > 0 ? walk.expanded[hop - 1] : null));
    this.parentOf = new Map(walk.visited.map((point, i) => [point, this.parents[i]]));
    this.hopOf = new Map(walk.visited.map((point, i) => [point, walk.hops[i]]));
  }

  /** Fits the canvas to its place on the page. */
  resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    [this.width, this.height] = [width, height];
  }

  show(scene) {
    this.scene = scene;
  }

  at(point) {
    return this.placed(this.scene.xs[point], this.scene.ys[point]);
  }

  placed(x, y) {
    const scale = this.scale();
    return [this.width / 2 + x * scale, this.height / 2 + y * scale];
  }

  /** Pixels per unit of the scene. */
  scale() {
    const [right, up] = this.scene.reach;
    return Math.max(0, Math.min((this.width / 2 - 30) / right, (this.height / 2 - 20) / up));
  }

  /** The point nearest to a place of the canvas, null if none is near; visited ones first. */
  pointNear(x, y, hop) {
    let [best, least] = [null, 14 * 14];
    for (let point = 0; point < this.scene.xs.length; point += 1) {
      const [px, py] = this.at(point);
      const isSeen = (this.hopOf.get(point) ?? Infinity) <= hop || this.isNeighbor.has(point);
      const far = (px - x) ** 2 + (py - y) ** 2 + (isSeen ? 0 : 60);
      if (far < least) [best, least] = [point, far];
    }
    return best;
  }

  /**
   * Draws the walk after a hop.
   *
   * @param {number} hop from 0 to the number of hops of the walk.
   * @param {number} phase how much of the hop has been drawn, from 0 to 1.
   * @param {object} ink colours: ink, muted, faint, paper, truth, and those of walks by name.
   * @param {number|null} pointed the point under the pointer.
   */
  draw(hop, phase, ink, pointed) {
    const { context: c, walk } = this;
    const [before, by] = visitedIn(walk, hop);
    c.clearRect(0, 0, this.width, this.height);
    this.drawRing(ink);
    this.drawUnvisited(by, ink);
    this.drawEdges(before, by, hop, phase, ink);
    this.drawVisited(before, by, ink);
    this.drawNeighbors(hop, ink);
    if (hop > 0) this.drawExpanded(walk.expanded[hop - 1], ink);
    this.drawQuery(ink);
    this.drawNames(hop, ink, pointed);
  }

  drawRing(ink) {
    if (this.scene.ring === null) return;
    const c = this.context;
    const [x, y] = this.placed(0, 0);
    c.beginPath();
    c.arc(x, y, this.scene.ring * this.scale(), 0, TAU);
    c.globalAlpha = 0.07;
    c.fillStyle = ink.truth;
    c.fill();
    c.globalAlpha = 0.7;
    c.setLineDash([3, 4]);
    c.lineWidth = 1;
    c.strokeStyle = ink.truth;
    c.stroke();
    c.setLineDash([]);
    c.globalAlpha = 1;
  }

  drawUnvisited(by, ink) {
    const seen = new Set(this.walk.visited.slice(0, by));
    this.context.fillStyle = ink.faint;
    for (let point = 0; point < this.scene.xs.length; point += 1) {
      if (!seen.has(point)) this.dot(point, 1.4);
    }
  }

  drawEdges(before, by, last, phase, ink) {
    const { context: c, walk } = this;
    c.strokeStyle = ink[this.colour];
    c.lineWidth = 1;
    c.globalAlpha = 0.11;
    c.beginPath();
    for (let i = 0; i < before; i += 1) this.edge(this.parents[i], walk.visited[i], 1);
    c.stroke();
    c.globalAlpha = 0.45; // the tree of expanded vertices
    c.lineWidth = 1.4;
    c.beginPath();
    for (let i = 0; i < last; i += 1) {
      this.edge(this.parentOf.get(walk.expanded[i]) ?? null, walk.expanded[i], 1);
    }
    c.stroke();
    c.globalAlpha = 0.85;
    c.lineWidth = 1;
    c.beginPath();
    for (let i = before; i < by; i += 1) this.edge(this.parents[i], walk.visited[i], phase);
    c.stroke();
    c.globalAlpha = 1;
  }

  edge(from, to, phase) {
    if (from === null || from === undefined) return;
    const [x, y] = this.at(from);
    const [toX, toY] = this.at(to);
    this.context.moveTo(x, y);
    this.context.lineTo(x + (toX - x) * phase, y + (toY - y) * phase);
  }

  drawVisited(before, by, ink) {
    const { context: c, walk } = this;
    c.fillStyle = ink[this.colour];
    c.globalAlpha = 0.55;
    for (let i = 0; i < before; i += 1) this.dot(walk.visited[i], 2);
    c.globalAlpha = 1;
    for (let i = before; i < by; i += 1) this.dot(walk.visited[i], 2.8);
  }

  dot(point, radius) {
    const [x, y] = this.at(point);
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, TAU);
    this.context.fill();
  }

  drawExpanded(point, ink) {
    const c = this.context;
    const [x, y] = this.at(point);
    c.beginPath();
    c.arc(x, y, 4.2, 0, TAU);
    c.fillStyle = ink[this.colour];
    c.fill();
    c.lineWidth = 1.5;
    c.strokeStyle = ink.paper;
    c.stroke();
    c.beginPath();
    c.arc(x, y, 8, 0, TAU);
    c.strokeStyle = ink[this.colour];
    c.stroke();
  }

  drawNeighbors(hop, ink) {
    const c = this.context;
    for (const [point, rank] of this.isNeighbor) {
      const found = this.walk.found_at[rank];
      const [x, y] = this.at(point);
      const size = 5.2;
      c.beginPath();
      c.moveTo(x, y - size);
      c.lineTo(x + size, y);
      c.lineTo(x, y + size);
      c.lineTo(x - size, y);
      c.closePath();
      c.fillStyle = found >= 0 && found <= hop ? ink.truth : ink.paper;
      c.fill();
      c.lineWidth = 1.5;
      c.strokeStyle = ink.truth;
      c.stroke();
    }
  }

  drawQuery(ink) {
    const c = this.context;
    const [x, y] = this.placed(...this.scene.origin);
    for (const [colour, width] of [[ink.paper, 5], [ink.ink, 2]]) {
      c.beginPath();
      c.moveTo(x - 6, y);
      c.lineTo(x + 6, y);
      c.moveTo(x, y - 6);
      c.lineTo(x, y + 6);
      c.lineWidth = width;
      c.strokeStyle = colour;
      c.stroke();
    }
  }

  /** Names of true neighbours, found ones first, where there is room; and of the point pointed at. */
  drawNames(hop, ink, pointed) {
    const c = this.context;
    c.font = getComputedStyle(this.canvas).font;
    c.textBaseline = "middle";
    c.lineJoin = "round";
    const taken = this.data.neighbors.map((point) => boxAround(...this.at(point), 6));
    taken.push(boxAround(...this.placed(...this.scene.origin), 9));
    if (pointed !== null) this.drawName(pointed, ink.ink, ink, taken, true);
    const isFound = (rank) => this.walk.found_at[rank] >= 0 && this.walk.found_at[rank] <= hop;
    const ranks = [...this.data.neighbors.keys()];
    for (const rank of [...ranks.filter(isFound), ...ranks.filter((r) => !isFound(r))]) {
      const point = this.data.neighbors[rank];
      const colour = isFound(rank) ? ink.ink : ink.muted;
      if (point !== pointed) this.drawName(point, colour, ink, taken, false);
    }
  }

  drawName(point, colour, ink, taken, isForced) {
    const c = this.context;
    const name = shortened(this.data.names[point]);
    const width = c.measureText(name).width;
    const [x, y] = this.at(point);
    const places = [[9, 0], [-9 - width, 0], [-width / 2, -14], [-width / 2, 14]];
    for (const [dx, dy] of places) {
      const box = [x + dx - 1, y + dy - 8, x + dx + width + 1, y + dy + 8];
      const isInside = box[0] >= 2 && box[2] <= this.width - 2 && box[1] >= 0 && box[3] <= this.height;
      const others = taken.filter((other) => !contains(other, x, y));
      if (!isInside || (!isForced && others.some((other) => overlap(other, box)))) continue;
      taken.push(box);
      c.lineWidth = 4;
      c.strokeStyle = ink.paper;
      c.strokeText(name, x + dx, y + dy);
      c.fillStyle = colour;
      c.fillText(name, x + dx, y + dy);
      return;
    }
  }
}

function boxAround(x, y, half) {
  return [x - half, y - half, x + half, y + half];
}

function contains(box, x, y) {
  return box[0] <= x && x <= box[2] && box[1] <= y && y <= box[3];
}

function overlap(a, b) {
  return a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
}

/** A name that fits on a line. */
export function shortened(name, most = 24) {
  const letters = Array.from(String(name).replace(/\s+/g, " ").trim());
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : letters.join("");
}
