// Boxes, words and charts in the order in which they are painted, with the styles that the browser computed.
(until) => {
  const end = document.querySelector(until).getBoundingClientRect().top + scrollY, width = document.documentElement.clientWidth;
  const canvas = document.createElement("canvas").getContext("2d");
  const r = (x) => String(Math.round(x * 10) / 10);
  const safe = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const colour = (css) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = css;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return alpha < 8 ? null : "#" + [red, green, blue].map((v) => v.toString(16).padStart(2, "0")).join("");
  };
  const out = [];
  const box = (e, style, b) => {
    const back = colour(style.backgroundColor), sides = ["Top", "Right", "Bottom", "Left"];
    const wide = sides.map((s) => style[`border${s}Style`] === "none" ? 0 : parseFloat(style[`border${s}Width`]));
    const round = Math.min(parseFloat(style.borderTopLeftRadius) || 0, b.height / 2), line = colour(style.borderTopColor);
    const whole = wide.every(Boolean) && line;
    if (back && e !== document.body || whole) {
      out.push(`<rect x="${r(b.x)}" y="${r(b.y)}" width="${r(b.width)}" height="${r(b.height)}" rx="${r(round)}" fill="${back || "none"}"${whole ? ` stroke="${line}" stroke-width="${wide[0]}"` : ""}/>`);
    }
    if (!whole) {
      const ends = [[b.x, b.y, b.right, b.y], [b.right, b.y, b.right, b.bottom], [b.x, b.bottom, b.right, b.bottom], [b.x, b.y, b.x, b.bottom]];
      sides.forEach((s, i) => {
        const ink = wide[i] && colour(style[`border${s}Color`]);
        if (ink) {
          const [x1, y1, x2, y2] = ends[i];
          out.push(`<path d="M${r(x1)} ${r(y1)}L${r(x2)} ${r(y2)}" stroke="${ink}" stroke-width="${wide[i]}"/>`);
        }
      });
    }
  };
  const words = (node, style) => {
    canvas.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const up = canvas.measureText("x").fontBoundingBoxAscent, lines = [];
    // A line may also end after a hyphen.
    for (const word of node.textContent.matchAll(/[^\s-]+-*|-+/g)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const b = range.getBoundingClientRect(), last = lines.at(-1);
      if (last && Math.abs(last.y - b.y) < 3) {
        last.text += (word.index && /\s/.test(node.textContent[word.index - 1]) ? " " : "") + word[0];
        last.right = b.right;
      } else if (b.width) {
        lines.push({ x: b.x, y: b.y, right: b.right, text: word[0] });
      }
    }
    const family = style.fontFamily.includes("Georgia") ? "Georgia, serif" : "system-ui, sans-serif";
    for (const line of lines) {
      out.push(`<text x="${r(line.x)}" y="${r(line.y + scrollY + up)}" fill="${colour(style.color)}" font-family="${family}" font-size="${r(parseFloat(style.fontSize))}" font-weight="${style.fontWeight}" textLength="${r(line.right - line.x)}" lengthAdjust="spacingAndGlyphs">${safe(line.text)}</text>`);
    }
  };
  const chart = (e, b) => {
    const view = e.getAttribute("viewBox");
    const inner = (node) => {
      const style = getComputedStyle(node), kept = [];
      for (const a of node.attributes) {
        if (/^(x|y|x1|x2|y1|y2|cx|cy|r|d|width|height|text-anchor|dominant-baseline)$/.test(a.name)) kept.push(`${a.name}="${safe(a.value)}"`);
      }
      const filled = colour(style.fill), ink = style.stroke === "none" ? null : colour(style.stroke);
      kept.push(`fill="${style.fill === "none" || !filled ? "none" : filled}"`);
      if (style.fillOpacity !== "1") kept.push(`fill-opacity="${style.fillOpacity}"`);
      if (ink) kept.push(`stroke="${ink}" stroke-width="${parseFloat(style.strokeWidth)}"`);
      if (ink && style.strokeOpacity !== "1") kept.push(`stroke-opacity="${style.strokeOpacity}"`);
      if (ink && style.strokeLinecap !== "butt") kept.push(`stroke-linecap="${style.strokeLinecap}"`);
      if (ink && style.strokeDasharray !== "none") kept.push(`stroke-dasharray="${style.strokeDasharray.replaceAll("px", "")}"`);
      if (node.tagName === "text") kept.push(`font-family="system-ui, sans-serif" font-size="12" font-weight="${style.fontWeight}"`);
      if (node.tagName === "g") return [...node.children].map(inner).join("");
      if (!ink && (style.fill === "none" || !filled)) return "";
      return node.tagName === "text" ? `<text ${kept.join(" ")}>${safe(node.textContent)}</text>` : `<${node.tagName} ${kept.join(" ")}/>`;
    };
    out.push(`<svg x="${r(b.x)}" y="${r(b.y)}" width="${r(b.width)}" height="${r(b.height)}" overflow="visible"${view ? ` viewBox="${view}"` : ""}>${[...e.children].map(inner).join("")}</svg>`);
  };
  const walk = (e) => {
    const style = getComputedStyle(e), c = e.getBoundingClientRect(), bare = style.display === "contents";
    if (!bare && !e.checkVisibility({ visibilityProperty: true }) || ["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName)) return;
    const b = { x: c.x, y: c.y + scrollY, right: c.right, bottom: c.bottom + scrollY, width: c.width, height: c.height };
    if (!bare && (b.y >= end || b.bottom < 0 || c.right < 0)) return;
    if (e.tagName === "svg") return chart(e, b);
    if (e.type === "range") {
      const middle = b.y + b.height / 2, at = b.x + 8 + (b.width - 16) * (e.value / e.max), accent = colour(style.accentColor);
      out.push(`<path d="M${r(b.x)} ${r(middle)}H${r(b.right)}" stroke="#bbb7ad" stroke-width="5" stroke-linecap="round"/><path d="M${r(b.x)} ${r(middle)}H${r(at)}" stroke="${accent}" stroke-width="5" stroke-linecap="round"/><circle cx="${r(at)}" cy="${r(middle)}" r="8" fill="${accent}"/>`);
      return;
    }
    if (!bare) box(e, style, b);
    if (e.tagName === "SELECT") {
      out.push(`<text x="${r(b.x + 10)}" y="${r(b.y + b.height / 2 + 5)}" font-family="system-ui, sans-serif" font-size="14" fill="${colour(style.color)}">${safe(e.selectedOptions[0].text)} ▾</text>`);
      return;
    }
    for (const child of e.childNodes) {
      if (child.nodeType === 1) walk(child);
      if (child.nodeType === 3 && child.textContent.trim()) words(child, style);
    }
  };
  walk(document.body);
  const back = colour(getComputedStyle(document.body).backgroundColor);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${Math.floor(end)}" width="${width}" height="${Math.floor(end)}" role="img">\n`
    + `<title>${safe(document.title)}</title>\n<rect width="100%" height="100%" fill="${back}"/>\n${out.join("\n")}\n</svg>\n`;
}
