/* Heat maps on a canvas: only the rows in view are drawn, so that ten thousand are as quick as ten. */
const HEAD = 62;
const GAP = 22;
/* Of a map on paper: width, rows on one page, rows in all. */
const PAPER = { width: 700, page: 52, most: 520 };

class Grid {
  constructor(figure, part) {
    Object.assign(this, { figure, part });
    this.frame = figure.querySelector(".frame");
    this.space = figure.querySelector(".space");
    this.canvas = figure.querySelector("canvas");
    this.detail = figure.querySelector(".detail");
    this.order = part.rows.map((_, i) => i);
    this.layers = part.layers.map((_, l) => part.arrays[`layer${l}`]);
    this.tops = this.layers.map((layer) => Math.max(1e-9, layer.largest()));
    /* Small values get the digits that tell them apart. */
    this.digits = Math.min(8, Math.max(3, Math.ceil(-Math.log10(Math.max(...this.tops))) + 2));
    this.chosen = 0;
    this.at = null;
    this.firstLine = [0];
    for (const lines of part.lines) this.firstLine.push(this.firstLine.at(-1) + lines.length);
    this.controls();
    this.pointer();
    this.keyboard();
    /* Of its own height the frame is told by the layout, so that only another width is news. */
    new ResizeObserver(() => { if (this.frame.clientWidth !== this.width) requestAnimationFrame(() => this.layout()); }).observe(this.frame);
    this.layout();
  }

  controls() {
    const radios = this.figure.querySelectorAll('input[type="radio"]');
    radios.forEach((radio, l) => radio.addEventListener("change", () => { this.chosen = l; this.layout(); this.tell(); }));
    if (this.layers.length > 1 && this.frame.clientWidth >= 620) this.chosen = 1;
    if (radios.length) radios[this.chosen].checked = true;
    const by = this.figure.querySelector("select");
    const turn = this.figure.querySelector("button.turn");
    const sort = () => {
      const key = this.part.sort_by[by.value];
      const down = turn.getAttribute("aria-pressed") === "true";
      this.order = this.part.rows.map((_, i) => i);
      if (key) this.order.sort((a, b) => compared(key[a], key[b], down) || a - b);
      else if (down) this.order.reverse();
      this.at = null;
      this.frame.scrollTop = 0;
      this.draw();
    };
    by?.addEventListener("change", sort);
    turn?.addEventListener("click", () => {
      turn.setAttribute("aria-pressed", String(turn.getAttribute("aria-pressed") !== "true"));
      sort();
    });
    const fit = this.figure.querySelector("button.fit");
    fit?.addEventListener("click", () => {
      this.fitted = !this.fitted;
      fit.setAttribute("aria-pressed", String(this.fitted));
      this.frame.scrollTop = 0;
      this.layout();
    });
  }

  /* Widths, and which layers stand side by side. */
  measure(width) {
    const k = this.part.columns.length;
    const longest = Math.max(4, ...this.part.rows.slice(0, 400).map((label) => label.length));
    this.label = Math.min(width < 620 ? Math.max(84, 0.34 * width) : 210, 14 + 6.6 * longest);
    this.cut = shortener(this.part.rows, this.label - 10);
    this.panels = this.chosen !== 0 && width >= 620 ? [0, this.chosen] : [this.chosen];
    /* A layer of few tasks has far larger values than one of all: colours are of those in view. */
    this.largest = Math.max(...this.panels.map((l) => this.tops[l]));
    const room = (width - this.label - 22 - GAP * (this.panels.length - 1)) / this.panels.length;
    this.cell = Math.max(1, Math.min(26, room / k));
    /* Wide enough for the condition's name above it. */
    this.panel = Math.min(room, Math.max(k * this.cell, this.panels.length > 1 ? 190 : 0));
    this.width = width;
  }

  /* Sizes, from the room there is. */
  layout() {
    const width = this.frame.clientWidth;
    if (!width) return;
    this.measure(width);
    this.key();
    const n = this.part.rows.length;
    const tallest = Math.max(180, Math.min(620, window.innerHeight * 0.72));
    this.row = n > 40 ? 15 : 22;
    if (this.fitted) this.row = Math.min(this.row, (tallest - HEAD - 6) / n);
    this.total = HEAD + n * this.row + 4;
    this.height = Math.ceil(Math.min(this.total, tallest));
    this.frame.style.height = `${this.height}px`;
    this.space.style.height = `${Math.ceil(this.total)}px`;
    this.draw();
  }

  /* What the ends of the colour scale are. */
  key() {
    if (this.part.scale === "win" || this.part.scale === "share") return;
    const most = shown(this.largest, true, this.largest >= 0.05 ? 2 : Math.min(8, 1 - Math.floor(Math.log10(this.largest))));
    for (const end of this.figure.querySelectorAll(".key .end")) end.textContent = `${end.dataset.sign}${most}`;
  }

  /* All rows, page by page: what a frame scrolls, paper cannot. */
  onPaper() {
    this.offPaper();
    const paper = Object.create(this);
    paper.measure(PAPER.width);
    paper.row = 15;
    const n = this.part.rows.length;
    const most = Math.min(n, PAPER.most);
    this.sheets = document.createElement("div");
    this.sheets.className = "sheets";
    const c = this.colours();
    for (let from = 0; from < most; from += PAPER.page) {
      const height = HEAD + Math.min(PAPER.page, most - from) * paper.row + 4;
      const canvas = document.createElement("canvas");
      canvas.width = 2 * PAPER.width;
      canvas.height = 2 * height;
      const ctx = canvas.getContext("2d");
      ctx.scale(2, 2);
      paper.paint(ctx, from * paper.row, height - 4, c, false);
      this.sheets.append(canvas);
    }
    const said = [];
    if (most < n) said.push(`${most.toLocaleString("en-GB")} of ${n.toLocaleString("en-GB")} rows are printed; the CSV holds all.`);
    if (paper.panels.length < this.layers.length && this.layers.length > 1) {
      const left = this.part.layers.filter((_, l) => !paper.panels.includes(l));
      said.push(`Not printed: ${left.join("; ")}.`);
    }
    if (said.length) {
      const note = small(said.join(" "));
      note.className = "note";
      this.sheets.append(note);
    }
    this.frame.after(this.sheets);
  }

  offPaper() {
    this.sheets?.remove();
    this.sheets = null;
    this.draw();
  }

  colours() {
    const style = getComputedStyle(document.documentElement);
    const named = (name) => style.getPropertyValue(name).trim();
    return { ink: named("--ink"), soft: named("--soft"), paper: named("--paper"), lost: named("--lost"), won: named("--won"),
      none: named("--none"), low: rgb(named("--low")), high: rgb(named("--high")), middle: rgb(named("--middle")), focus: named("--focus") };
  }

  colour(value, c) {
    if (value === null) return c.none;
    if (this.part.scale === "win") {
      if (value === 0 || value === 1) return value ? c.won : c.lost;
      /* Several rows in one: the share of them that is won. */
      const [from, to] = [rgb(c.lost), rgb(c.won)];
      return `rgb(${from.map((m, i) => Math.round(m + (to[i] - m) * value)).join(",")})`;
    }
    const top = this.part.scale === "share" ? 1 : this.largest;
    const share = Math.max(-1, Math.min(1, value / top));
    const end = share < 0 ? c.low : c.high;
    const t = Math.abs(share);
    return `rgb(${c.middle.map((m, i) => Math.round(m + (end[i] - m) * t)).join(",")})`;
  }

  draw() {
    if (!this.height) return;
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = `${this.height}px`;
    const ctx = this.canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    this.paint(ctx, this.frame.scrollTop, this.height, this.colours(), true);
  }

  /* One picture of the rows from `top` on; the same code draws the page and the downloads. */
  paint(ctx, top, height, c, marked) {
    const { part, cell, row, label } = this;
    const k = part.columns.length;
    ctx.clearRect(0, 0, this.width, height);
    ctx.font = "11px system-ui, sans-serif";
    ctx.textBaseline = "middle";
    const first = Math.max(0, Math.floor(top / row));
    const last = Math.min(part.rows.length, Math.ceil((top + height - HEAD) / row));
    const gap = row > 6 && cell > 4 ? 1 : 0;
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, HEAD, this.width, height - HEAD);
    ctx.clip();
    for (let p = 0; p < this.panels.length; p++) {
      const layer = this.layers[this.panels[p]];
      const left = this.left(p);
      if (row < 1) this.squeezed(ctx, layer, left, height, c);
      else for (let i = first; i < last; i++) {
        const base = this.order[i] * k;
        const y = HEAD + i * row - top;
        for (let j = 0; j < k; j++) {
          const value = layer.value(base + j);
          ctx.fillStyle = this.colour(value, c);
          ctx.fillRect(left + j * cell, y, Math.max(0.5, cell - gap), Math.max(0.5, row - gap));
          if (value === null && cell > 5 && row > 5) this.cross(ctx, left + j * cell, y, cell - gap, row - gap, c);
        }
      }
    }
    if (row >= 9) {
      ctx.fillStyle = c.ink;
      ctx.textAlign = "right";
      for (let i = first; i < last; i++) {
        ctx.fillText(this.cut(part.rows[this.order[i]]), label - 6, HEAD + i * row - top + row / 2, label - 10);
      }
    }
    if (marked && this.at) {
      ctx.strokeStyle = c.focus;
      ctx.lineWidth = 2;
      const y = HEAD + this.at[0] * row - top;
      for (let p = 0; p < this.panels.length; p++) {
        ctx.strokeRect(this.left(p) + this.at[1] * cell - 1, y - 1, cell + 1, Math.max(2, row) + 1);
      }
    }
    ctx.restore();
    this.head(ctx, c);
  }

  /* More rows than lines of the picture: each line is the mean of the rows in it. */
  squeezed(ctx, layer, left, height, c) {
    const n = this.part.rows.length;
    const k = this.part.columns.length;
    for (let y = 0; y < height - HEAD; y++) {
      const from = Math.floor(y / this.row);
      const to = Math.min(n, Math.max(from + 1, Math.floor((y + 1) / this.row)));
      for (let j = 0; j < k && from < n; j++) {
        let sum = 0;
        let known = 0;
        for (let i = from; i < to; i++) {
          const value = layer.value(this.order[i] * k + j);
          if (value !== null) { sum += value; known++; }
        }
        ctx.fillStyle = this.colour(known ? sum / known : null, c);
        ctx.fillRect(left + j * this.cell, HEAD + y, this.cell, 1);
      }
    }
  }

  cross(ctx, x, y, w, h, c) {
    ctx.strokeStyle = c.soft;
    ctx.lineWidth = 0.7;
    ctx.beginPath();
    ctx.moveTo(x, y + h);
    ctx.lineTo(x + w, y);
    ctx.stroke();
  }

  head(ctx, c) {
    const { part, cell } = this;
    const k = part.columns.length;
    const every = Math.ceil(14 / cell);
    for (let p = 0; p < this.panels.length; p++) {
      const left = this.left(p);
      ctx.fillStyle = c.ink;
      ctx.textAlign = "left";
      ctx.font = "600 12px system-ui, sans-serif";
      if (part.layers.length > 1) ctx.fillText(fitted(ctx, part.layers[this.panels[p]], Math.max(this.panel, k * cell), "both"), left, 8);
      ctx.font = "10px system-ui, sans-serif";
      for (let j = 0; j < k; j++) {
        if (j % every && j !== k - 1) continue;
        if (j !== k - 1 && j + every > k - 1 && k - 1 - j < every) continue;
        ctx.save();
        ctx.translate(left + (j + 0.5) * cell, HEAD - 5);
        ctx.rotate(-Math.PI / 3.4);
        ctx.fillText(fitted(ctx, part.columns[j], 52), 0, 0);
        ctx.restore();
      }
    }
  }

  left(p) {
    return this.label + p * (this.panel + GAP);
  }

  pointer() {
    this.frame.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()));
    const find = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const x = event.clientX - box.left;
      const y = event.clientY - box.top;
      if (y < HEAD) return null;
      const i = Math.floor((y - HEAD + this.frame.scrollTop) / this.row);
      if (i < 0 || i >= this.part.rows.length) return null;
      for (let p = 0; p < this.panels.length; p++) {
        const j = Math.floor((x - this.left(p)) / this.cell);
        if (j >= 0 && j < this.part.columns.length) return [i, j];
      }
      return null;
    };
    this.canvas.addEventListener("mousemove", (event) => this.go(find(event), false));
    this.canvas.addEventListener("click", (event) => this.go(find(event), false));
  }

  keyboard() {
    this.frame.addEventListener("keydown", (event) => {
      const n = this.part.rows.length;
      const k = this.part.columns.length;
      const page = Math.max(1, Math.floor((this.height - HEAD) / this.row) - 1);
      const [i, j] = this.at ?? [0, -1];
      const moves = { ArrowRight: [i, j + 1], ArrowLeft: [i, j - 1], ArrowDown: [i + 1, Math.max(0, j)], ArrowUp: [i - 1, Math.max(0, j)],
        Home: [i, 0], End: [i, k - 1], PageDown: [i + page, Math.max(0, j)], PageUp: [i - page, Math.max(0, j)] };
      const to = moves[event.key];
      if (!to) return;
      event.preventDefault();
      this.go([Math.max(0, Math.min(n - 1, to[0])), Math.max(0, Math.min(k - 1, to[1]))], true);
    });
  }

  go(at, follow) {
    if (!at || (this.at && at[0] === this.at[0] && at[1] === this.at[1])) return;
    this.at = at;
    if (follow) {
      const y = at[0] * this.row;
      const room = this.height - HEAD - this.row;
      if (y < this.frame.scrollTop) this.frame.scrollTop = y;
      if (y > this.frame.scrollTop + room) this.frame.scrollTop = y - room;
    }
    this.draw();
    this.tell();
  }

  /* The cell in words: where it is, its value in every layer, and the row's own text and lines. */
  tell() {
    if (!this.at) return;
    const { part } = this;
    const r = this.order[this.at[0]];
    const j = this.at[1];
    const k = part.columns.length;
    const said = [heading(`${part.rows[r]} · ${part.columns[j]}`)];
    const values = document.createElement("dl");
    part.layers.forEach((name, l) => pair(values, name, this.word(this.layers[l].value(r * k + j))));
    said.push(values);
    if (part.texts[r]) said.push(quoted(part.texts[r]));
    const lines = part.lines[r] ?? [];
    if (lines.length) {
      const list = document.createElement("table");
      lines.forEach((line, l) => {
        const row = list.insertRow();
        row.insertCell().append(bdi(line));
        const value = part.arrays.values?.value((this.firstLine[r] + l) * k + j);
        const cell = row.insertCell();
        cell.className = "n";
        cell.textContent = value === undefined ? "" : shown(value, part.unit !== "tasks");
      });
      said.push(list);
      if (part.unit) said.push(small(part.unit));
    }
    this.detail.replaceChildren(...said);
  }

  word(value) {
    if (value === null) return "not measured";
    return this.part.scale === "win" ? (value ? "won" : "lost") : shown(value, true, this.digits);
  }

  /* The whole map, however much of it is in view. */
  picture(scale) {
    const tall = Math.min(this.total, 30000 / scale);
    const canvas = document.createElement("canvas");
    canvas.width = this.width * scale;
    canvas.height = tall * scale;
    const ctx = canvas.getContext("2d");
    ctx.scale(scale, scale);
    this.paint(ctx, 0, tall, this.colours(), false);
    ctx.globalCompositeOperation = "destination-over";
    ctx.fillStyle = this.colours().paper;
    ctx.fillRect(0, 0, this.width, tall);
    return canvas;
  }

  svg() {
    const c = this.colours();
    const { part, cell, row } = this;
    const k = part.columns.length;
    const tall = HEAD + part.rows.length * row + 4;
    const out = [`<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${tall}" viewBox="0 0 ${this.width} ${tall}" font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="${c.paper}"/>`];
    for (let p = 0; p < this.panels.length; p++) {
      const left = this.left(p);
      const layer = this.layers[this.panels[p]];
      if (part.layers.length > 1) out.push(`<text x="${left}" y="12" font-weight="600" fill="${c.ink}">${escaped(part.layers[this.panels[p]])}</text>`);
      part.columns.forEach((name, j) => {
        if (j % Math.ceil(14 / cell) === 0) out.push(`<text transform="translate(${left + (j + 0.5) * cell},${HEAD - 4}) rotate(-53)" font-size="10" fill="${c.ink}">${escaped(name)}</text>`);
      });
      this.order.forEach((r, i) => {
        /* Equal neighbours are one rectangle. */
        for (let j = 0; j < k; ) {
          const fill = this.colour(layer.value(r * k + j), c);
          let to = j + 1;
          while (to < k && this.colour(layer.value(r * k + to), c) === fill) to++;
          out.push(`<rect x="${(left + j * cell).toFixed(1)}" y="${(HEAD + i * row).toFixed(1)}" width="${((to - j) * cell - 0.5).toFixed(1)}" height="${Math.max(0.5, row - 1).toFixed(1)}" fill="${fill}"/>`);
          j = to;
        }
      });
    }
    if (row >= 9) this.order.forEach((r, i) => out.push(`<text x="${this.label - 6}" y="${HEAD + i * row + row / 2 + 4}" text-anchor="end" fill="${c.ink}">${escaped(part.rows[r])}</text>`));
    out.push("</svg>");
    return out.join("\n");
  }
}

function rgb(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

/* What is left of a text of which n letters are to stay. */
const CUTS = {
  both: (text, n) => `${text.slice(0, Math.ceil(n / 2))}…${text.slice(text.length - Math.floor(n / 2))}`,
  front: (text, n) => `…${text.slice(text.length - n)}`,
  end: (text, n) => `${text.slice(0, n)}…`,
};

function fitted(ctx, text, width, kept = "end") {
  if (ctx.measureText(text).width <= width) return text;
  let n = Math.min(text.length, Math.ceil(width / 3));
  while (n > 1 && ctx.measureText(CUTS[kept](text, n)).width > width) n--;
  return CUTS[kept](text, n);
}

/* Cuts labels so that those that differ still do, wherever it is that they differ. */
function shortener(labels, width) {
  const n = Math.max(4, Math.floor(width / 6) - 1);
  const short = (text, cut) => (text.length <= n + 1 ? text : cut(text, n));
  const apart = (cut) => new Set(labels.map((text) => short(text, cut))).size;
  const whole = new Set(labels).size;
  let [best, most] = [CUTS.both, 0];
  let same = 0;
  while (same < labels[0]?.length && labels.every((text) => text[same] === labels[0][same])) same++;
  const middle = (text) => `…${text.slice(same, same + n - 1)}${text.length > same + n - 1 ? "…" : ""}`;
  for (const cut of [...Object.values(CUTS), middle]) {
    const found = apart(cut);
    if (found > most) [best, most] = [cut, found];
    if (found === whole) break;
  }
  return (text) => short(text, best);
}

function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");
}

function bdi(text) {
  const made = document.createElement("bdi");
  made.textContent = text;
  return made;
}

function heading(text) {
  const made = document.createElement("p");
  made.className = "where";
  made.append(bdi(text));
  return made;
}

function quoted(text) {
  const made = document.createElement("p");
  made.className = "prompt";
  made.dir = "auto";
  made.textContent = text;
  return made;
}

function small(text) {
  const made = document.createElement("p");
  made.className = "unit";
  made.textContent = text;
  return made;
}

function pair(list, name, value) {
  const row = document.createElement("div");
  const term = document.createElement("dt");
  const said = document.createElement("dd");
  term.append(bdi(name));
  said.textContent = value;
  row.append(term, said);
  list.append(row);
}
