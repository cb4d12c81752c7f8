/* The page comes alive: theme, figures under the pointer and the keyboard, downloads. */
const grids = new Map();

function setUpTheme() {
  const root = document.documentElement;
  const button = document.querySelector("#theme");
  const names = { auto: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" };
  const order = ["auto", "light", "dark"];
  const stored = () => { try { return localStorage.getItem("lmassay-theme"); } catch { return null; } };
  const apply = (theme) => {
    if (theme === "auto") delete root.dataset.theme;
    else root.dataset.theme = theme;
    button.textContent = names[theme];
    for (const grid of grids.values()) grid.draw();
  };
  let theme = order.includes(stored()) ? stored() : "auto";
  button.hidden = false;
  apply(theme);
  button.addEventListener("click", () => {
    theme = order[(order.indexOf(theme) + 1) % order.length];
    try { localStorage.setItem("lmassay-theme", theme); } catch { /* a page from disk may have no store */ }
    apply(theme);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => apply(theme));
  addEventListener("beforeprint", () => {
    root.dataset.printed = "yes";
    /* Nothing can be waited for here, so that only what is unpacked by now can be built. */
    for (const [id, part] of ready) made(id, part);
    for (const grid of grids.values()) grid.onPaper();
  });
  addEventListener("afterprint", () => {
    delete root.dataset.printed;
    for (const grid of grids.values()) grid.offPaper();
  });
}

/* Marks of a drawing say what they are, under the pointer and, with the arrow keys, one by one. */
function setUpDrawing(figure) {
  const box = figure.querySelector(".drawing");
  const marks = [...box.querySelectorAll('[role="graphics-symbol"][aria-label]')].filter((m) => !m.closest(".role-axis, .role-legend, .role-title"));
  const tip = document.querySelector("#tip");
  const told = figure.querySelector(".told");
  let at = -1;
  const show = (mark) => {
    tip.textContent = mark.getAttribute("aria-label");
    tip.hidden = false;
    const place = mark.getBoundingClientRect();
    const wide = tip.offsetWidth;
    tip.style.left = `${Math.max(6, Math.min(innerWidth - wide - 6, place.left + place.width / 2 - wide / 2))}px`;
    tip.style.top = `${Math.max(6, place.top - tip.offsetHeight - 8)}px`;
  };
  const hide = () => { tip.hidden = true; };
  for (const mark of marks) {
    mark.addEventListener("mouseenter", () => show(mark));
    mark.addEventListener("mouseleave", hide);
  }
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hide();
    if (!step || !marks.length) return;
    event.preventDefault();
    marks[at]?.classList.remove("at");
    at = (at + step + marks.length) % marks.length;
    marks[at].classList.add("at");
    show(marks[at]);
    told.textContent = marks[at].getAttribute("aria-label");
  });
  box.addEventListener("blur", () => { marks[at]?.classList.remove("at"); hide(); });
}

/* A drawing on its own: the page's text colour written out, on paper. */
function standAlone(figure) {
  const drawing = figure.querySelector(".drawing svg").cloneNode(true);
  drawing.querySelectorAll(".at").forEach((mark) => mark.classList.remove("at"));
  const text = new XMLSerializer().serializeToString(drawing).replaceAll("currentColor", "#1c2126");
  return text.replace(/(<svg[^>]*>)/, '$1<rect width="100%" height="100%" fill="#ffffff"/>');
}

function pngOf(svg, width, height, name) {
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = 2 * width;
    canvas.height = 2 * height;
    const ctx = canvas.getContext("2d");
    ctx.scale(2, 2);
    ctx.drawImage(image, 0, 0, width, height);
    canvas.toBlob((blob) => save(blob, "image/png", name));
  };
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
}

async function download(figure, kind) {
  const name = `${figure.dataset.file}.${kind}`;
  const grid = grids.get(figure.id);
  if (kind === "csv") {
    const part = await unpacked(figure.id);
    save(csv(figure.dataset.kind === "grid" ? gridRows(part) : tableRows(part)), "text/csv;charset=utf-8", name);
  } else if (kind === "svg") {
    save(grid ? grid.svg() : standAlone(figure), "image/svg+xml", name);
  } else if (grid) {
    grid.picture(2).toBlob((blob) => save(blob, "image/png", name));
  } else {
    const drawing = figure.querySelector(".drawing svg");
    pngOf(standAlone(figure), Number(drawing.getAttribute("width")), Number(drawing.getAttribute("height")), name);
  }
}

function setUpFigure(figure) {
  figure.querySelectorAll("button[data-save]").forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => download(figure, button.dataset.save));
  });
  if (figure.dataset.kind === "table") setUpTable(figure);
  if (figure.dataset.kind === "chart") setUpDrawing(figure);
}

/* Maps whose data is unpacked, drawn or not yet. */
const ready = new Map();

function made(id, part) {
  if (grids.has(id)) return;
  const figure = document.getElementById(id);
  near.unobserve(figure);
  grids.set(id, new Grid(figure, part));
  figure.dataset.ready = "yes";
}

/* A map is drawn when it comes near the window. */
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    near.unobserve(entry.target);
    unpacked(entry.target.id).then((part) => made(entry.target.id, part), () => { entry.target.querySelector(".detail").textContent = "This browser cannot unpack the map's data."; });
  }
}, { rootMargin: "600px" });

/* The others are unpacked while nothing else is to be done: paper has no window to come near. */
async function unpackTheRest() {
  const idle = window.requestIdleCallback ?? ((work) => setTimeout(work, 50));
  for (const figure of document.querySelectorAll('figure[data-kind="grid"]')) {
    await new Promise((go) => idle(go));
    try { ready.set(figure.id, await unpacked(figure.id)); } catch { /* told where it is drawn */ }
  }
  document.documentElement.dataset.printable = "yes";
}

function setUpContents() {
  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      links.forEach((a) => a.removeAttribute("aria-current"));
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "0px 0px -70% 0px" });
  for (const id of links.keys()) {
    const section = document.getElementById(id);
    if (section) seen.observe(section);
  }
}

setUpTheme();
setUpContents();
document.querySelectorAll("figure[data-kind]").forEach(setUpFigure);
document.querySelectorAll('figure[data-kind="grid"]').forEach((figure) => near.observe(figure));
document.documentElement.dataset.ready = "yes";
unpackTheRest();
