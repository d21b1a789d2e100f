// The page itself: light and dark, the choice of contender and class, and the start.
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

function choose(select, names, chosen, onchange) {
  select.replaceChildren(...names.map((name, i) => html("option", { value: i }, shorten(name, 60))));
  select.selectedIndex = chosen;
  select.addEventListener("change", () => {
    onchange(select.selectedIndex);
    focusChanged();
  });
}

function focusChanged() {
  state.at = tunedAt(curveOf(state.contender));
  redraw();
}

// The class that the page opens on: the one with the fewest rows, as the rarer one of two is the positive one.
function rarestClass() {
  const rows = payload.details[ship].classes.map((curve) => curve.positives || Infinity);
  return rows.indexOf(Math.min(...rows));
}

function choices() {
  choose(byId("contender"), contenders, contenders.indexOf(ship), (i) => {
    state.contender = contenders[i];
  });
  const classes = payload.details[ship].classes.map((curve) => curve.name);
  state.class = rarestClass();
  choose(byId("class"), classes, state.class, (i) => {
    state.class = i;
  });
  byId("class-choice").hidden = classes.length < 2;
  byId("contender-choice").hidden = contenders.length < 2;
  document.querySelector(".focus").hidden = contenders.length < 2 && classes.length < 2;
}

function start() {
  document.documentElement.classList.add("js");
  theme();
  [...new Set([ship, reference, ...contenders])].filter(Boolean).slice(0, 5).forEach((name) => show(name, true));
  sections.forEach((part) => part.start?.(part.place));
  const drawn = contenders.length ? () => true : (part) => part.alone;
  if (contenders.length) {
    choices();
    focusChanged();
  } else {
    sections.forEach((part) => {
      part.place.hidden = Boolean(part.draw) && !part.alone;
    });
    document.querySelector(".focus").hidden = true;
    redraw(drawn);
  }
  let width = document.documentElement.clientWidth;
  new ResizeObserver(() => {
    if (width !== document.documentElement.clientWidth) {
      width = document.documentElement.clientWidth;
      requestAnimationFrame(() => redraw(drawn));
    }
  }).observe(document.documentElement);
}

start();
