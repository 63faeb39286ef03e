// What Node does on both allocators: workers that make, compress, digest and hand over buffers.
"use strict";
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
const crypto = require("crypto");
const zlib = require("zlib");

const WORKERS = 4;
const ROUNDS = 40;

function* numbers(seed) {
  let state = BigInt(seed) + 1n;
  for (;;) {
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
    yield Number(state >> 40n);
  }
}

function inflated(data) {
  return new Promise((resolve, reject) => zlib.inflate(data, (error, result) => (error ? reject(error) : resolve(result))));
}

async function work(seed) {
  const random = numbers(seed);
  const sum = crypto.createHash("sha256");
  const kept = [];
  for (let round = 0; round < ROUNDS; round++) {
    const size = 1000 + (random.next().value % 200000);
    const buffer = Buffer.allocUnsafe(size);
    for (let i = 0; i < size; i += 4) {
      buffer.fill("abcdefgh"[random.next().value % 8], i, Math.min(i + 4, size));
    }
    const small = zlib.deflateSync(buffer, { level: 1 + (round % 9) });
    const back = await inflated(small);
    if (!back.equals(buffer)) {
      throw new Error("another content");
    }
    sum.update(small).update(zlib.gzipSync(JSON.stringify([...back.subarray(0, 2000)])));
    sum.update(crypto.pbkdf2Sync("word", buffer.subarray(0, 16), 50, 64, "sha512"));
    kept.push(Buffer.from(new Uint8Array(buffer).buffer));
    if (kept.length > 10) {
      const gone = kept.splice(random.next().value % 10, 1)[0];
      sum.update(gone);
      parentPort.postMessage({ buffer: gone.buffer }, [gone.buffer]);
    }
  }
  return sum.digest("hex");
}

function start(seed) {
  return new Promise((resolve, reject) => {
    let bytes = 0;
    const worker = new Worker(__filename, { workerData: seed });
    worker.on("message", (message) => {
      if (message.buffer) {
        bytes += message.buffer.byteLength;
      } else {
        resolve(`${message.digest} ${bytes}`);
      }
    });
    worker.on("error", reject);
  });
}

if (isMainThread) {
  Promise.all([...Array(WORKERS).keys()].map(start)).then((lines) => console.log(lines.join("\n")));
} else {
  work(workerData).then((digest) => parentPort.postMessage({ digest }));
}
