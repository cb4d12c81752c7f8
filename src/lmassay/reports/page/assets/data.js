"use strict";
/* Data of the page: packed once (see embed.py), unpacked when it is first looked at. */
const unpackedParts = new Map();

function unpacked(id) {
  if (!unpackedParts.has(id)) unpackedParts.set(id, unpackPart(id));
  return unpackedParts.get(id);
}

async function unpackPart(id) {
  const holder = document.querySelector(`script[data-for="${id}"]`);
  const letters = atob(holder.textContent.trim());
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const whole = await new Response(stream).arrayBuffer();
  const length = new DataView(whole).getUint32(0, true);
  const part = JSON.parse(new TextDecoder().decode(new Uint8Array(whole, 4, length)));
  const behind = whole.slice(4 + length);
  for (const [name, a] of Object.entries(part.arrays)) {
    const count = a.shape.reduce((x, y) => x * y, 1);
    const view = a.kind === "u8" ? new Uint8Array(behind, a.at, count) : integers(behind, a.at, count);
    const missing = a.kind === "u8" ? 255 : -32768;
    part.arrays[name] = {
      shape: a.shape,
      value: (i) => (view[i] === missing ? null : view[i] * a.scale),
      largest: () => { let m = 0; for (const v of view) if (v !== missing) m = Math.max(m, Math.abs(v)); return m * a.scale; },
    };
  }
  return part;
}

function integers(buffer, at, count) {
  if (at % 2 === 0) return new Int16Array(buffer, at, count);
  return new Int16Array(buffer.slice(at, at + 2 * count));
}

/* CSV as RFC 4180 has it. */
function csvCell(value) {
  if (value === null || value === undefined) return "";
  const text = String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csv(rows) {
  const lines = [];
  for (const row of rows) lines.push(row.map(csvCell).join(","));
  return lines.join("\r\n") + "\r\n";
}

function* tableRows(part) {
  yield part.names;
  for (let i = 0; i < part.n; i++) yield part.columns.map((column) => column[i]);
}

function* gridRows(part) {
  const layers = part.layers.map((_, l) => part.arrays[`layer${l}`]);
  yield [part.row_name, part.column_name, ...part.layers.map((name) => `${part.value_name}: ${name}`)];
  for (let r = 0; r < part.rows.length; r++) {
    for (let c = 0; c < part.columns.length; c++) {
      const at = r * part.columns.length + c;
      yield [part.rows[r], part.columns[c], ...layers.map((layer) => short(layer.value(at)))];
    }
  }
}

function short(value) {
  return value === null ? null : Number(value.toPrecision(5));
}

function save(content, type, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 20000);
}

/* A number as the page itself writes it. */
function shown(value, decimal, digits = 3) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  const options = decimal ? { minimumFractionDigits: digits, maximumFractionDigits: digits } : {};
  return value.toLocaleString("en-GB", options).replace(/^(-?)0\./, "$1.").replace(/^-(\.0*)$/, "$1").replace("-", "−");
}
