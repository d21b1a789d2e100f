let figure; // of what is drawn now

section("profit", {
  start() {
    for (const input of inputs()) {
      input.addEventListener("input", () => {
        redrawProfit();
        moveThreshold(state.at);
      });
    }
    byId("go-profit").addEventListener("click", () => moveThreshold(bestAt(curveOf(state.contender))));
  },

  draw() {
    redrawProfit();
  },

  move(curve, at) {
    const best = bestAt(curve), earned = profitOf(curve, at);
    byId("profit-text").textContent = `At ${brief(curve.grid[at])}: ${money(earned)}, which is `
      + `${brief(earned / Math.max(1, curve.positives + curve.negatives))} per row. `
      + `Best: ${money(profitOf(curve, best))} at ${brief(curve.grid[best])}.`;
    figure.move(at);
  },
});

const money = (x) => x.toLocaleString("en-US", { maximumFractionDigits: 2 }).replace("-", "−");
const inputs = () => ["profit-hit", "profit-alarm", "profit-miss"].map(byId);
// What is not a number counts as nothing.
const prices = () => inputs().map((input) => (Number.isFinite(input.valueAsNumber) ? input.valueAsNumber : 0));

function profitOf(curve, i) {
  const costs = curve.tabulated?.["total cost"]; // where each row has costs of its own
  if (costs) return -costs[i];
  const [hit, alarm, miss] = prices(), c = cellsAt(curve, i);
  return hit * c.tp - alarm * c.fp - miss * c.fn;
}

function bestAt(curve) {
  const values = curve.grid.map((_, i) => profitOf(curve, i));
  return values.indexOf(Math.max(...values));
}

function redrawProfit() {
  figure = profitFigure(widthOf("profit-chart"), curveOf(state.contender));
  put("profit-chart", figure.root);
}

// The profit against the threshold, with the best one and the one in use.
function profitFigure(width, curve) {
  const values = curve.grid.map((_, i) => profitOf(curve, i)), best = bestAt(curve);
  const low = Math.min(0, ...values), high = Math.max(0, ...values);
  const chart = frame({
    width, height: 220, xs: [curve.grid[0], curve.grid.at(-1)], ys: low < high ? [low, high] : [0, 1],
    xTitle: "threshold (score at least)", room: { left: 56, top: 20 },
    label: `Profit against the threshold of ${shorten(curve.name, 60)}, best at ${brief(curve.grid[best])}`,
  });
  const { x, y, plot, box } = chart, place = x(curve.grid[best]);
  const anchor = place > box.left + box.width - 60 ? "end" : place < box.left + 60 ? "start" : "middle";
  const now = svg("line", { class: "now", y1: box.top, y2: box.base });
  plot.append(svg("line", { class: "axis", x1: box.left, x2: box.left + box.width, y1: y(0), y2: y(0) }),
    polyline(chart, values.map((value, i) => [curve.grid[i], value]), "thick s2 stroke"),
    svg("line", { class: "best s2 stroke", x1: place, x2: place, y1: box.top, y2: box.base }),
    svg("text", { class: "strong", x: place, y: box.top - 6, "text-anchor": anchor }, `best ${brief(curve.grid[best])}`), now);
  hover(chart.root, (event) => {
    const [px] = pointerIn(chart.root, event), i = nearest(curve.grid.map(x), px), c = cellsAt(curve, i);
    return [`threshold ${brief(curve.grid[i])}`, `profit ${money(values[i])}`,
      `${whole(c.tp)} hits, ${whole(c.fp)} false alarms, ${whole(c.fn)} missed`];
  });
  return {
    root: chart.root,
    move: (i) => {
      now.setAttribute("x1", x(curve.grid[i]));
      now.setAttribute("x2", x(curve.grid[i]));
    },
  };
}
