/* An interactive flame graph on a canvas. The data: names of frames; stacks as chains of (parent, frame), parents first; for each
 * kind the values of the stacks' ends. Frames narrower than half a pixel are not drawn, so drawing time does not depend on the
 * number of stacks. */
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("flame");
  const context = canvas.getContext("2d");
  const said = document.getElementById("said");
  const control = (name) => document.getElementById(name);
  const HEIGHT = 18, LEAST = 0.5, TOLD = "Point at a frame, or tap it, to see its figures here.";
  let root, zoomed, drawn = [], hits = null, current = null;

  /* Lifetimes of blocks: below 1, 4, 16 ... ms, and longer. */
  const by_lifetime = () => control("what").value === "lifetime";
  const middle = (ages) => {
    const whole = ages.reduce((sum, count) => sum + count, 0);
    let sum = 0;
    return ages.findIndex((count) => (sum += count) >= whole / 2);
  };
  const time = (ms) => (ms < 1000 ? `${ms} ms` : ms < 60000 ? `${Math.round(ms / 1000)} s` : `${Math.round(ms / 60000)} min`);
  const lived = (ages) => {
    const place = middle(ages);
    return place < ages.length - 1 ? time(4 ** place) : "any time";
  };

  const counted = (count, what) => `${Math.round(count).toLocaleString("en")} ${what}${Math.round(count) === 1 ? "" : "s"}`;

  const size = (value) => {
    const unit = control("what").value;
    if (unit !== "bytes") return counted(value, "block");
    for (const [name, limit] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
      if (Math.abs(value) >= limit) return `${(value / limit).toFixed(1)} ${name}`;
    return `${Math.round(value)} B`;
  };

  /* The tree for the chosen kind: children by frame, the sum of a node's values, and that of their magnitudes as its width. */
  function build() {
    const total = (ages) => ages.reduce((sum, count) => sum + count, 0);
    const values = by_lifetime() ? data.lifetimes.map(total) : data.values[control("kind").value][control("what").value];
    control("kind").disabled = by_lifetime();
    const invert = control("invert").checked;
    root = { name: "all", frame: -1, sum: 0, width: 0, children: new Map() };
    data.ends.forEach((end, place) => {
      const value = values[place];
      if (!value) return;
      const path = [];
      for (let at = end; at >= 0; at = data.parents[at]) path.push(data.frames[at]);
      if (!invert) path.reverse();
      let node = root;
      root.sum += value;
      root.width += Math.abs(value);
      for (const frame of path) {
        let child = node.children.get(frame);
        if (!child) node.children.set(frame, (child = { name: data.names[frame], frame, sum: 0, width: 0, children: new Map(), up: node }));
        child.sum += value;
        child.width += Math.abs(value);
        if (by_lifetime()) child.ages = data.lifetimes[place].map((count, age) => count + (child.ages ? child.ages[age] : 0));
        node = child;
      }
    });
    zoomed = root;
    current = null;
    draw();
  }

  function colour(node) {
    if (hits && hits.has(node.frame)) return "#7c3aed";
    if (data.growth && control("kind").value === "growth" && !by_lifetime()) {
      const share = node.width ? node.sum / node.width : 0;
      return share >= 0 ? `hsl(8 80% ${88 - 33 * share}%)` : `hsl(215 75% ${88 + 33 * share}%)`;
    }
    if (node.ages) return `hsl(165 55% ${40 + 4.5 * middle(node.ages)}%)`;   /* paler means longer */
    let hash = 0;
    for (let i = 0; i < node.name.length; i++) hash = (hash * 31 + node.name.charCodeAt(i)) | 0;
    return `hsl(${20 + (Math.abs(hash) % 36)} ${60 + (Math.abs(hash >> 6) % 25)}% ${62 + (Math.abs(hash >> 12) % 14)}%)`;
  }

  function place(node, x, width, depth, into) {
    into.push({ node, x, width, depth });
    let at = x;
    const children = [...node.children.values()].sort((a, b) => b.width - a.width || (a.name < b.name ? -1 : 1));
    for (const child of children) {
      const wide = (width * child.width) / node.width;
      if (wide < LEAST) break;
      place(child, at, wide, depth + 1, into);
      at += wide;
    }
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1, whole = canvas.clientWidth;
    const above = [];
    for (let node = zoomed.up; node; node = node.up) above.unshift(node);
    drawn = above.map((node, depth) => ({ node, x: 0, width: whole, depth, above: true }));
    place(zoomed, 0, whole, above.length, drawn);
    const deepest = drawn.reduce((most, each) => Math.max(most, each.depth), 0);
    canvas.width = whole * ratio;
    canvas.height = (deepest + 1) * HEIGHT * ratio;
    canvas.style.height = `${(deepest + 1) * HEIGHT}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const each of drawn) {
      const y = each.depth * HEIGHT;
      context.globalAlpha = each.above ? 0.5 : 1;
      context.fillStyle = colour(each.node);
      context.fillRect(each.x, y, Math.max(each.width - 0.5, LEAST), HEIGHT - 1);
      if (each.width < 30) continue;
      context.fillStyle = hits && hits.has(each.node.frame) ? "#ffffff" : "#1c2330";
      const fits = Math.floor((each.width - 6) / 6.3);
      const text = each.node.name.length <= fits ? each.node.name : `${each.node.name.slice(0, Math.max(fits - 1, 0))}…`;
      context.fillText(text, each.x + 3, y + HEIGHT / 2);
    }
    context.globalAlpha = 1;
    const chosen = drawn.find((each) => each.node === current);
    if (chosen) {
      context.strokeStyle = "#1d4ed8";
      context.lineWidth = 3;
      context.strokeRect(chosen.x + 1.5, chosen.depth * HEIGHT + 1.5, Math.max(chosen.width - 3, 1), HEIGHT - 4);
    }
    canvas.dataset.drawn = String(drawn.length);
  }

  const at = (event) => {
    const depth = Math.floor(event.offsetY / HEIGHT);
    return drawn.find((each) => each.depth === depth && each.x <= event.offsetX && event.offsetX < each.x + each.width);
  };

  const share = (part) => (root.width ? `${((100 * part) / root.width).toFixed(2)} %` : "");

  function search() {
    const text = control("search").value;
    hits = null;
    if (text) {
      let match = (name) => name.toLowerCase().includes(text.toLowerCase());
      try {
        const pattern = new RegExp(text, "i");
        match = (name) => pattern.test(name);
      } catch { /* an incomplete pattern is plain text */ }
      hits = new Set();
      data.names.forEach((name, frame) => { if (match(name)) hits.add(frame); });
    }
    let sum = 0;
    const count = (node) => {
      if (hits && hits.has(node.frame)) sum += node.width;
      else for (const child of node.children.values()) count(child);
    };
    if (hits) count(root);
    said.textContent = hits ? `${counted(hits.size, "function")} found, in stacks with ${share(sum)} of all` : TOLD;
    draw();
  }

  function tell(node) {
    const half = node.ages ? `; half of them lived for up to ${lived(node.ages)}` : "";
    said.textContent = `${node.name}: ${size(node.sum)}, ${share(node.width)} of all${half}`;
  }

  /* The frame that a key leads to from the current one; none: it stays. */
  function next(key) {
    const here = drawn.findIndex((each) => each.node === current), from = drawn[here];
    if (key === "Home" || !from) return zoomed;
    if (key === "ArrowUp") return current.up;
    if (key === "ArrowDown") return drawn.find((each) => each.node.up === current)?.node;
    const row = drawn.filter((each) => each.depth === from.depth);
    return row[row.indexOf(from) + (key === "ArrowRight" ? 1 : -1)]?.node;
  }

  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Escape") zoomed = root;
    else if (event.key === "Enter" && current) zoomed = current;
    else if (event.key.startsWith("Arrow") || event.key === "Home") current = next(event.key) ?? current;
    else return;
    event.preventDefault();
    draw();
    if (!current) return;
    tell(current);
    const depth = drawn.find((each) => each.node === current)?.depth ?? 0, top = canvas.getBoundingClientRect().top + depth * HEIGHT;
    if (top < 80 || top + HEIGHT > innerHeight) scrollBy(0, top - innerHeight / 2);
  });
  canvas.addEventListener("mousemove", (event) => {
    const found = at(event);
    if (found) tell(found.node);
  });
  canvas.addEventListener("click", (event) => {
    const found = at(event);
    if (found) zoomed = found.node;
    draw();
  });
  control("search").addEventListener("input", search);
  control("reset").addEventListener("click", () => { zoomed = root; control("search").value = ""; search(); });
  for (const name of ["kind", "what", "invert"]) control(name).addEventListener("change", () => { build(); search(); });
  window.addEventListener("resize", draw);
  build();
  said.textContent = TOLD;
})();
