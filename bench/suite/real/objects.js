// What Node programs do: node objects.js ROUNDS.  Buffers and compression are malloc's, the rest mostly V8's.
"use strict";
const crypto = require("crypto");
const zlib = require("zlib");

const rounds = Number(process.argv[2]);
if (!Number.isInteger(rounds) || rounds < 1) {
  console.error("usage: node objects.js ROUNDS");
  process.exit(2);
}

let seed = 1;
function random(bound) {
  seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
  return (seed >>> 8) % bound;
}

const digest = crypto.createHash("sha256");
for (let round = 0; round < rounds; round++) {
  const kept = [];
  for (let i = 0; i < 4000; i++) {
    const buffer = Buffer.alloc(64 + random(16000), i & 255);
    buffer.writeUInt32LE(i, random(60));
    kept[random(400)] = buffer;
  }
  const records = Array.from({ length: 4000 }, (_, i) => ({ id: i, name: "n" + random(999), list: [i, random(9)] }));
  const groups = new Map();
  for (const each of JSON.parse(JSON.stringify(records))) {
    groups.set(each.name, (groups.get(each.name) || 0) + each.list[1]);
  }
  const text = JSON.stringify([...groups.entries()].sort());
  const packed = zlib.deflateSync(Buffer.concat(kept.filter(Boolean)), { level: 1 });
  digest.update(text);
  digest.update(zlib.inflateSync(packed));
}
console.log("objects.js check=" + digest.digest("hex").slice(0, 16));
