// The workload of test_node.py: JSON, buffers, compression and worker threads; prints checksums.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const zlib = require('zlib');

const WORKERS = 3;
const ROUNDS = 12;
const RECORDS = 6000;
const BUFFERS = 60000;

// A generator of its own: Math.random can't be seeded.
function generator(seed) {
  let state = seed >>> 0;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state % limit;
  };
}

function record(random, id) {
  return {
    id,
    name: `name-${random(100000).toString(36)}`,
    tags: Array.from({ length: random(6) }, () => `tag${random(1000)}`),
    place: { x: random(1000) / 8, y: random(1000) / 8, note: 'é'.repeat(random(20)) },
    active: random(2) === 1,
  };
}

// Text goes through objects, bytes and compression, and has to come back as it was.
function jsonRounds(seed) {
  const random = generator(seed);
  const hash = crypto.createHash('sha256');
  for (let round = 0; round < ROUNDS; round++) {
    const records = Array.from({ length: RECORDS }, (_, id) => record(random, id));
    const text = JSON.stringify(records);
    const packed = zlib.deflateSync(Buffer.from(text, 'utf8'), { level: 1 });
    const again = JSON.stringify(JSON.parse(zlib.inflateSync(packed).toString('utf8')));
    if (again !== text) throw new Error('JSON changed on its way');
    hash.update(again);
  }
  return hash.digest('hex');
}

// Each of these buffers is a block of its own, outside V8's heap; a tenth of them is kept for a while.
function bufferRounds(seed) {
  const random = generator(seed);
  const hash = crypto.createHash('sha256');
  const kept = new Array(BUFFERS / 10);
  for (let i = 0; i < BUFFERS; i++) {
    const buffer = Buffer.allocUnsafeSlow(1 + random(i % 100 === 0 ? 100000 : 2000)).fill(i & 255);
    kept[random(kept.length)] = buffer;
    if (i % 50 === 0) hash.update(kept[random(kept.length)] || 'none');
  }
  kept.forEach((buffer) => buffer && hash.update(buffer.subarray(0, 16)));
  return hash.digest('hex');
}

function main() {
  const results = new Array(WORKERS).fill('none');
  let ended = 0;
  for (let i = 0; i < WORKERS; i++) {
    const worker = new Worker(__filename, { workerData: i + 1 });
    worker.on('message', (result) => { results[i] = result; });
    worker.on('error', (error) => { throw error; });
    worker.on('exit', () => {
      ended++;
      if (ended === WORKERS) results.forEach((result) => console.log(result));
    });
  }
  console.log(jsonRounds(99), bufferRounds(99));
}

if (isMainThread) {
  main();
} else {
  parentPort.postMessage(`${jsonRounds(workerData)} ${bufferRounds(workerData)}`);
}
