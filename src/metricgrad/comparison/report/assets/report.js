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

// A link to a folded section opens it.
function openTarget() {
  byId(location.hash.slice(1))?.querySelector(":scope > .folded:first-child")?.setAttribute("open", "");
}

function unfolding() {
  // Toggle events do not bubble. What is folded has no width: it is drawn again when it opens.
  document.addEventListener("toggle", ({ target }) => {
    if (target.open && target.matches(".folded")) {
      const place = target.closest("section");
      redraw((part) => part.place === place);
    }
    letKeysScroll();
  }, true);
  byId("contents").addEventListener("click", () => setTimeout(openTarget)); // also if the address is that one already
  window.addEventListener("hashchange", openTarget);
  openTarget();
}

// The browser prints the sheet; the button prints all sections, and folds them again.
function printing() {
  const root = document.documentElement;
  byId("print-everything").addEventListener("click", () => {
    const folded = [...document.querySelectorAll("main details:not([open], .data)")];
    const unfold = (open) => folded.forEach((details) => details.toggleAttribute("open", open));
    window.addEventListener("afterprint", () => {
      root.removeAttribute("data-print");
      unfold(false);
    }, { once: true });
    root.dataset.print = "everything";
    unfold(true);
    redraw();
    window.print();
  });
}

function start() {
  document.documentElement.classList.add("js");
  theme();
  [...new Set([ship, reference, ...contenders])].filter(Boolean).slice(0, 5).forEach((name) => show(name, true));
  sections.forEach((part) => part.start?.(part.place));
  if (contenders.length) {
    choices();
    focusChanged();
  } else {
    sections.forEach((part) => showPlace(part.place, !part.draw || part.alone));
    document.querySelector(".focus").hidden = true;
    redraw();
  }
  let width = document.documentElement.clientWidth;
  new ResizeObserver(() => {
    if (width !== document.documentElement.clientWidth) {
      width = document.documentElement.clientWidth;
      requestAnimationFrame(() => redraw());
    }
  }).observe(document.documentElement);
  unfolding();
  printing();
}

start();
