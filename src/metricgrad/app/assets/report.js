// The page: what is shown, and what happens when a reader moves something.
const payload = JSON.parse(byId("payload").textContent);
const judge = metricNamed(payload.metric.name) || metricNamed("f1");
const SLOTS = 7; // colours beside the accent; the last one is for everybody else
const NEAR = 8; // contenders whose switches, and mistakes that, are in view

const places = new Map(); // contender -> its place in the leaderboard
payload.leaderboard.forEach((row) => places.has(row.contender) || places.set(row.contender, places.size));
const drawable = Object.keys(payload.details).filter((name) => payload.details[name].classes.length > 0);
const contenders = drawable.sort((a, b) => (places.get(a) ?? Infinity) - (places.get(b) ?? Infinity));
const ship = contenders.includes(payload.verdict.ship) ? payload.verdict.ship : contenders[0];
const reference = contenders.find((name) => name === "cross-entropy");

const state = { contender: ship, class: 0, cut: 0, shown: new Set(), slots: new Map(), drawn: {} };
const details = () => payload.details[state.contender];
const curveOf = (name) => payload.details[name].classes[state.class];
const chosenAt = (curve) => nearest(curve.cuts, curve.threshold ?? 0.5);

// The contender to ship has the accent; others get a free colour, or the last.
function show(name, on) {
  if (!on) {
    state.shown.delete(name);
    state.slots.delete(name);
    return;
  }
  const taken = new Set(state.slots.values());
  const free = Array.from({ length: SLOTS - 1 }, (_, i) => i + 1).find((slot) => !taken.has(slot));
  state.shown.add(name);
  state.slots.set(name, name === ship ? 0 : free ?? SLOTS);
}
const slotOf = (name) => state.slots.get(name) ?? (name === ship ? 0 : SLOTS);
const shown = () => contenders.filter((name) => state.shown.has(name));

function sortable() {
  const board = document.querySelector(".leaderboard"), body = board.tBodies[0];
  for (const head of board.querySelectorAll("th[data-key]")) {
    const column = head.cellIndex;
    const key = (row) => row.cells[column].dataset.sort;
    const compare = (a, b) => (Number.isNaN(Number(a)) ? a.localeCompare(b) : a - b);
    head.replaceChildren(html("button", {
      type: "button",
      onclick: () => {
        const now = head.getAttribute("aria-sort");
        const next = now ? (now === "ascending" ? "descending" : "ascending") : head.dataset.first;
        board.querySelectorAll("[aria-sort]").forEach((old) => old.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        // What is not known comes last either way.
        const order = (a, b) => (a === "") - (b === "") || sign * compare(a, b);
        body.append(...[...body.rows].sort((a, b) => order(key(a), key(b))));
        firstRows();
      },
    }, head.textContent));
  }
  document.querySelector('th[data-key="value"]').setAttribute("aria-sort", "descending");
  document.querySelectorAll("[data-filter]").forEach((button) => button.addEventListener("click", () => {
    document.querySelectorAll("[data-filter]").forEach((other) => other.setAttribute("aria-pressed", other === button));
    const wanted = button.dataset.filter;
    [...body.rows].forEach((row) => row.classList.toggle("filtered", Boolean(wanted) && row.dataset.rule !== wanted));
    firstRows();
  }));
  const all = byId("all-rows");
  const top = body.querySelectorAll("tr:not(.extra)").length;
  const firstRows = () => {
    const rows = [...body.rows].filter((row) => !row.classList.contains("filtered"));
    rows.forEach((row, i) => row.classList.toggle("extra", i >= top));
    all.hidden = rows.length <= top;
    all.textContent = board.classList.contains("all") ? `Show the first ${top}` : `Show all ${rows.length}`;
  };
  all.addEventListener("click", () => {
    all.setAttribute("aria-expanded", board.classList.toggle("all"));
    firstRows();
  });
  firstRows();
}

function switches() {
  const chip = (name) => {
    const sample = svg("svg", { width: 18, height: 10, "aria-hidden": "true" }, svg("path", { d: "M0 5h18" }));
    const button = html("button", { type: "button", title: name }, sample, shorten(name, 40));
    const paint = () => {
      button.setAttribute("aria-pressed", state.shown.has(name));
      sample.firstChild.setAttribute("class", `line thick ${seriesClass(slotOf(name))}`);
    };
    button.addEventListener("click", () => {
      show(name, !state.shown.has(name));
      paint();
      drawShown();
    });
    paint();
    return button;
  };
  const near = contenders.filter((name, i) => i < NEAR || state.shown.has(name));
  const far = contenders.filter((name) => !near.includes(name));
  byId("chips").append(...near.map(chip));
  if (far.length) {
    const more = byId("more-chips");
    more.hidden = false;
    more.firstElementChild.textContent = `${far.length} more contender${far.length > 1 ? "s" : ""}`;
    more.lastElementChild.append(...far.map(chip));
  }
}

function options(select, names, chosen, onchange) {
  select.replaceChildren(...names.map((name, i) => html("option", { value: i }, shorten(name, 60))));
  select.selectedIndex = chosen;
  select.addEventListener("change", () => onchange(select.selectedIndex));
}

const put = (id, ...children) => byId(id).replaceChildren(...children);
const widthOf = (id) => Math.max(240, Math.floor(byId(id).clientWidth));
// Sections without anything to show are not shown.
const section = (id, there) => {
  byId(id).hidden = !there;
  return there;
};

function moveCut(i) {
  const curve = curveOf(state.contender), c = cellsAt(curve, i);
  state.cut = i;
  const named = [[judge.title, judge.of(c)], ["precision", METRICS.precision(c)], ["recall", METRICS.recall(c)]];
  const slider = byId("threshold");
  slider.value = i;
  const told = named.map(([name, v]) => `${name} ${decimals(v)}`).join(", ");
  slider.setAttribute("aria-valuetext", `cut ${cutText(curve.cuts[i])}: ${told}`);
  byId("threshold-value").textContent = cutText(curve.cuts[i]);
  put("matrix", matrixFigure(c, curve.name));
  const pair = ([name, v], k) => html("div", { class: k ? null : "main" },
    html("dt", {}, name), html("dd", {}, decimals(v)));
  put("values", ...named.map(pair));
  state.drawn.cut?.move(i);
  state.drawn.curves?.move(state.contender, curve, i);
}

function drawCut() {
  const curve = curveOf(state.contender), last = curve.cuts.length - 1;
  const ours = payload.data.task === "multiclass" ? " One class against the rest: what a cut of its own would do." : "";
  const known = metricNamed(payload.metric.name) !== null;
  byId("cut-note").textContent = "Drag the cut and see what it costs. Counts are of the test rows of all splits."
    + ours + (known ? "" : ` ${payload.metric.name} is not a function of these counts; F1 stands in.`);
  byId("cut-caption").textContent = `${judge.title} of ${shorten(curve.name, 60)}, ${shorten(state.contender, 60)}`
    + (curve.plateau ? "; shaded, the cuts that are hardly worse" : "") + "; dashes: precision, dots: recall";
  byId("threshold").max = last;
  state.drawn.cut = cutFigure(widthOf("cut-chart"), curve, judge, state.cut, moveCut);
  put("cut-chart", state.drawn.cut.root);
  const every = Math.ceil((last + 1) / 50);
  const rows = curve.cuts.map((cut, i) => [cut, cellsAt(curve, i), i])
    .filter(([cut, , i]) => i % every === 0 || i === last || cut === curve.threshold || cut === 0.5)
    .map(([cut, c]) => [cutText(cut), ...[judge.of, METRICS.precision, METRICS.recall].map((of) => decimals(of(c))),
      ...["tp", "fp", "fn", "tn"].map((k) => whole(c[k]))]);
  put("cut-table", table("plain", ["Cut", judge.title, "Precision", "Recall", "TP", "FP", "FN", "TN"], rows));
  byId("go-chosen").hidden = curve.threshold === null;
  moveCut(state.cut);
}

function drawCurves() {
  const series = shown().map((name) => {
    const curve = curveOf(name);
    return { name, slot: slotOf(name), curve, at: name === state.contender ? state.cut : chosenAt(curve) };
  });
  state.drawn.curves = curveFigure(widthOf("curve-chart"), series);
  put("curve-chart", state.drawn.curves.root);
  const rows = series.map(({ name, curve }) => {
    const at = chosenAt(curve), c = cellsAt(curve, at), values = [METRICS.precision(c), METRICS.recall(c)];
    return [name, decimals(curve.average_precision), cutText(curve.cuts[at]), ...values.map((v) => decimals(v))];
  });
  put("curve-table", table("plain", ["Contender", "Average precision", "Cut", "Precision", "Recall"], rows));
}

function drawScores() {
  const holder = byId("score-charts");
  const parts = shown().map((name) => {
    const pair = html("div", { class: "pair" });
    return { name, pair, figure: html("figure", {}, html("figcaption", {}, name), pair) };
  });
  holder.replaceChildren(...parts.map((part) => part.figure));
  for (const { name, pair } of parts) {
    const curve = curveOf(name), total = pair.clientWidth;
    const part = (share) => (total < 330 ? total : (total - 16) * share);
    pair.append(scoreFigure(Math.max(160, Math.floor(part(0.59))), curve, slotOf(name), curve.threshold ?? 0.5));
    if (curve.calibration.length) {
      pair.append(calibrationFigure(Math.max(110, Math.floor(part(0.405))), curve, slotOf(name)));
    }
  }
  const bins = (name) => curveOf(name).calibration
    .map(([score, share, rows]) => [name, decimals(score), decimals(share), whole(rows)]);
  put("score-table", table("plain", ["Contender", "Score", "Share that happened", "Rows"], shown().flatMap(bins)));
}

function drawClasses() {
  const { per_class: rows, confusion } = details();
  const matrix = payload.data.task === "multiclass" && confusion.length > 0;
  if (!section("classes", matrix || rows.length > 2)) {
    return;
  }
  section("confusion", matrix);
  const other = reference && reference !== state.contender ? payload.details[reference].per_class : null;
  byId("classes-note").textContent = `${state.contender}: bars are F1, upright marks precision, crosses recall`
    + (other ? "; rings are the F1 of cross-entropy." : ".");
  if (rows.length) {
    put("class-chart", classFigure(widthOf("class-chart"), rows, other));
    put("class-table", table("plain", ["Class", "Precision", "Recall", "F1", "Rows"],
      rows.map((row) => [row.name, ...["precision", "recall", "f1"].map((k) => decimals(row[k])), whole(row.support)])));
  }
  if (matrix) {
    put("confusion-table", heatFigure(confusion, payload.data.classes));
  }
}

function drawLearning() {
  const names = shown().filter((name) => payload.details[name].history.some((h) => (h.hard ?? h.soft ?? h.loss) !== null));
  if (!section("learning", names.length)) {
    return;
  }
  const parts = names.map((name) => [name, html("figure", {}, html("figcaption", {}, name))]);
  put("learning-charts", ...parts.map(([, figure]) => figure));
  for (const [name, figure] of parts) {
    figure.append(learningFigure(Math.max(200, figure.clientWidth), payload.details[name].history, slotOf(name)));
  }
  const rows = (name) => {
    const history = payload.details[name].history, every = Math.ceil(history.length / 12);
    return history.filter((_, i) => i % every === 0 || i === history.length - 1)
      .map((h) => [name, h.epoch, decimals(h.loss), decimals(h.soft), decimals(h.hard)]);
  };
  put("learning-table", table("plain", ["Contender", "Epoch", "Loss", "Soft", "Hard"], names.flatMap(rows)));
}

function drawMistakes() {
  const { errors } = details();
  if (!section("mistakes", errors.length)) {
    return;
  }
  // Numbers of many digits are shown with five.
  const long = /^-?\d+\.\d{6,}(e[-+]?\d+)?$/;
  const brief = (text) => (long.test(text) ? String(Number(Number(text).toPrecision(5))) : shorten(text, 160));
  const cell = ([column, text]) => html("div", {},
    html("dt", {}, shorten(column, 40)), html("dd", { class: "clamp" }, brief(text)));
  const cells = (pairs) => html("div", { class: "cells" }, html("dl", {}, pairs.map(cell)));
  const list = (some) => table("plain mistakes", ["Row", "Truth", "Decided", "Score", "What the row says"],
    some.map((e) => [whole(e.row), shorten(e.truth, 60), shorten(e.decided, 60), decimals(e.score), cells(e.cells)]));
  const rest = errors.slice(NEAR);
  put("mistake-table", list(errors.slice(0, NEAR)),
    rest.length ? html("details", {}, html("summary", {}, `${rest.length} more`), list(rest)) : "");
}

function drawShown() {
  drawCurves();
  drawScores();
  drawLearning();
}
function drawAll() {
  drawCut();
  drawShown();
  drawClasses();
  drawMistakes();
}
function refocus() {
  state.cut = chosenAt(curveOf(state.contender));
  drawAll();
}

function theme() {
  const button = byId("theme"), root = document.documentElement;
  const wish = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : wish.matches);
  const paint = () => {
    button.textContent = dark() ? "Light" : "Dark";
  };
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    paint();
  });
  paint();
}

function start() {
  document.documentElement.classList.add("js");
  theme();
  sortable();
  if (!contenders.length) {
    ["cut", "curves", "scores", "classes", "learning", "mistakes"].forEach((id) => section(id, false));
    document.querySelector(".focus").hidden = true;
    return;
  }
  const first = new Set([ship, ...(reference ? [reference] : []), ...contenders]);
  [...first].slice(0, 5).forEach((name) => show(name, true));
  switches();
  options(byId("contender"), contenders, contenders.indexOf(ship), (i) => {
    state.contender = contenders[i];
    refocus();
  });
  const classes = details().classes.map((c) => c.name);
  options(byId("class"), classes, 0, (i) => {
    state.class = i;
    refocus();
  });
  byId("class-choice").hidden = classes.length < 2;
  byId("threshold").addEventListener("input", (event) => moveCut(Number(event.target.value)));
  const curve = () => curveOf(state.contender);
  byId("go-chosen").addEventListener("click", () => moveCut(chosenAt(curve())));
  byId("go-half").addEventListener("click", () => moveCut(nearest(curve().cuts, 0.5)));
  byId("go-best").addEventListener("click", () => {
    const values = curve().cuts.map((_, i) => judge.of(cellsAt(curve(), i)));
    moveCut(values.indexOf(Math.max(...values)));
  });
  refocus();
  let width = document.documentElement.clientWidth;
  new ResizeObserver(() => {
    if (width !== document.documentElement.clientWidth) {
      width = document.documentElement.clientWidth;
      requestAnimationFrame(drawAll);
    }
  }).observe(document.documentElement);
}

start();
