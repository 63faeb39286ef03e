// Turns the page around this script into SVG: boxes, lines of text, charts and what is drawn on a canvas, in the page's own colours,
// which follow the reader's scheme. pictures.py puts it into a page and takes the result from it.
"use strict";
const pictured = { drawn: [], seed: 1 };

// plotly draws the names of its parts by lot.
Math.random = () => (pictured.seed = (pictured.seed * 48271) % 2147483647) / 2147483647;

// What flame.js draws with; nothing but that is taken down.
pictured.context = {
  setTransform() {},
  strokeRect() {},
  fillRect(x, y, width, height) {
    pictured.drawn.push(`<rect x="${round(x)}" y="${round(y)}" width="${round(width)}" height="${round(height)}" fill="${this.fillStyle}"/>`);
  },
  fillText(text, x, y) {
    pictured.drawn.push(line(text, x, y + 4, null, { fill: this.fillStyle, size: 12 }));
  },
};
const getContext = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind) {
  return this.id === "flame" ? pictured.context : getContext.call(this, kind);
};

const round = (value) => String(Math.round(value * 10) / 10);
const escaped = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);

function line(text, x, y, width, { fill, size, bold, mono }) {
  const more = `${width ? ` textLength="${round(width)}"` : ""}${bold ? ' font-weight="700"' : ""}${mono ? ' class="m"' : ""}`;
  return `<text x="${round(x)}" y="${round(y)}" font-size="${round(size)}"${more} style="fill:${fill}">${escaped(text)}</text>`;
}

// The lines of a text node: words with the same place from above.
function lines(node) {
  const found = [];
  for (const { index, 0: word } of node.data.matchAll(/\S+/g)) {
    const range = document.createRange();
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    for (const box of range.getClientRects()) {
      const last = found.at(-1);
      if (last && Math.abs(last.top - box.top) < 2) Object.assign(last, { text: `${last.text} ${word}`, right: box.right });
      else found.push({ text: word, left: box.left, right: box.right, top: box.top, height: box.height });
    }
  }
  return found;
}

const plain = ({ color, fontWeight, fontSize, fontFamily }) => ({ color, fontWeight, fontSize, fontFamily });

function measured(text, style) {
  const measure = getContext.call(document.createElement("canvas"), "2d");
  measure.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  return measure.measureText(text);
}

const wide = (text, style) => measured(text, style).width;

function written(text, box, style) {
  const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = measured(text, style);
  const look = { fill: style.color, size: parseFloat(style.fontSize), bold: style.fontWeight >= 600, mono: style.fontFamily.includes("mono") };
  return line(text, box.left, box.top + (box.height - up - down) / 2 + up, box.right - box.left, look);
}

// The ground and the borders of an element.
function frame(element, style) {
  const { left, top, width, height } = element.getBoundingClientRect(), parts = [];
  const sides = ["Top", "Right", "Bottom", "Left"].map((side) => [parseFloat(style[`border${side}Width`]), style[`border${side}Color`]]);
  const whole = sides.every(([wide]) => wide > 0), clear = style.backgroundColor === "rgba(0, 0, 0, 0)";
  const place = `x="${round(left)}" y="${round(top)}" width="${round(width)}" height="${round(height)}"`;
  if (whole || !clear)
    parts.push(`<rect ${place} rx="${round(parseFloat(style.borderRadius) || 0)}" style="fill:${clear ? "none" : style.backgroundColor};` +
      `stroke:${whole ? sides[0][1] : "none"}"/>`);
  const [[, ], [, ], [below, colour], [before, mark]] = sides;
  if (!whole && below > 0) parts.push(`<rect x="${round(left)}" y="${round(top + height - 1)}" width="${round(width)}" height="1" style="fill:${colour}"/>`);
  if (before > 2) parts.push(`<rect x="${round(left)}" y="${round(top)}" width="${before}" height="${round(height)}" style="fill:${mark}"/>`);
  return parts;
}

// A control's own look is the browser's; here it is the page's.
function control(element, box, style) {
  const parts = [], small = element.type === "checkbox", look = { ...plain(style), color: "var(--ink)" };
  const text = element.tagName === "SELECT" ? element.selectedOptions[0].text : element.placeholder || element.textContent;
  parts.push(`<rect x="${round(box.left)}" y="${round(box.top)}" width="${round(box.width)}" height="${round(box.height)}" rx="3" ` +
    'style="fill:var(--paper);stroke:var(--soft)"/>');
  if (small) return parts;
  const arrow = element.tagName === "SELECT" ? 16 : 0, room = box.width - 18 - arrow;
  let shown = text;
  while (wide(shown, style) > room) shown = `${shown.slice(0, -2)}…`;
  const at = { left: box.left + 9, right: box.left + 9 + wide(shown, style), top: box.top, height: box.height };
  parts.push(written(shown, at, look));
  if (arrow) parts.push(written("▾", { ...at, left: box.right - 18, right: box.right - 8 }, look));
  return parts;
}

function plotted(chart) {
  const box = chart.getBoundingClientRect(), copy = chart.cloneNode(true);
  for (const each of copy.querySelectorAll(".hoverlayer, .dragcover, .draglayer, .zoomlayer, .infolayer .g-notifier")) each.remove();
  for (const each of copy.querySelectorAll("[pointer-events], [data-unformatted], [data-math]"))
    for (const name of ["pointer-events", "data-unformatted", "data-math"]) each.removeAttribute(name);
  for (const each of copy.querySelectorAll("*")) each.style.pointerEvents = each.style.cursor = each.style.whiteSpace = "";
  // Of what plotly leaves for later, only groups that hold something.
  for (let empty; (empty = copy.querySelectorAll("g:empty, path:not([d]), defs:empty")).length; ) for (const each of empty) each.remove();
  copy.removeAttribute("style");
  copy.setAttribute("x", round(box.left));
  copy.setAttribute("y", round(box.top));
  return new XMLSerializer().serializeToString(copy);
}

function walk(node, into) {
  if (node.nodeType === Node.TEXT_NODE) {
    const style = getComputedStyle(node.parentElement);
    into.push(...lines(node).map((each) => written(each.text, each, style)));
    return;
  }
  if (node.nodeType !== Node.ELEMENT_NODE || /^(SCRIPT|STYLE|OPTION)$/.test(node.tagName)) return;
  const style = getComputedStyle(node), box = node.getBoundingClientRect();
  if (style.display === "none" || !box.width || node.matches(".alternative, .modebar-container")) return;
  if (node.matches("svg.main-svg")) return void into.push(plotted(node));
  if (node.matches(".tools :is(select, input, button)")) return void into.push(...control(node, box, style));
  into.push(...frame(node, style));
  if (node.id === "flame") return void into.push(`<g transform="translate(${round(box.left)} ${round(box.top)})">`, ...pictured.drawn, "</g>");
  // What can be scrolled is cut at its edge.
  const cut = node.scrollWidth > node.clientWidth + 1 && style.overflowX !== "visible";
  const own = cut ? [] : into;
  for (const child of node.childNodes) walk(child, own);
  if (!cut) return;
  const name = `cut${(pictured.cuts = (pictured.cuts ?? 0) + 1)}`;
  into.push(`<clipPath id="${name}"><rect x="${round(box.left)}" y="${round(box.top)}" width="${round(box.width)}" height="${round(box.height)}"/>` +
    `</clipPath><g clip-path="url(#${name})">`, ...own, "</g>");
}

window.addEventListener("load", async () => {
  while (document.querySelector(".chart") && !document.body.dataset.charts) await new Promise((done) => setTimeout(done, 20));
  const parts = [];
  walk(document.querySelector("main"), parts);
  const said = document.createElement("pre");
  said.id = "picture";
  said.textContent = JSON.stringify({ width: innerWidth, height: document.querySelector("main").getBoundingClientRect().height, parts });
  document.body.append(said);
});
