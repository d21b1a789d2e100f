section("learning", {
  compares: true,

  draw(place) {
    const historyOf = (name) => payload.details[name].history, stepOf = (name) => payload.details[name].step ?? "epoch";
    const names = shown().filter((name) => historyOf(name).some((h) => (h.hard ?? h.soft ?? h.loss) !== null));
    if (!names.length) {
      return false;
    }
    const parts = names.map((name) => [name, html("figure", {}, html("figcaption", {}, name))]);
    put("learning-charts", ...parts.map(([, figure]) => figure));
    for (const [name, figure] of parts) {
      figure.append(learningFigure(Math.max(200, figure.clientWidth), historyOf(name), slotOf(name), stepOf(name)));
    }
    const rows = (name) => {
      const history = historyOf(name), every = Math.ceil(history.length / 12);
      return history.filter((_, i) => i % every === 0 || i === history.length - 1)
        .map((h) => [name, h.epoch, decimals(h.loss), decimals(h.soft), decimals(h.hard)]);
    };
    asTable(place, ["Contender", "Epoch or round", "Loss", "Soft", "Hard"], names.flatMap(rows));
    return true;
  },
});

// The soft value (thin) and the hard one (thick) by epoch, or by round; the loss where there is neither.
function learningFigure(width, history, slot, step) {
  const of = (key) => history.filter((h) => h[key] !== null).map((h) => [h.epoch, h[key]]);
  const known = [
    { name: "soft", points: of("soft"), line: "dim dash-1" },
    { name: "hard", points: of("hard"), line: `thick stroke s${slot}`, kind: "strong" },
  ].filter(({ points }) => points.length);
  const lines = known.length ? known : [{ name: "loss", points: of("loss"), line: `stroke s${slot}` }];
  const all = lines.flatMap(({ points }) => points.map(([, v]) => v));
  const low = Math.min(...all), high = Math.max(...all), pad = (high - low) * 0.08 || 0.05;
  const chart = frame({
    width, height: 180, xs: [history[0].epoch, history.at(-1).epoch], ys: [low - pad, high + pad], xTitle: step,
    room: { right: 40 }, label: `By ${step}: ${lines.map(({ name }) => name).join(", ")}; table below`,
  });
  lines.forEach(({ points, line }) => chart.plot.append(polyline(chart, points, line)));
  endLabels(chart, lines.map(({ name, kind, points }) => ({ name, kind, y: chart.y(points.at(-1)[1]) })));
  hover(chart.root, (event) => {
    const [px] = pointerIn(chart.root, event);
    const h = history[nearest(history.map((e) => chart.x(e.epoch)), px)];
    const values = ["hard", "soft", "loss"].filter((key) => h[key] !== null).map((key) => `${key} ${decimals(h[key])}`);
    return [`${step} ${h.epoch}`, ...values];
  });
  return chart.root;
}
