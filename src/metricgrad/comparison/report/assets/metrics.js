// Metrics at a threshold. Their formulas come from Python, which traced them: payload.formulas, see formulas.py.
const ratio = (a, b, empty = 0) => (b === 0 ? empty : a / b);

const OPERATIONS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  ratio,
  root: (a) => (a > 0 ? Math.sqrt(a) : 0),
  log: (a, empty) => (a > 0 ? Math.log(a) : empty),
};

// The value of a formula, given the four cells. A step is the name of a cell, or ["number", x], or an operation, the
// numbers of the steps that it is applied to and, for ratio and log, what they give at zero.
function compute(steps, c) {
  const values = [];
  for (const [name, ...rest] of steps) {
    if (Object.hasOwn(OPERATIONS, name)) {
      const applied = name === "root" || name === "log" ? 1 : 2;
      const operands = rest.slice(0, applied).map((place) => values[place]);
      values.push(OPERATIONS[name](...operands, ...rest.slice(applied).map(Number)));
    } else {
      values.push(name === "number" ? Number(rest[0]) : c[name]);
    }
  }
  return values.at(-1);
}

// The metric of a name, as a title and a function of cellsAt; null if four cells do not give it.
function metricNamed(name) {
  if (!Object.hasOwn(payload.formulas, name)) {
    return null;
  }
  const { title, steps, steps_of_class: ofClass } = payload.formulas[name];
  if (steps) {
    return { title, of: (c) => compute(steps, c) };
  }
  if (ofClass) {
    const stepsOf = new Map(ofClass);
    return { title, of: (c) => compute(stepsOf.get(c.name), c) };
  }
  return { title, of: (c) => c.tabulated[name] };
}

// The four cells of a class when the rows that reach its i-th threshold are predicted, the name of the class, and what
// was tabulated there.
function cellsAt(curve, i) {
  const tp = curve.tp[i], fp = curve.fp[i];
  const tabulated = Object.fromEntries(Object.entries(curve.tabulated).map(([name, values]) => [name, values[i]]));
  return { tp, fp, fn: curve.positives - tp, tn: curve.negatives - fp, name: curve.name, tabulated };
}
