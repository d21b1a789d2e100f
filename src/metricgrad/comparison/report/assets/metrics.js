// Metrics of the four cells, as in metricgrad.metrics: higher is better, 0/0 is 0.
const ratio = (a, b) => (b === 0 ? 0 : a / b);

const METRICS = {
  accuracy: (c) => ratio(c.tp + c.tn, c.tp + c.fp + c.fn + c.tn),
  precision: (c) => ratio(c.tp, c.tp + c.fp),
  recall: (c) => ratio(c.tp, c.tp + c.fn),
  specificity: (c) => ratio(c.tn, c.tn + c.fp),
  npv: (c) => ratio(c.tn, c.tn + c.fn),
  f_beta: (c, { beta = 1 }) => ratio((1 + beta ** 2) * c.tp, (1 + beta ** 2) * c.tp + beta ** 2 * c.fn + c.fp),
  f1: (c) => ratio(2 * c.tp, 2 * c.tp + c.fn + c.fp),
  jaccard: (c) => ratio(c.tp, c.tp + c.fp + c.fn),
  tversky: (c, { alpha = 0.5, beta = 0.5 }) => ratio(c.tp, c.tp + alpha * c.fp + beta * c.fn),
  balanced_accuracy: (c) => ratio(METRICS.recall(c) + METRICS.specificity(c), (c.tp + c.fn > 0) + (c.tn + c.fp > 0)),
  g_mean: (c) => Math.sqrt(METRICS.recall(c) * METRICS.specificity(c)),
  worst_recall: (c) => 1 - Math.max(ratio(c.fn, c.tp + c.fn), ratio(c.fp, c.fp + c.tn)),
  mcc: (c) => ratio(
    c.tp * c.tn - c.fp * c.fn,
    Math.sqrt(c.tp + c.fp) * Math.sqrt(c.tp + c.fn) * Math.sqrt(c.tn + c.fp) * Math.sqrt(c.tn + c.fn),
  ),
  kappa: (c) => ratio(2 * (c.tp * c.tn - c.fp * c.fn), (c.tp + c.fp) * (c.fp + c.tn) + (c.tp + c.fn) * (c.fn + c.tn)),
  informedness: (c) => METRICS.recall(c) + METRICS.specificity(c) - 1,
  markedness: (c) => METRICS.precision(c) + METRICS.npv(c) - 1,
  fowlkes_mallows: (c) => Math.sqrt(METRICS.precision(c) * METRICS.recall(c)),
  cost: (c, { fp = 1, fn = 1 }) => {
    const worst = fp * (c.fp + c.tn) + fn * (c.tp + c.fn);
    return ratio(worst - fp * c.fp - fn * c.fn, worst);
  },
  detection_cost: (c, { miss = 1, false_alarm = 1, prior = 0.5 }) => {
    const missed = miss * prior, alarm = false_alarm * (1 - prior);
    return 1 - (missed * ratio(c.fn, c.tp + c.fn) + alarm * ratio(c.fp, c.fp + c.tn)) / (missed + alarm);
  },
};

const TITLES = { mcc: "MCC", npv: "NPV", g_mean: "G-mean", kappa: "Cohen’s kappa" };

// The metric of a name: "f1", "f0.5", "f_2", "mcc", "cost(fp=1.0, fn=10.0)"; null if four cells do not give it.
function metricNamed(name) {
  const beta = /^f_?(\d+\.?\d*|\.\d+)$/.exec(name);
  if (beta) {
    return { title: "F" + beta[1], of: (c) => METRICS.f_beta(c, { beta: Number(beta[1]) }) };
  }
  const [, base, inner] = /^([a-z_0-9]+)(?:\((.*)\))?$/.exec(name) || [];
  if (!Object.hasOwn(METRICS, base)) {
    return null;
  }
  const options = {};
  for (const [, key, value] of (inner || "").matchAll(/(\w+)=([-+.\de]+)/g)) {
    options[key] = Number(value);
  }
  const title = (TITLES[base] || base.replaceAll("_", " ")) + (inner ? ` (${inner})` : "");
  return { title, of: (c) => METRICS[base](c, options) };
}

// The four cells of a class when the rows that reach its i-th threshold are predicted.
function cellsAt(curve, i) {
  const tp = curve.tp[i], fp = curve.fp[i];
  return { tp, fp, fn: curve.positives - tp, tn: curve.negatives - fp };
}
